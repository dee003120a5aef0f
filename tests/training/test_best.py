"""The closest of several outputs to the reference, and where the outputs come from."""

import pytest

from specdec_jax.t5 import T5Config, t5
from specdec_jax.training import best, distil

WORDS = ["", "", "a", "small", "game", "tool", "library", "ein", "kleines", "Spiel"]
REFERENCE = [2, 3, 4]
SOURCE, OTHER, UNANSWERED = [5, 1], [6, 1], [4, 1]
EXAMPLES = [(SOURCE, REFERENCE), (UNANSWERED, REFERENCE), (OTHER, [7, 8, 9])]
TARGET = t5({}, T5Config(vocab_size=10, emb_dim=4, num_heads=1, head_dim=4, mlp_dim=4))
"""Never asked: its outputs are made up."""


def decode(ids):
    return " ".join(WORDS[i] for i in ids)


def test_the_closest_wins_and_of_equals_the_earlier():
    greedy = [(SOURCE, [2, 3, 5]), (OTHER, [7, 8, 9])]
    drawn = [(OTHER, [2]), (SOURCE, [2, 3, 4, 1])]
    # As close as the one before: the end token has no text.
    again = [(SOURCE, [2, 3, 4])]
    found = best.closest(EXAMPLES, [greedy, drawn, again], decode, best.rouge_l())
    assert found == [(SOURCE, [2, 3, 4, 1]), (OTHER, [7, 8, 9])]


def test_a_loop_loses():
    candidates = [[(SOURCE, [2, 3, *[4] * 6])], [(SOURCE, [2, 3, 5])]]
    found = best.closest(EXAMPLES[:1], candidates, decode, best.rouge_l())
    assert found == [(SOURCE, [2, 3, 5])]


def test_rouge_l_of_one_output():
    # 2 of 2 words and 2 of 3 in common: 2 * 1 * 2/3 / (5/3).
    assert best.rouge_l()("a game", "a small game") == pytest.approx(0.8)


def test_own_outputs_are_one_greedy_and_the_draws_each_with_a_seed(monkeypatch):
    asked = []

    def outputs(target, examples, *, temperature, seed, shapes, progress):
        asked.append((temperature, seed))
        return [(source, [2, 3, 4] if len(asked) == 3 else [5]) for source, _ in examples]

    monkeypatch.setattr(distil, "target_outputs", outputs)
    found = best.own_best(TARGET, EXAMPLES[:1], decode, draws=2, seed=7)
    assert found == [(SOURCE, [2, 3, 4])]
    assert [temperature for temperature, _ in asked] == [0.0, 0.6, 0.6]
    assert len({seed for _, seed in asked}) == 3
