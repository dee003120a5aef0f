"""What is installed: JAX alone suffices for the loop, and a wheel holds all that it needs."""

import email
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

import specdec_jax
from specdec_jax import cli

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(specdec_jax.__file__).parent

# Finds no module but JAX's needs, as in an environment without the extras.
BARE = """
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

class OnlyJax(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        top = name.partition(".")[0]
        # The second is the interpreter's own too, under a name that tells its platform.
        own = top in sys.stdlib_module_names or top.startswith("_sysconfigdata")
        return super().find_spec(name, path, target) if own or top in {allowed} else None

sys.meta_path = [BuiltinImporter, FrozenImporter, OnlyJax]
"""

DECODE = """
import dataclasses, json
import jax, jax.numpy as jnp
import specdec_jax as sd

@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Table:
    logits: jax.Array

    @property
    def vocab_size(self):
        return self.logits.shape[-1]

    def start(self, source, length):
        return None

    def extend(self, state, tokens, position):
        return self.logits[tokens], state

# 0 starts, 3 4 2 follow each other, and 1 ends; the draft errs after 4.
target = Table(10.0 * jax.nn.one_hot(jnp.array([3, 1, 1, 4, 2]), 5))
draft = sd.ModelDraft(Table(10.0 * jax.nn.one_hot(jnp.array([3, 1, 1, 4, 0]), 5)))
asked = sd.request(1, key=jax.random.key(0), max_tokens=8)
source = jnp.zeros((1, 1), jnp.int32)
plain = sd.autoregressive(target, source, asked, sd.Options(max_tokens=8))
spec = sd.speculative(target, draft, source, asked, sd.Options(max_tokens=8, gamma=3))
print(json.dumps([d.tokens[0].tolist() + d.counters.target_runs.tolist() for d in (plain, spec)]))
"""


def needs_of_jax() -> set[str]:
    """The modules of JAX and of all that it requires, by the installed metadata."""
    names, queue = set(), ["jax"]
    while queue:
        name = queue.pop()
        if name in names:
            continue
        names.add(name)
        for line in importlib.metadata.requires(name) or []:
            if "extra ==" not in line:
                needed = re.match(r"[\w.-]+", line)
                assert needed
                queue.append(needed.group().lower())
    return {name.replace("-", "_") for name in names} | {"specdec_jax"}


def python(code: str, *paths: Path, cwd: Path, **kwargs) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that finds packages in `paths` first."""
    before = [str(p) for p in paths]
    found = os.pathsep.join([*before, *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": found}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, **kwargs)


def test_the_loop_needs_jax_alone(tmp_path):
    allowed = needs_of_jax()
    assert "jax" in allowed
    assert not allowed & {"flax", "absl", "jaxtyping", "sentencepiece", "tqdm", "safetensors"}
    bare = BARE.format(allowed=allowed)
    done = python(bare + DECODE, ROOT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plain, spec = json.loads(done.stdout)
    # Four tokens; in one round 3 4 and a correction, in the other the end.
    assert plain == [3, 4, 2, 1, 0, 0, 0, 0, 4]
    assert spec == [3, 4, 2, 1, 0, 0, 0, 0, 2]


def test_what_needs_more_says_so(tmp_path):
    """Also the proof that the modules are really out of reach above."""
    bare = BARE.format(allowed=needs_of_jax())
    done = python(bare + "import specdec_jax.generate", ROOT, cwd=tmp_path)
    assert done.returncode == 1
    (missing,) = re.findall(r"ModuleNotFoundError: No module named '(\w+)", done.stderr)
    assert missing in {"flax", "safetensors", "sentencepiece"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    here = {
        f"specdec_jax/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {n for n in names if ".dist-info/" not in n} == here
    assert "specdec_jax/py.typed" in names
    for model in ("ende_target", "ende_draft"):
        assert f"specdec_jax/models/{model}/model.safetensors" in names
        assert f"specdec_jax/models/{model}/config.json" in names
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)
    assert wheel.stat().st_size < 20e6


def test_the_wheel_declares_its_command_and_its_needs(wheel):
    archive = zipfile.ZipFile(wheel)
    (info,) = {n.split("/")[0] for n in archive.namelist() if ".dist-info/" in n}
    points = archive.read(f"{info}/entry_points.txt").decode()
    assert "specdec = specdec_jax.cli:run" in points.splitlines()
    assert callable(cli.run)
    metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    assert metadata["Version"] == specdec_jax.__version__
    always = [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert len(always) == 1
    assert always[0].startswith("jax")


@pytest.mark.slow
def test_an_unpacked_wheel_decodes_like_the_checkout(wheel, tmp_path, capsys):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    flags = ["generate", "--json", "--gamma", "2", "--max_tokens", "12"]
    flags += ["This package contains the documentation.", "A library for sounds."]
    code = f"""
        import runpy, sys
        sys.argv[1:] = {flags}
        import specdec_jax
        print(specdec_jax.__file__, file=sys.stderr)
        runpy.run_module("specdec_jax", run_name="__main__", alter_sys=True)
    """
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = python(code, tmp_path / "site", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(str(tmp_path / "site"))
    with pytest.raises(SystemExit) as ended:
        cli.main(cli.parser().parse_args(flags))
    assert ended.value.code == 0
    there, here = (
        [json.loads(line) for line in output.splitlines()]
        for output in (done.stdout, capsys.readouterr().out)
    )
    assert len(here) == 2
    for key in ("text", "tokens", "finish", "accepted"):
        assert [line[key] for line in there] == [line[key] for line in here]
    assert list(elsewhere.iterdir()) == []
