from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_pairs import tiny_pair

from specdec_jax.bench import timing
from specdec_jax.bench.timing import LONG, SHORT, Spread, in_turns, step_costs
from specdec_jax.drafts import ModelDraft
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Pair, load_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return tiny_pair(tmp_path_factory.mktemp("tiny"))


def test_a_spread_is_the_median_and_its_quartiles():
    assert Spread.of([5.0, 1.0, 4.0, 2.0, 3.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 1)


def test_calls_are_timed_in_turns_and_warm_up_is_not_counted(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    order = []

    def call(name, *seconds):
        durations = iter(seconds)

        def run():
            order.append(name)
            passed = next(durations)
            clock.now += passed
            return jnp.asarray(passed)

        return run

    found = in_turns({"a": call("a", 100, 1, 2), "b": call("b", 100, 3, 4)}, repeats=2)
    assert found.seconds == {"a": [1, 2], "b": [3, 4]}
    assert found.last == {"a": 2, "b": 4}
    assert order == ["a", "b"] * 3
    found = in_turns({"a": call("a", 5)}, repeats=1, warmup=0)
    assert found.seconds == {"a": [5]}


def test_the_clock_stops_when_the_arrays_are_there(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    class Pending:
        def block_until_ready(self):
            clock.now += 2.0
            return self

    assert in_turns({"a": Pending}, repeats=2, warmup=0).seconds == {"a": [2.0, 2.0]}


def test_a_round_s_parts_are_the_slopes_between_two_lengths(pair, monkeypatch):
    """A draft that is the target has every guess accepted: n tokens are n / (gamma + 1) rounds."""
    own = Pair(pair.target, ModelDraft(pair.target), pair.vocabulary, "", "")
    source = np.full((1, 16), 5, np.int32)
    target, guess, verify, encoder = 4.0, 1.0, 6.0, 50.0

    def fake(calls, *, repeats):
        seconds = {}
        for name, call in calls.items():
            kind, limit = name.split()
            (runs,) = call().counters.target_runs.tolist()
            assert runs == int(limit) // (3 if kind == "round" else 1) + (int(limit) % 3 > 0) * (
                kind == "round"
            )
            step = {"target": target, "draft": guess, "round": verify + 2 * guess}[kind]
            seconds[name] = [encoder + runs * step * scale for scale in (1.0, 1.5, 1.0)]
        assert repeats == 3
        return timing.Turns(seconds, {})

    monkeypatch.setattr(timing, "in_turns", fake)
    costs = step_costs(own, source, gamma=2, repeats=3)
    assert costs.target_step.median == pytest.approx(4.0)
    assert costs.draft_step.median == pytest.approx(1.0)
    assert costs.verify.median == pytest.approx(6.0)
    assert (costs.c, costs.v) == (pytest.approx(0.25), pytest.approx(1.5))
    # Quartiles of (1, 1.5, 1) times a step.
    assert (costs.target_step.low, costs.target_step.high) == pytest.approx((4.0, 5.0))
    assert costs.target_step.count == 3


def test_step_costs_of_a_real_pair_count_every_run(pair, monkeypatch):
    seen = {}
    original = timing.in_turns

    def watched(calls, **kwargs):
        for name, call in calls.items():
            seen[name] = call().counters.target_runs.tolist()
        return original(calls, **kwargs)

    monkeypatch.setattr(timing, "in_turns", watched)
    costs = step_costs(pair, np.full((1, 16), 5, np.int32), gamma=2, repeats=2)
    # No token ends a row: a plain run is a token. A round is one to three.
    assert seen["target 36"] == seen["draft 36"] == [LONG]
    assert seen["target 4"] == seen["draft 4"] == [SHORT]
    assert LONG / 3 <= seen["round 36"][0] <= LONG
    numbers = [costs.c, costs.v, *(s.median for s in (costs.target_step, costs.draft_step))]
    assert np.isfinite(numbers).all()
    assert costs.verify.count == 2


def test_step_costs_need_a_draft(tmp_path):
    pair = tiny_pair(tmp_path)
    alone = load_pair(str(tmp_path / "target"), None)
    assert pair.draft is not None
    with pytest.raises(SpecdecError, match="need a draft"):
        step_costs(alone, np.full((1, 16), 5, np.int32), gamma=2)
