"""Scores of outputs, and limits that do not know the reference."""

import pytest

from specdec_jax.training.scores import limit, score


def test_a_perfect_translation_and_a_wrong_one():
    references = ["das Paket enthält die Dokumentation", "eine grafische Oberfläche für Musik"]
    assert score("descriptions_ende", references, references) == {"bleu": 100.0, "chrf": 100.0}
    worse = score("descriptions_ende", references[::-1], references)
    assert worse["bleu"] < 5
    assert 0 < worse["chrf"] < 60


def test_rouge_is_the_mean_f_measure_of_longest_common_subsequences():
    references = ["tools for music", "a game"]
    # 2 of 2 and 2 of 3 in common: F = 2 * 1 * 2/3 / (5/3) = 0.8; nothing: 0. Stemming joins the s.
    assert score("debian_synopsis", ["tool music", "library"], references) == {"rouge_l": 40.0}


@pytest.mark.parametrize(("length", "expected"), [(1, 18), (10, 36), (500, 192)])
def test_limit(length, expected):
    assert limit([7] * length, 192) == expected
