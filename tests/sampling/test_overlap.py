import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.sampling import alpha, divergence, overlap


def random_pairs():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 3, 11)) * 3, jnp.float32)
    return jax.nn.softmax(logits[0]), jax.nn.softmax(logits[1])


@pytest.mark.parametrize(
    ("p", "q", "beta"),
    [
        ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 0.7),
        ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2], 1.0),
        ([1.0, 0.0, 0.0], [0.0, 0.25, 0.75], 0.0),
    ],
)
def test_hand_numbers(p, q, beta):
    p, q = jnp.array(p), jnp.array(q)
    # A handful of float32 additions of numbers below 1.
    assert float(overlap(p, q)) == pytest.approx(beta, abs=3e-7)
    assert float(divergence(p, q)) == pytest.approx(1 - beta, abs=3e-7)


def test_divergence_is_definition_3_2_and_obeys_lemma_3_3():
    p, q = random_pairs()
    middle = (np.asarray(p, np.float64) + np.asarray(q, np.float64)) / 2
    for side in (p, q):
        np.testing.assert_allclose(divergence(p, q), np.abs(side - middle).sum(-1), atol=1e-6)
    np.testing.assert_allclose(divergence(p, q), 1 - overlap(p, q), atol=1e-6)
    np.testing.assert_array_equal(divergence(p, q), divergence(q, p))
    assert overlap(p, q).shape == (5, 3)


def test_alpha_is_the_mean_of_the_sum_over_the_prefixes_that_count():
    p, q = random_pairs()
    beta = np.minimum(p, q).sum(-1)
    assert float(alpha(p, q)) == pytest.approx(beta.mean(), abs=1e-6)
    counts = jnp.arange(15).reshape(5, 3) % 4 == 0
    expected = beta[np.asarray(counts)].mean()
    assert abs(expected - beta.mean()) > 1e-3
    assert float(alpha(p, q, counts)) == pytest.approx(expected, abs=1e-6)
