"""The best gamma: its arithmetic, and what is done with it."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from tiny_pairs import tiny_pair

from specdec_jax import theory
from specdec_jax.bench import tune as module
from specdec_jax.bench.adapting import adapting
from specdec_jax.bench.compare import sources
from specdec_jax.bench.outputs import ratio
from specdec_jax.bench.timing import Spread, StepCosts
from specdec_jax.bench.tune import gamma_of, gin, render, tune
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Settings, generate, load_pair

ROOT = Path(__file__).parents[2]
WAY = Settings(max_tokens=12, batch_size=2)
LINES = ["ab", "cd", "x y z"]
GAMMAS = (1, 2, 4)


@pytest.fixture(scope="module")
def pair(tmp_path_factory, fast_compilation):
    return tiny_pair(tmp_path_factory.mktemp("tiny"))


def costs(c, v):
    def spread(seconds):
        return Spread(seconds, seconds, seconds, 3)

    return StepCosts(spread(1.0), spread(c), spread(v), c=c, v=v)


@pytest.fixture
def timed(monkeypatch):
    """Replace the clock: `timed.v` says what a call of gamma + 1 tokens costs."""

    class Clock:
        c = 0.01
        calls: list

        @staticmethod
        def v(gamma):
            return 1.0

        def __call__(self, pair, source, *, gamma, temperature, repeats):
            self.calls.append((source.shape, gamma, temperature, repeats))
            return costs(self.c, self.v(gamma))

    clock = Clock()
    clock.calls = []
    monkeypatch.setattr(module, "step_costs", clock)
    monkeypatch.setattr(
        module, "adapting", lambda *args, gamma, **kwargs: ADAPTED | {"gamma": gamma}
    )
    return clock


ADAPTED = {
    "gammas": [0, 1, 2],
    "adaptive_over_fixed": {"median": 1.25, "low": 1.1, "high": 1.3, "count": 5},
}


def tuned(pair, gammas=GAMMAS, **options):
    return tune(pair, LINES, WAY, prefix="", gammas=gammas, progress=False, **options)


def test_guesses_are_counted_by_their_position(pair, timed):
    found = tuned(pair, repeats=4)
    assert timed.calls == [((2, 32), gamma, 0.0, 4) for gamma in GAMMAS]
    # The same lines with the widest gamma, from the front door.
    told = list(generate(pair, LINES, Settings(gamma=4, max_tokens=12, batch_size=2), prefix=""))
    tested, accepted = sum(line.tested for line in told), sum(line.accepted for line in told)
    assert sum(found["tested_by_position"]) == tested
    assert found["alpha"] == pytest.approx(accepted / tested)
    by_position = found["alpha_by_position"]
    assert np.dot(by_position, found["tested_by_position"]) == pytest.approx(accepted)
    assert (found["sentences"], found["tokens"]) == (3, sum(len(line.tokens) for line in told))
    # Rounds of 1 + accepted guesses each, were none cut short.
    for gamma, row in enumerate(found["rows"], 1):
        assert row["gamma"] == gamma
        assert row["tokens"] == pytest.approx(1 + np.cumprod(by_position[:gamma]).sum())
        assert row["speedup"] == pytest.approx(row["tokens"] / (gamma * 0.01 + 1))
    assert found["gamma_if_alike"] == theory.optimal_gamma(found["alpha"], c=0.01, max_gamma=4)


def test_no_gamma_is_chosen_whose_cost_was_not_timed(pair, timed, monkeypatch):
    # alpha .8 everywhere. Between the costs of 1 and 4 the curve promises 2.952 / 1.53 at 3, more
    # than 1.8 / 1.01 and 3.362 / 1.79; the clock then says otherwise.
    passed = 100 * 0.8 ** np.arange(5)[None]
    monkeypatch.setattr(module, "_count", lambda *a: (passed[:, :-1], passed[:, 1:], passed[0]))
    timed.v = lambda gamma: {1: 1.0, 3: 9.0, 4: 1.75}[gamma]
    found = tuned(pair, gammas=(1, 4))
    assert [gamma for _, gamma, _, _ in timed.calls] == [1, 4, 3]
    assert found["v"] == {"2": 1.0, "4": 9.0, "5": 1.75}
    assert found["gamma"] == 4
    assert found["predicted_speedup"] == pytest.approx(3.3616 / 1.79)
    timed.v = lambda gamma: {1: 1.0, 3: 1.5, 4: 1.75}[gamma]
    assert tuned(pair, gammas=(1, 4))["gamma"] == 3


def test_where_nothing_pays_the_answer_is_no(pair, timed):
    timed.v = lambda gamma: 5.0 + gamma
    found = tuned(pair)
    assert (found["gamma"], found["speculate"], found["predicted_speedup"]) == (0, False, 1.0)
    assert "Do not speculate" in render(found)
    assert "<- best" not in render(found)
    assert "GAMMA = 0" in gin(found)


def test_what_is_printed_marks_the_best(pair, timed):
    found = tuned(pair, gammas=(1, 4))
    told = render(found)
    (best,) = [line for line in told.splitlines() if line.endswith("<- best")]
    assert best.split()[0] == str(found["gamma"])
    assert f"Speculate, with gamma {found['gamma']}: {found['predicted_speedup']:.2f}x" in told
    assert told.endswith(
        f"Choosing among 0, 1, 2 before each round (--adaptive) is 1.25 times as fast as always "
        f"{found['gamma']} (quartiles 1.10 to 1.30 of 5)."
    )
    assert told.count("~") == 1 + sum(not row["timed"] for row in found["rows"])


def test_the_gin_fragment_sets_macros_of_the_runs():
    record = {
        "gamma": 7,
        "speculate": True,
        "predicted_speedup": 2.5,
        "rule": "block",
        "top_k": 0,
        "temperature": 0.5,
        "top_p": 1.0,
        "batch_size": 1,
        "target_shape": "D128",
        "draft_shape": "D64",
    }
    import gin as config

    names = {"GAMMA": 7, "RULE": "block", "TEMPERATURE": 0.5, "TOPK": 0, "TOPP": 0.0}
    config.clear_config()
    config.parse_config(gin(record))
    assert {name: config.query_parameter(f"%{name}") for name in names} == names
    config.clear_config()
    for run in ("infer_speculative", "eval_speculative"):
        text = (ROOT / f"gin_configs/runs/{run}.gin").read_text("utf-8")
        for name in names:
            assert re.search(rf"^{name} = ", text, re.M)
            assert f"= %{name}\n" in text
    assert "TOPP = 0.9\n" in gin(record | {"top_p": 0.9})


@pytest.mark.parametrize("record", [{}, [], {"gamma": 3}, {"gamma": -1, "alpha_by_position": []}])
def test_other_records_are_refused(record):
    with pytest.raises(SpecdecError, match=r"here is no record of `specdec tune`"):
        gamma_of(record, "here")
    assert gamma_of({"gamma": 3, "alpha_by_position": [0.5]}, "here") == 3


def test_what_cannot_be_tuned_is_told(pair, timed, tmp_path):
    with pytest.raises(SpecdecError, match=r"gammas to be timed are \[0, 2\]"):
        tuned(pair, gammas=(0, 2))
    timed.v = lambda gamma: -0.1
    with pytest.raises(SpecdecError, match="noise: use more repeats"):
        tuned(pair)
    tiny_pair(tmp_path)
    with pytest.raises(SpecdecError, match="needs a draft"):
        tuned(load_pair(str(tmp_path / "target"), None))


def test_errors_are_those_of_lines():
    # One line of 3 of 4, one of 1 of 4, one without guesses: alpha 1/2, residuals 1 and -1.
    _, error = ratio(np.array([3.0, 1.0, 0.0]), np.array([4.0, 4.0, 0.0]))
    assert error == pytest.approx(np.sqrt(2 * 2) / 8)
    assert ratio(np.array([3.0]), np.array([4.0]))[1] is None


@pytest.mark.parametrize("gamma", [3, 0])
def test_adapting_is_measured_beside_the_best_fixed_gamma(pair, gamma):
    encoded = sources(pair, LINES, "", 2)
    costs = {
        "alpha": 0.9,
        "c": 0.01,
        "v": {2: 1.0, 4: 1.2, 8: 1.4},
        "lines": len(LINES),
        "repeats": 2,
    }
    found = adapting(pair, encoded, WAY, gamma=gamma, progress=False, **costs)
    ways = {"plain", "adaptive"} | ({"fixed"} if gamma else set())
    assert found["gammas"] == ([0, 1, 3] if gamma else [0, 1, 3, 7])
    assert found["seconds"].keys() == found["tokens_per_run"].keys() == ways
    assert min(found["seconds"].values()) > 0
    assert found["tokens_per_run"]["plain"] == 1.0
    assert found["tokens_per_run"]["adaptive"] > 1.0
    assert found["adaptive_over_fixed"]["count"] == 2
    for name in ways - {"plain", "adaptive"}:
        told = generate(pair, LINES, dataclasses.replace(WAY, gamma=gamma), prefix="")
        runs = [(len(line.tokens), line.target_runs) for line in told]
        tokens, runs = np.sum(runs, 0)
        assert found["tokens_per_run"][name] == pytest.approx(tokens / runs)
