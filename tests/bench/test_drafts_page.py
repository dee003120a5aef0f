"""A page joined from records."""

import json

import pytest

from specdec_jax.bench import drafts_page
from specdec_jax.errors import SpecdecError


def row(draft, temperature, lenience=1.0, alpha=0.5):
    names = ("alpha", "accepted_rate", "total_variation")
    return {
        "task": "ende",
        "draft": draft,
        "temperature": temperature,
        "lenience": lenience,
        "rule": "argmax" if temperature == 0 else "rejection",
        "lossy": lenience < 1,
        **dict.fromkeys(names, alpha),
        **dict.fromkeys([f"{name}_se" for name in names], 0.01),
        "tokens": 10_000,
        "lines": 300,
    }


def put(folder, name, record):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def test_records_become_a_page_and_rows(tmp_path):
    rows = [row("d", t, lenience) for t in (0.0, 1.0) for lenience in (1.0, 0.5)]
    put(tmp_path, "drafts/ende/alphas.json", {"rows": rows})
    trained = [row("reverse_kl", t, alpha=0.625) for t in (0.0, 1.0)]
    put(tmp_path, "drafts/ende_variants/alphas.json", {"rows": trained})
    adapting = {
        "gamma": 7,
        "gammas": [0, 1, 3, 7],
        "seconds": {"plain": 3.0, "fixed": 1.0, "adaptive": 2.0},
        "tokens_per_run": {"plain": 1.0, "fixed": 4.0, "adaptive": 3.5},
        "adaptive_over_fixed": {"median": 0.5, "low": 0.4, "high": 0.6, "count": 5},
    }
    tuned = {"task": "ende", "draft": "d", "temperature": 0.0, "adapting": adapting}
    put(tmp_path, "drafts/ende_tuned/tuned.json", tuned)
    case = {"task": "ende", "draft": "d", "temperature": 1.0, "gamma": 7, "sentences": 24}
    put(tmp_path, "drafts/b/x.json", {**case, "tokens_per_run": 2.0, "speedup": 1.5})
    put(tmp_path, "drafts/b/x_block.json", {**case, "tokens_per_run": 2.1, "speedup": 1.6})
    put(tmp_path, "drafts/b/alone_block.json", {})
    page = drafts_page.write(tmp_path).read_text()
    assert "| ende | d | 0 | argmax | 0.500 ± 0.010 | 0.500 ± 0.010 (0.500) |" in page
    assert "| ende | reverse_kl | 0.625 ± 0.010 |" in page
    assert "| ende | d | 0 | 7 | 0 1 3 7 | 4.00 | 3.50 | 1.50 | 0.500 (0.400 to 0.600) |" in page
    assert "| ende | d | 1 | 7 | 24 | 2.000 | 2.100 | 1.050 |" in page
    found = json.loads((tmp_path / "drafts.json").read_text())
    assert len(found) == 6
    assert all(tuple(each) == drafts_page.COLUMNS for each in found)


def test_without_records_there_is_no_page(tmp_path):
    with pytest.raises(SpecdecError, match="There are no records"):
        drafts_page.write(tmp_path)
