"""The house: which room may know which, and who may touch a foreign library."""

import ast
import functools
import graphlib
from pathlib import Path

import pytest

import specdec_jax

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(specdec_jax.__file__).parent

# A room is a folder or a file of the package. What it may import is a room or one module of it.
ARROWS = {
    "__main__": {"cli"},
    "__init__": {"decoding", "drafts", "errors"},
    "cli": {
        *("generate", "bench", "training", "checkpoints", "theory", "corpus", "t5", "aot"),
        *("hosts", "resume", "files", "text", "errors"),
    },
    "bench": {
        # Above everything that it times.
        *("generate", "t5", "drafts", "decoding", "theory", "sampling", "checkpoints"),
        *("files", "text", "errors"),
    },
    # What `bench` would measure, for chips that are not at hand.
    "aot": {
        *("bench", "t5", "drafts", "decoding", "theory", "sampling.types"),
        *("files", "errors"),
    },
    "generate": {"pairs", "settings", "t5", "decoding", "sampling", "text", "errors"},
    "settings": {"decoding", "sampling", "text", "errors"},
    "pairs": {"t5", "drafts", "decoding", "checkpoints", "text", "errors"},
    "training": {
        *("t5", "drafts", "decoding", "sampling", "checkpoints", "corpus"),
        *("files", "text", "errors"),
    },
    "t5x_plugin": {
        *("t5", "drafts", "decoding", "checkpoints", "sampling"),
        # To start one of T5X's programs on several hosts.
        "hosts",
        # To time T5X's own loop beside ours.
        *("bench", "generate", "files", "text", "errors"),
    },
    "checkpoints": {"t5", "sampling.types", "files", "text", "errors"},
    "drafts": {"decoding.contract", "sampling", "files", "errors"},
    "t5": {"decoding.contract", "sampling.types", "errors"},
    "decoding": {"sampling", "theory", "errors"},
    "corpus": {"text", "errors"},
    "theory": {"sampling.types", "errors"},
    "sampling": {"errors"},
    "text": {"errors"},
    "hosts": {"resume", "errors"},
    "resume": {"files", "errors"},
    "files": {"errors"},
    "errors": set(),
}
FENCES = {
    "flax": {"t5", "training", "checkpoints", "t5x_plugin"},
    "t5x": {"t5x_plugin"},
    "seqio": {"t5x_plugin"},
    "optax": {"training", "checkpoints"},
    "orbax": {"training", "checkpoints"},
    "matplotlib": {"bench"},
}
LONGEST = 450


@functools.cache
def imports(path: Path, package: Path) -> set[str]:
    """Dotted names that a file imports, wherever in it; its own package is called `package`."""
    here = ("package", *path.relative_to(package).with_suffix("").parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level]) if node.level else ""
            base = ".".join(filter(None, (base, node.module)))
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            names = [str(ast.literal_eval(node.args[0]))]
        for name in names:
            parts = name.split(".")
            if parts[0] == package.name:
                parts[0] = "package"
            if parts[0] == "package":
                # What is imported from a module, and is none itself, counts as the module.
                while len(parts) > 1 and not _is_module(package.joinpath(*parts[1:])):
                    parts.pop()
            found.add(".".join(parts))
    return found


def _is_module(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def room_of(path: Path, package: Path) -> str:
    return path.relative_to(package).with_suffix("").parts[0]


def edges(package: Path) -> dict[str, set[str]]:
    """Which rooms each room imports."""
    graph: dict[str, set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        room = room_of(path, package)
        own = [name.split(".") for name in imports(path, package) if name.startswith("package")]
        graph.setdefault(room, set()).update(
            parts[1] if len(parts) > 1 else "__init__" for parts in own
        )
        graph[room].discard(room)
    return graph


def violations(package: Path) -> list[str]:
    """What breaks the arrows and fences, one sentence each."""
    broken = []
    for path in sorted(package.rglob("*.py")):
        room, name = room_of(path, package), path.relative_to(package).as_posix()
        if room not in ARROWS:
            broken.append(f"{name} is in a room without arrows")
            continue
        if path.name == "utils.py":
            broken.append(f"{name} says nothing by its name")
        if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST:
            broken.append(f"{name} is longer than {LONGEST} lines")
        for imported in sorted(imports(path, package)):
            first, _, rest = imported.partition(".")
            if first != "package":
                if room not in FENCES.get(first, {room}):
                    broken.append(f"{name} imports {first}")
            elif rest.split(".")[0] != room and not any(
                rest == allowed or rest.startswith(f"{allowed}.") for allowed in ARROWS[room]
            ):
                broken.append(f"{name} imports {rest or 'the package itself'}")
    return broken


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """A ring of rooms that import each other, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_the_arrows_hold():
    assert violations(PACKAGE) == []


def test_no_rooms_import_each_other():
    assert cycle(edges(PACKAGE)) == []
    assert (
        cycle({room: {a.split(".")[0] for a in allowed} for room, allowed in ARROWS.items()}) == []
    )


def test_the_walk_sees_the_whole_house():
    graph = edges(PACKAGE)
    assert graph.keys() >= ARROWS.keys() - {"t5x_plugin"}
    assert {"pairs", "decoding", "text"} <= graph["generate"]
    assert {"t5", "drafts", "checkpoints", "text"} <= graph["pairs"]
    assert {"generate", "bench", "checkpoints"} <= graph["cli"]


@pytest.mark.parametrize("folder", ["tests", "scripts"])
def test_files_beside_the_package_are_short_too(folder):
    long = {
        path.name: lines
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST
    }
    assert long == {}


@pytest.fixture
def house(tmp_path):
    """A package that obeys, and a way to add a file to it."""

    def add(name: str, content: str) -> Path:
        path = tmp_path / "specdec_jax" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return tmp_path / "specdec_jax"

    for name in ("__init__", "errors", "text", "generate", "t5/__init__", "t5/layers"):
        add(f"{name}.py", "")
    for name in ("sampling/__init__", "sampling/types", "decoding/__init__", "decoding/contract"):
        add(f"{name}.py", "")
    return add


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("generate.py", "from specdec_jax import text\nfrom specdec_jax.t5 import T5\nimport jax"),
        ("t5/model.py", "from specdec_jax.decoding.contract import Draft\nfrom flax import linen"),
        ("t5/model.py", "from . import layers\nfrom ..sampling.types import Array"),
        ("bench/figures.py", "import matplotlib.pyplot as plt"),
    ],
)
def test_what_is_allowed_is_not_told(house, name, content):
    assert violations(house(name, content)) == []


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("text.py", "from specdec_jax import generate", "text.py imports generate"),
        ("text.py", "from specdec_jax.generate import Pair", "text.py imports generate"),
        ("text.py", "import specdec_jax.t5.layers as l", "text.py imports t5.layers"),
        ("text.py", "def f():\n    from specdec_jax.t5 import T5", "text.py imports t5"),
        ("text.py", "lib.import_module('specdec_jax.t5')", "text.py imports t5"),
        ("text.py", "from specdec_jax import __version__", "text.py imports the package itself"),
        ("t5/model.py", "from ..decoding import Options", "t5/model.py imports decoding"),
        ("t5/model.py", "from specdec_jax.sampling import draw", "t5/model.py imports sampling"),
        ("decoding/loop.py", "import flax.linen as nn", "decoding/loop.py imports flax"),
        ("generate.py", "from optax import adam", "generate.py imports optax"),
        ("generate.py", "import orbax.checkpoint as ocp", "generate.py imports orbax"),
        ("t5/t5x.py", "def f():\n    import t5x, seqio", "t5/t5x.py imports seqio"),
        ("theory/plot.py", "import matplotlib as mpl", "theory/plot.py imports matplotlib"),
        ("t5/utils.py", "", "t5/utils.py says nothing by its name"),
        ("misc/thing.py", "", "misc/thing.py is in a room without arrows"),
        ("text.py", "\n" * (LONGEST + 1), f"text.py is longer than {LONGEST} lines"),
    ],
)  # fmt: skip
def test_a_violation_is_told(house, name, content, told):
    assert told in violations(house(name, content))


def test_a_ring_of_rooms_is_told(house):
    house("text.py", "from specdec_jax.errors import SpecdecError")
    package = house("errors.py", "def f():\n    import specdec_jax.text")
    assert set(cycle(edges(package))) == {"errors", "text"}
