"""Counting n-grams: hand numbers, and the counts of a dictionary."""

import collections

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.errors import SpecdecError
from specdec_jax.training.ngrams import count_ngrams

TEXTS = [[2, 3, 2, 3, 1], [2, 4, 1], [3, 1]]


def after(draft, *past):
    return np.asarray(draft.probabilities(jnp.array([past], jnp.int32)))[0]


def test_a_unigram_has_one_added_to_each_count():
    draft = count_ngrams(TEXTS, 6, order=1)
    assert draft.levels == ()
    np.testing.assert_allclose(after(draft), np.array([1, 4, 4, 4, 2, 1]) / 16, rtol=1e-6)


def test_a_bigram_leaves_witten_and_bell_s_share_to_the_unigram():
    draft = count_ngrams(TEXTS, 6, order=2)
    unigram = np.array([1, 4, 4, 4, 2, 1]) / 16
    # After 2: 3 twice and 4 once, so 2 types of 3 + 2 parts.
    expected = np.array([0, 0, 0, 2, 1, 0]) / 5 + 2 / 5 * unigram
    np.testing.assert_allclose(after(draft, 2), expected, rtol=1e-6)
    # At the start, behind the start token 0.
    expected = np.array([0, 0, 2, 1, 0, 0]) / 5 + 2 / 5 * unigram
    np.testing.assert_allclose(after(draft, 0), expected, rtol=1e-6)
    # Nothing follows 5 anywhere.
    np.testing.assert_allclose(after(draft, 5), unigram, rtol=1e-6)


def test_what_is_not_kept_is_left_to_the_shorter_context():
    draft = count_ngrams(TEXTS, 6, order=2, keep=1)
    unigram = np.array([1, 4, 4, 4, 2, 1]) / 16
    expected = np.array([0, 0, 0, 2, 0, 0]) / 5 + 3 / 5 * unigram
    np.testing.assert_allclose(after(draft, 2), expected, rtol=1e-6)


def test_a_trigram_is_the_dictionary_s():
    rng = np.random.default_rng(0)
    V = 7
    texts = [[*rng.integers(2, V, rng.integers(0, 12)).tolist(), 1] for _ in range(200)]
    counts = [collections.defaultdict(collections.Counter) for _ in range(3)]
    for text in texts:
        whole = [0, 0, *text]
        for i in range(2, len(whole)):
            for width in range(3):
                counts[width][tuple(whole[i - width : i])][whole[i]] += 1

    def probability(past, token):
        if not past:
            return (counts[0][()][token] + 1) / (counts[0][()].total() + V)
        here = counts[len(past)].get(past)
        shorter = probability(past[1:], token)
        if here is None:
            return shorter
        return (here[token] + len(here) * shorter) / (here.total() + len(here))

    draft = count_ngrams(texts, V, order=3, keep=V)
    for past in [(0, 0), (0, 2), (2, 3), (6, 6), (5, 4), (1, 1), (0, 1)]:
        expected = [probability(past, token) for token in range(V)]
        np.testing.assert_allclose(after(draft, *past), expected, rtol=1e-5)
        assert sum(expected) == pytest.approx(1)


@pytest.mark.parametrize(
    ("texts", "size", "options", "told"),
    [
        ([], 6, {}, "no text to count"),
        ([[]], 6, {}, "no text to count"),
        ([[2, 6]], 6, {}, r"ids 0 \.\. 6, but the vocabulary has 0 \.\. 5"),
        ([[2]], 6, {"order": 0}, "order is 0"),
        ([[2]], 6, {"keep": 0}, "keep 0"),
        ([[2]], 46341, {"order": 3}, "lower the order"),
    ],
)
def test_what_cannot_be_counted_is_told(texts, size, options, told):
    with pytest.raises(SpecdecError, match=told):
        count_ngrams(texts, size, **options)
