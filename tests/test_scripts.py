"""The scripts, without installing anything: the environment and its tools are stand-ins."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted([*ROOT.glob("scripts/**/*.sh"), ROOT / ".ci" / "run"])
NAMES = [str(path.relative_to(ROOT)) for path in SCRIPTS]


def call(*command, **environment):
    env = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    return subprocess.run(
        [str(part) for part in command], env=env, cwd="/", capture_output=True, text=True
    )


def tool(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def venv(tmp_path, log):
    """An environment that is installed already, whose tools write down how they are called."""
    folder = tmp_path / "venv"
    tool(folder / "bin", "python", f'echo "python $*" >> {log}; exec {sys.executable} "$@"')
    for name in ("ruff", "pyright"):
        tool(folder / "bin", name, f'echo "{name} $*" >> {log}')
    for path in SCRIPTS:
        for extras in re.findall(r'environment\.sh" (\S+)', path.read_text(encoding="utf-8")):
            (folder / f".installed-{extras.replace(',', '-')}").touch()
    return folder


@pytest.mark.parametrize("path", SCRIPTS, ids=NAMES)
def test_scripts_are_short_and_parse(path):
    content = path.read_text(encoding="utf-8")
    assert len(content.splitlines()) <= 60
    done = call("bash", "-n", path)
    assert (done.returncode, done.stderr) == (0, "")
    if content.startswith("#!"):
        assert os.access(path, os.X_OK)
        assert "set -euo pipefail" in content


def test_shellcheck_finds_nothing():
    found = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, "shellcheck is missing: install the test extra"
    done = call(
        found, "--external-sources", "--source-path=SCRIPTDIR", f"--source-path={ROOT}", *SCRIPTS
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_demo_s_help_explains_the_demo(venv):
    done = call(ROOT / "scripts/demo.sh", "--help", SPECDEC_VENV=venv, PYTHONPATH=ROOT)
    assert done.returncode == 0, done.stderr
    for flag in ("--sentences", "--gamma", "--shape", "--temperature", "--json"):
        assert flag in done.stdout


def test_the_demo_s_status_is_the_program_s(venv):
    done = call(ROOT / "scripts/demo.sh", "--sentences", 0, SPECDEC_VENV=venv, PYTHONPATH=ROOT)
    assert done.returncode == 2
    assert done.stderr == "specdec: --sentences is 0, but must be at least 1.\n"


def test_the_data_script_s_help_explains_it():
    done = call(ROOT / "scripts/build_data.sh", "--help", PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    for flag in ("--out", "--work", "--wide", "--quiet"):
        assert flag in done.stdout


def test_the_test_script_checks_before_it_tests(venv, log):
    tool(venv / "bin", "python", f'echo "python $*" >> {log}')
    done = call(ROOT / "scripts/test.sh", "-k", "two words", SPECDEC_VENV=venv)
    assert done.returncode == 0, done.stderr
    # What the environment needs beside the extras comes first, then style, types and tests.
    *_, check, layout, types, tests = log.read_text().splitlines()
    assert (check, layout) == ("ruff check .", "ruff format --check .")
    assert types.startswith("pyright ")
    assert tests.startswith("python -m pytest ")
    assert tests.endswith(" -k two words")


def test_a_failed_check_stops_the_test_script(venv, log):
    tool(venv / "bin", "python", f'echo "python $*" >> {log}')
    tool(venv / "bin", "ruff", "exit 3")
    assert call(ROOT / "scripts/test.sh", SPECDEC_VENV=venv).returncode == 3
    assert not log.exists() or "pytest" not in log.read_text()


def environment(venv, tools, extras="t5"):
    script = f". {ROOT}/scripts/environment.sh {extras}; command -v python"
    path = f"{tools}:{os.environ['PATH']}"
    return call("bash", "-euo", "pipefail", "-c", script, SPECDEC_VENV=venv, PATH=path)


def test_the_environment_is_made_once(tmp_path, log):
    venv, tools = tmp_path / "venv", tmp_path / "tools"
    make = f"mkdir -p {venv}/bin; cp /bin/true {venv}/bin/python"
    tool(tools, "uv", f'echo "$*" >> {log}; if [ "$1" = venv ]; then {make}; fi')
    first = environment(venv, tools)
    assert first.returncode == 0, first.stderr
    assert first.stdout.strip() == f"{venv}/bin/python"
    assert "installing specdec-jax[t5]" in first.stderr
    made, installed = log.read_text().splitlines()
    assert made.startswith("venv ")
    assert installed.startswith("pip install ")
    assert installed.endswith(f"-e {ROOT}[t5]")
    again = environment(venv, tools)
    assert (again.returncode, again.stderr) == (0, "")
    assert len(log.read_text().splitlines()) == 2
    # Other extras are installed into the same environment.
    assert environment(venv, tools, "all,test").returncode == 0
    assert log.read_text().splitlines()[2].endswith(f"-e {ROOT}[all,test]")


def test_a_failed_installation_is_tried_again(tmp_path):
    venv, tools = tmp_path / "venv", tmp_path / "tools"
    tool(tools, "uv", 'if [ "$1" = pip ]; then echo "no network" >&2; exit 7; fi')
    for _ in range(2):
        done = environment(venv, tools)
        assert done.returncode == 7
        assert "no network" in done.stderr
