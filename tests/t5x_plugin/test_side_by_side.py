"""T5X's own loop and ours, timed in turns: the record, and that all three say the same."""

import json
import sys

import numpy as np
import pytest

from specdec_jax.bench import timing
from specdec_jax.generate import Settings, load_pair
from specdec_jax.t5x_plugin import side_by_side


@pytest.mark.slow
def test_three_ways_of_decoding_agree(monkeypatch, tmp_path, capsys):
    path = tmp_path / "record.json"
    flags = ["--shape", "own", "--lines", "3", "--batch_size", "2", "--gamma", "2"]
    flags += ["--max_tokens", "8", "--repeats", "1", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["side_by_side", *flags])
    assert side_by_side.main() == 0
    record = json.loads(path.read_text("utf-8"))
    assert (record["sentences"], record["batch"], record["task"]) == (3, 2, "ende")
    ways = ("t5x", "plain", "speculative")
    assert record["identical"] == dict.fromkeys(ways, 3)
    assert len(set(record["tokens"].values())) == 1
    assert 3 < record["tokens"]["t5x"] <= 3 * 8
    seconds = record["seconds"]
    for way in ways:
        assert record["over_t5x"][way] == pytest.approx(seconds["t5x"] / seconds[way])
    assert record["over_t5x_by_batch"]["t5x"]["median"] == 1.0
    assert capsys.readouterr().out.count("3/3") == 3


def test_samples_are_held_per_token_and_need_not_agree(monkeypatch):
    """Another way that writes half the tokens in the same time is half as fast."""
    pair = load_pair()
    settings = Settings(gamma=2, max_tokens=6, temperature=1.0)

    def other(count):
        return lambda batch: np.full((len(batch), count), 7)

    def in_turns(calls, *, repeats, warmup):
        assert set(calls) == {"t5x", "half", "plain", "speculative"}
        return timing.Turns(
            {name: [2.0] for name in calls}, {name: call() for name, call in calls.items()}
        )

    monkeypatch.setattr(side_by_side, "in_turns", in_turns)
    found = side_by_side.measure(
        pair,
        {"t5x": other(6), "half": other(3)},
        ["a game"],
        settings,
        prefix="",
        repeats=1,
        progress=False,
    )
    assert found["over_t5x"]["half"] == pytest.approx(0.5)
    assert found["identical"]["half"] == 0


def test_a_record_that_cannot_be_written_is_told_first(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(side_by_side, "measure", lambda *a, **k: pytest.fail("measured"))
    monkeypatch.setattr(sys, "argv", ["side_by_side", "--json", str(tmp_path / "no" / "a.json")])
    assert side_by_side.main() == 2
    assert "error: " in capsys.readouterr().err
