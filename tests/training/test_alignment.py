"""The word-translation table, and what it tells an attention head."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.training import alignment

V = 24
DICTIONARY = {s: s + 10 for s in range(2, 12)}


def corpus(count=300, seed=0):
    """Word for word translations, each with one word of the source left out and an end token."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        source = rng.integers(2, 12, rng.integers(2, 6)).tolist()
        left_out = rng.integers(len(source) + 1)
        target = [DICTIONARY[s] for i, s in enumerate(source) if i != left_out]
        pairs.append(([*source, 1], [*target, 1]))
    return pairs


def test_em_finds_the_dictionary():
    table = alignment.translation_table(corpus(), V)
    assert table.shape == (V, V)
    assert table.dtype == np.float32
    for source, target in DICTIONARY.items():
        assert table[source, target] > 0.9
    assert table[1, 1] > 0.9
    seen = [1, *DICTIONARY]
    np.testing.assert_allclose(table[seen].sum(1), 1, rtol=1e-5)
    assert not np.any(np.delete(table, seen, axis=0))


def slow_table(pairs, iterations):
    """Equation by equation, one pair of words at a time."""
    table = np.ones((V, V))
    for _ in range(iterations):
        counts = np.zeros((V, V))
        for source, target in pairs:
            for j, t in enumerate(target):
                joint = []
                for i, s in enumerate(source):
                    apart = abs((i + 0.5) / len(source) - (j + 0.5) / len(target))
                    joint.append(table[s, t] * math.exp(-alignment.DIAGONAL * apart))
                for s, share in zip(source, joint, strict=True):
                    counts[s, t] += share / sum(joint)
        table = counts / np.maximum(counts.sum(1, keepdims=True), 1e-12)
    return table


@pytest.mark.parametrize("iterations", [1, 3])
def test_em_is_the_one_of_the_definition(iterations):
    # With words that occur twice in a pair, and sides of different lengths.
    pairs = [*corpus(20), ([3, 3, 4], [7, 7, 7, 8, 7]), ([5], [6, 9]), ([2, 2], [5])]
    table = alignment.translation_table(pairs, V, iterations=iterations)
    # Shares are float32, each iteration multiplies their errors by a few.
    np.testing.assert_allclose(table, slow_table(pairs, iterations), atol=3e-6)


def test_one_iteration_by_hand():
    """Source of two words, one target token in the middle: the prior is even."""
    table = alignment.translation_table([([4, 5], [6])], V, iterations=1)
    assert table[4, 6] == table[5, 6] == 1.0
    # Two targets for one source word share it.
    table = alignment.translation_table([([4], [6, 7])], V, iterations=1)
    assert table[4].tolist() == [0.5 if t in (6, 7) else 0.0 for t in range(V)]


SOURCE = jnp.array([[2, 3, 4, 1, 0, 0], [5, 1, 0, 0, 0, 0]], jnp.int32)
TARGET = jnp.array([[12, 13, 1, 0], [15, 1, 0, 0]], jnp.int32)


def posterior():
    table = alignment.translation_table(corpus(), V)
    return np.asarray(alignment.posterior(jnp.asarray(table), SOURCE, TARGET))


def test_posterior_is_a_distribution_over_source_tokens():
    found = posterior()
    assert found.shape == (2, 4, 6)
    # The addend against 0 / 0, 1e-20 against 1e-6, shows in no digit.
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)
    assert not np.any(found[0, :, 4:])
    assert not np.any(found[1, :, 2:])


def test_posterior_points_at_the_translation():
    found = posterior()
    assert found[0].argmax(-1)[:3].tolist() == [0, 1, 3]
    assert found[1].argmax(-1)[:2].tolist() == [0, 1]
    assert found[0, :3].max(-1).min() > 0.9


def test_an_unknown_word_follows_the_diagonal():
    none = jnp.zeros((V, V))
    found = np.asarray(alignment.posterior(none, SOURCE, TARGET))[0]
    apart = (np.arange(4) + 0.5)[None] / 4 - (np.arange(3) + 0.5)[:, None] / 3
    expected = np.exp(-alignment.DIAGONAL * np.abs(apart))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(found[:3, :4], expected, rtol=1e-5)


def test_guidance_is_the_cross_entropy_at_target_tokens():
    goal = jnp.array([[[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]]])
    weights = jnp.array([[[0.25, 0.75], [0.5, 0.5], [1e-9, 1.0]]])
    target = jnp.array([[7, 1, 0]], jnp.int32)
    expected = -0.5 * math.log(0.25) - 0.5 * math.log(0.75) - math.log(0.5)
    # 1e-6 keeps log(0) away and moves the sum by at most 1e-6 / 0.25 for each of three terms.
    assert alignment.guidance(weights, goal, target) == pytest.approx(expected, abs=2e-5)
    assert alignment.guidance(weights, goal, jnp.zeros((1, 3), jnp.int32)) == 0


def test_load_or_count_counts_once(tmp_path):
    path = tmp_path / "run" / "table.npy"
    counted = alignment.load_or_count(path, corpus(), V)
    assert counted.dtype == np.float32
    # Kept as float16: 11 bits.
    np.testing.assert_allclose(
        counted, alignment.translation_table(corpus(), V), rtol=2**-11, atol=1e-7
    )
    np.testing.assert_array_equal(alignment.load_or_count(path, [], V), counted)
