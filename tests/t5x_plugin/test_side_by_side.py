"""T5X's own loop and ours, timed in turns: the record, and that all three say the same."""

import json
import sys

import pytest

from specdec_jax.t5x_plugin import side_by_side


@pytest.mark.slow
def test_three_ways_of_decoding_agree(monkeypatch, tmp_path, capsys):
    path = tmp_path / "record.json"
    flags = ["--shape", "own", "--lines", "3", "--batch_size", "2", "--gamma", "2"]
    flags += ["--max_tokens", "8", "--repeats", "1", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["side_by_side", *flags])
    assert side_by_side.main() == 0
    record = json.loads(path.read_text("utf-8"))
    assert (record["sentences"], record["identical"], record["batch"]) == (3, 3, 2)
    assert 3 < record["tokens"] <= 3 * 8
    seconds = record["seconds"]
    assert set(seconds) == {"t5x", "plain", "speculative"}
    assert record["plain_over_t5x"] == pytest.approx(seconds["t5x"] / seconds["plain"])
    assert record["over_t5x_by_batch"]["t5x"]["median"] == 1.0
    assert "identical                3/3" in capsys.readouterr().out


def test_a_record_that_cannot_be_written_is_told_first(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(side_by_side, "measure", lambda *a, **k: pytest.fail("measured"))
    monkeypatch.setattr(sys, "argv", ["side_by_side", "--json", str(tmp_path / "no" / "a.json")])
    assert side_by_side.main() == 2
    assert "error: " in capsys.readouterr().err
