"""Losses against numbers computed by hand, with padding that must not count."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.training.objectives import cross_entropy, distance, shift_right

P = np.array([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]])
Q = np.array([[0.25, 0.25, 0.5], [0.25, 0.5, 0.25]])
TARGET = jnp.array([[2, 1, 0]], jnp.int32)
RTOL = 1e-6
"""A handful of float32 operations, 6e-8 each."""


def logits(probs, shift=0.0):
    """Logits [1, 3, 3] of two positions, and of one more that is padding and must not matter."""
    rows = np.concatenate([np.log(probs) + shift, [[50.0, -3.0, 7.0]]])
    return jnp.asarray(rows[None], jnp.float32)


def test_shift_right():
    target = jnp.array([[5, 6, 1], [7, 1, 0]], jnp.int32)
    assert shift_right(target).tolist() == [[0, 5, 6], [0, 7, 1]]
    assert shift_right(target).dtype == jnp.int32


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_cross_entropy(shift):
    loss, count = cross_entropy(logits(P, shift), TARGET)
    assert loss == pytest.approx(math.log(4) + math.log(8), rel=RTOL)
    assert count == 2


def test_smoothing_moves_mass_to_the_uniform_distribution():
    loss, count = cross_entropy(logits(P), TARGET, smoothing=0.3)
    uniform = -np.log(P).mean()
    expected = 0.7 * (math.log(4) + math.log(8)) + 0.3 * 2 * uniform
    assert loss == pytest.approx(expected, rel=RTOL)
    assert count == 2


def kl(p, q):
    return np.sum(p * np.log(p / q))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # Of the first position 1/2 log 2 - 1/4 log 2.
        ("forward_kl", 0.25 * math.log(2) + kl(P[1], Q[1])),
        ("reverse_kl", kl(Q, P)),
        ("jensen_shannon", kl(P, (P + Q) / 2) / 2 + kl(Q, (P + Q) / 2) / 2),
        ("total_variation", 0.25 + 0.5),
    ],
)
def test_distance(kind, expected):
    loss, count = distance(logits(Q), logits(P), TARGET, kind)
    assert loss == pytest.approx(expected, rel=RTOL)
    assert count == 2
    assert distance(logits(P), logits(P, 2.0), TARGET, kind)[0] == pytest.approx(0, abs=1e-6)


def test_forward_kl_is_the_default_and_teaches_no_teacher():
    student, teacher = jax.grad(lambda q, p: distance(q, p, TARGET)[0], (0, 1))(
        logits(Q), logits(P)
    )
    # d KL(p || softmax(z)) / dz = q - p.
    np.testing.assert_allclose(student[0, :2], Q - P, atol=1e-6)
    assert not np.any(student[0, 2])
    assert not np.any(teacher)


def test_nothing_but_padding_weighs_nothing():
    nothing = jnp.zeros((1, 3), jnp.int32)
    for loss, count in (
        cross_entropy(logits(P), nothing),
        distance(logits(Q), logits(P), nothing),
    ):
        assert loss == 0
        assert count == 0
