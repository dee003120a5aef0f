import dataclasses

import pytest
from tiny_pairs import tiny_pair

from specdec_jax.bench import trace as module
from specdec_jax.bench import trace_figures
from specdec_jax.bench.timing import Spread, StepCosts
from specdec_jax.bench.trace import render
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Settings, generate, load_pair

SETTINGS = Settings(gamma=2, max_tokens=12)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return tiny_pair(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def costs(monkeypatch):
    """Step costs made up, and the gammas that they were asked for."""
    asked = []

    def fake(pair, source, *, gamma, repeats):
        asked.append(gamma)
        target, draft, verify = (Spread(m, m, m, 1) for m in (0.05, 0.004, 0.06))
        return StepCosts(target, draft, verify, c=0.08, v=1.2)

    monkeypatch.setattr(module, "step_costs", fake)
    monkeypatch.setattr(module, "GAMMAS", (2, 0))
    return asked


def test_a_trace_is_a_record_of_what_generate_did(pair, costs):
    records = module.trace(pair, "ab", SETTINGS)
    # The gamma asked for comes first and once; plain decoding has no verification to be timed.
    assert [record["gamma"] for record in records] == [2, 0]
    assert costs == [2, 1]
    for record in records:
        way = dataclasses.replace(SETTINGS, gamma=record["gamma"], record=True)
        (line,) = generate(pair, ["ab"], way)
        assert (record["source"], record["text"]) == ("ab", line.text)
        assert record["target"] == pair.target_shape
        assert record["draft"] == pair.draft_shape
        told = []
        for one in record["rounds"]:
            assert len(one["drafted"]) == record["gamma"]
            told += one["drafted"][: one["accepted"]] + [one["extra"]] * bool(one["extra"])
        assert told == [pair.vocabulary.piece(token) for token in line.tokens]
        seconds = record["seconds"]
        assert (seconds["target_step"], seconds["draft_step"], seconds["verify"]) == (
            *(0.05, 0.004, 0.06),
        )
        assert seconds["target_encoder"] > 0
        assert seconds["draft_encoder"] > 0
    # Greedy: both ways say the same.
    assert records[0]["text"] == records[1]["text"]


def test_the_figures_take_the_records(pair, costs):
    records = module.trace(pair, "ab", SETTINGS)
    assert trace_figures.call_figure(records) is not None
    assert trace_figures.token_figure(records[0]) is not None


def test_a_trace_needs_a_draft(tmp_path):
    tiny_pair(tmp_path)
    with pytest.raises(SpecdecError, match="A trace needs a draft: name one"):
        module.trace(load_pair(str(tmp_path / "target"), None), "ab", SETTINGS)


def test_rounds_are_drawn_one_a_line(trace):
    assert render(trace, colour=False).splitlines() == [
        "source  The cat sits on the mat.",
        "output  Die Katze sitzt auf der Matte.",
        "",
        "   1  1 accepted  ▁Die -▁Hund +▁Katze",
        "   2  2 accepted  ▁sitz t +▁auf",
        "   3  0 accepted  -▁dem +▁der",
        "   4  2 accepted  ▁Matte .",
    ]


def test_colours_tell_the_parts_of_a_round(trace):
    assert render(trace, colour=True).splitlines()[3] == (
        "   1  1 accepted  \033[32m▁Die\033[0m \033[31;9m▁Hund\033[0m \033[1;34m▁Katze\033[0m"
    )
