import json
import sys
from pathlib import Path

import pytest

from specdec_jax.bench import paper
from specdec_jax.errors import SpecdecError

SHIPPED = Path(__file__).parents[2] / "results" / "paper"
TABLES = ("table1.json", "table4.json", "table5.json", "figure3.json")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder that did not exist, written without traces, and what `write` returned."""
    folder = tmp_path_factory.mktemp("paper") / "new" / "folder"
    return folder, paper.write(folder)


def test_without_traces_everything_but_their_figures_is_written(written):
    folder, paths = written
    names = sorted(path.name for path in paths)
    figures = [f"figure{n}.{suffix}" for n in (2, 3, 4) for suffix in ("png", "svg")]
    assert names == sorted([*TABLES, *figures, "README.md"])
    assert sorted(path.name for path in folder.iterdir()) == names
    rows = json.loads((folder / "table1.json").read_text())
    assert {"alpha", "gamma", "operations", "speed"} <= rows[0].keys()
    assert round(rows[3]["speed"], 2) == 3.69


def test_with_traces_figures_1_and_5_join(tmp_path, trace, plain_trace):
    written = {path.name for path in paper.write(tmp_path, [plain_trace, trace])}
    assert {"figure1.svg", "figure1.png", "figure5.svg", "figure5.png"} <= written
    page = (tmp_path / "README.md").read_text()
    assert "Target large, draft small.\nFigure 1 shows 8 tokens in 4 runs of the target." in page


def test_nothing_is_written_where_a_trace_is_refused(tmp_path, trace):
    del trace["rounds"]
    with pytest.raises(SpecdecError, match="the trace lacks rounds"):
        paper.write(tmp_path / "out", trace)
    assert not (tmp_path / "out").exists()


def test_the_page_links_only_to_files_that_are_written(written):
    folder, _ = written
    page = (folder / "README.md").read_text()
    linked = [part.split(")")[0] for part in page.split("](")[1:]]
    assert linked
    assert all((folder / name).exists() for name in linked)
    assert "{" not in page


def test_the_page_explains_each_difference():
    page = paper.readme()
    assert page.count("EXP in the range") == 3
    assert page.count("EMP above E[tokens]") == 2
    assert page.count("EMP above 1/(1 - alpha)") == 2
    assert page.count("above the range") == 3
    assert "out of the range" not in page


@pytest.mark.parametrize("name", TABLES)
def test_the_shipped_tables_are_the_ones_that_the_code_computes(written, name):
    folder, _ = written
    shipped = json.loads((SHIPPED / name).read_text())
    computed = json.loads((folder / name).read_text())
    assert len(shipped) == len(computed)
    for theirs, ours in zip(shipped, computed, strict=True):
        assert theirs.keys() == ours.keys()
        for key, value in ours.items():
            # Another machine's logarithm may differ in the last bit.
            close = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            assert theirs[key] == close, key


def test_the_shipped_page_is_the_one_that_the_code_writes():
    assert (SHIPPED / "README.md").read_text().startswith(paper.readme())


def test_a_missing_matplotlib_is_told_with_its_remedy(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("specdec_jax.bench.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delattr("specdec_jax.bench.figures", raising=False)
    monkeypatch.delattr("specdec_jax.bench.trace_figures", raising=False)
    with pytest.raises(SpecdecError, match=r"pip install 'specdec-jax\[figures\]'"):
        paper.write(tmp_path)
