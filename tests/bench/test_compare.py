import dataclasses
import json

import numpy as np
import pytest
from tiny_pairs import tiny_pair

from specdec_jax.bench import compare as module
from specdec_jax.bench.compare import LineResult, compare, costs_for, sources, summarise
from specdec_jax.bench.timing import Spread, StepCosts
from specdec_jax.decoding import Finish
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Line, Settings, generate

SETTINGS = Settings(gamma=2, max_tokens=12)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return tiny_pair(tmp_path_factory.mktemp("tiny"))


def line(tokens, runs, tested=0, accepted=0):
    return Line(
        source="s",
        text="t",
        tokens=tokens,
        scores=[0.0] * len(tokens),
        finish=Finish.END_TOKEN,
        target_runs=runs,
        drafted=2 * runs,
        tested=tested,
        accepted=accepted,
        rounds=None,
    )


def spread(median):
    return Spread(median, median, median, 1)


def test_a_summary_is_the_arithmetic_of_its_lines(pair):
    results = [
        LineResult(
            plain=[line([5, 6, 7, 8, 1], 5), line([5, 1], 2)],
            speculative=[line([5, 6, 7, 8, 1], 2, 4, 3), line([5, 9], 1, 2, 1)],
            # Medians 10 and 4; the slow moments are left out.
            seconds_plain=[10.0, 99.0, 9.0],
            seconds_speculative=[4.0, 3.0, 88.0],
            seconds_target_encoder=[0.5, 0.4, 77.0],
            seconds_draft_encoder=[0.2, 0.3, 0.1],
            tested=[3, 3],
            accepted=[3, 1],
        ),
        LineResult(
            plain=[line([5, 1], 2)],
            speculative=[line([5, 1], 1, 2, 2)],
            seconds_plain=[2.0],
            seconds_speculative=[1.0],
            seconds_target_encoder=[0.5],
            seconds_draft_encoder=[0.3],
            tested=[1, 1],
            accepted=[1, 1],
        ),
    ]
    costs = StepCosts(spread(0.1), spread(0.01), spread(0.15), c=0.1, v=1.5)
    found = summarise(pair, results, dataclasses.replace(SETTINGS, batch_size=2), costs)
    assert (found["sentences"], found["tokens"], found["identical"]) == (3, 9, 2)
    assert found["alpha"] == 6 / 8
    assert found["tokens_per_run"] == 9 / 4
    assert (found["seconds_plain"], found["seconds_speculative"]) == (12.0, 5.0)
    assert found["speedup"] == 2.4
    # Without the encoders: (12 - 1) seconds for (5 - 1 - 0.5).
    assert found["seconds_encoders"] == {"target": 1.0, "draft": 0.5}
    assert found["speedup_decoding"] == pytest.approx(11 / 3.5)
    assert found["speedup_by_batch"] == {"median": 2.25, "low": 2.125, "high": 2.375, "count": 2}
    assert found["alpha_by_position"] == [4 / 4, 2 / 4]
    # The second result has one repeat: of the first, that of seconds 10 and 4 counts.
    assert found["speedup_by_repeat"]["median"] == pytest.approx(12 / 5)
    assert found["speedup_by_repeat"]["count"] == 1
    # A batch takes its slowest row's rounds: 5 + 2 plain steps for 2 + 1 rounds of 0.2 + 1.5 steps.
    assert found["predicted_speedup"] == pytest.approx((7 / 3) / (2 * 0.1 + 1.5))
    assert (found["gamma"], found["batch"], found["c"], found["v"]) == (2, 2, 0.1, 1.5)
    assert (found["temperature"], found["rule"], found["lossy"]) == (0.0, "rejection", False)
    assert found["step_seconds"]["draft_step"]["median"] == 0.01
    assert found["target_shape"] == "D16 H2x8 F32 1+1 V272"
    assert json.loads(json.dumps(found)) == found


def test_where_nothing_was_tested_there_is_no_alpha(pair):
    results = [LineResult([line([1], 1)], [line([1], 1)], [1.0], [1.0], [0.1], [0.1], [0], [0])]
    costs = StepCosts(spread(1.0), spread(1.0), spread(1.0), c=1.0, v=1.0)
    found = summarise(pair, results, dataclasses.replace(SETTINGS, lenience=0.5), costs)
    assert found["alpha"] is None
    assert found["lossy"] is True


@pytest.mark.parametrize("part", ["target_step", "draft_step", "verify"])
def test_costs_that_are_noise_predict_nothing(pair, part):
    results = [LineResult([line([1], 1)], [line([1], 1)], [1.0], [1.0], [0.1], [0.1], [0], [0])]
    costs = StepCosts(spread(1.0), spread(1.0), spread(1.0), c=1.0, v=1.0)
    found = summarise(pair, results, SETTINGS, costs)
    assert found["predicted_speedup"] == pytest.approx(1 / 3)
    costs = dataclasses.replace(costs, **{part: spread(-0.1)})
    assert summarise(pair, results, SETTINGS, costs)["predicted_speedup"] is None


def test_a_place_that_was_never_tested_has_no_alpha(pair):
    results = [
        LineResult([line([1], 1)], [line([1], 1)], [1.0], [1.0], [0.1], [0.1], [2, 0], [1, 0])
    ]
    costs = StepCosts(spread(1.0), spread(1.0), spread(1.0), c=1.0, v=1.0)
    assert summarise(pair, results, SETTINGS, costs)["alpha_by_position"] == [0.5, None]


@pytest.mark.parametrize("batch", [1, 2])
def test_both_ways_decode_what_generate_decodes(pair, batch):
    lines, way = ["ab", "cd", "x y z"], dataclasses.replace(SETTINGS, batch_size=batch)
    way = dataclasses.replace(way, temperature=1.0, record=True)
    found = list(compare(pair, lines, way, prefix="", repeats=2, progress=False))
    assert [len(result.plain) for result in found] == ([1, 1, 1] if batch == 1 else [2, 1])
    for result in found:
        assert sum(result.tested) == sum(line.tested for line in result.speculative)
        assert sum(result.accepted) == sum(line.accepted for line in result.speculative)
        assert len(result.tested) == len(result.accepted) == 2
        assert len(result.seconds_plain) == len(result.seconds_speculative) == 2
        assert min(result.seconds_plain + result.seconds_speculative) > 0
    for name, gamma in (("plain", 0), ("speculative", 2)):
        told = [line for result in found for line in getattr(result, name)]
        wanted = generate(pair, lines, dataclasses.replace(way, gamma=gamma), prefix="")
        assert told == list(wanted)


def test_encoders_that_are_noise_leave_no_speedup_of_decoding(pair):
    costs = StepCosts(spread(1.0), spread(1.0), spread(1.0), c=1.0, v=1.0)
    for encoders in ([1.5], [0.1]), ([0.5], [0.6]):
        results = [LineResult([line([1], 1)], [line([1], 1)], [1.0], [1.0], *encoders, [0], [0])]
        assert summarise(pair, results, SETTINGS, costs)["speedup_decoding"] is None


def test_every_batch_has_its_own_width(pair):
    # ByT5: a byte is a token, and the end is one more.
    encoded = sources(pair, ["a" * 28, "b", "a" * 29], "ppp", 2)
    assert [batch.shape for batch in encoded] == [(2, 32), (2, 64)]
    assert encoded[0][1, :6].tolist() == [115, 115, 115, 101, 1, 0]
    np.testing.assert_array_equal(encoded[1][1, :32], encoded[0][0])
    with pytest.raises(SpecdecError, match="no lines to decode"):
        sources(pair, [], "ppp", 1)


def test_costs_are_those_of_the_first_batch(pair, monkeypatch):
    seen = {}

    def fake(pair, encoded, **kwargs):
        seen.update(encoded=encoded, **kwargs)
        return StepCosts(spread(1.0), spread(1.0), spread(1.0), c=1.0, v=1.0)

    monkeypatch.setattr(module, "step_costs", fake)
    way = dataclasses.replace(SETTINGS, batch_size=3, temperature=0.5)
    costs_for(pair, ["ab", "cd"], way, prefix="", repeats=7)
    (rows,) = sources(pair, ["ab", "cd", "ab"], "", 3)
    np.testing.assert_array_equal(seen.pop("encoded"), rows)
    assert seen == {"gamma": 2, "temperature": 0.5, "repeats": 7}
