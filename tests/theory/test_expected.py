from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.errors import SpecdecError
from specdec_jax.theory import (
    alpha_from_tokens,
    expected_tokens,
    expected_tokens_from_betas,
    tokens_distribution,
)


def sum_of_powers(alpha: float, gamma: int) -> float:
    """Eq. (1) without its division: 1 + alpha + ... + alpha^gamma, in exact arithmetic."""
    return float(sum(Fraction(alpha) ** i for i in range(gamma + 1)))


# The last alphas are where `1 - alpha ** n` loses every digit; the first where log(alpha) grows.
ALPHAS = [0.0, 1e-300, 1e-9, 0.3, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12, 1 - 2**-53, 1.0]


@pytest.mark.parametrize("gamma", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_equation_1_is_the_sum_of_powers(alpha, gamma):
    # log, a product, expm1 and a division of float64, each within an ulp; n log(alpha) turns a
    # relative error into one of expm1 no greater than itself times n |log alpha| e^(-n |log alpha|)
    # <= 1/e.
    assert expected_tokens(alpha, gamma=gamma) == pytest.approx(
        sum_of_powers(alpha, gamma), rel=1e-14
    )


@pytest.mark.parametrize("alpha", ALPHAS)
def test_equation_1_in_the_float32_of_jax(alpha):
    alpha = jnp.float32(alpha)
    found = expected_tokens(alpha, gamma=7)
    assert found.dtype == jnp.float32
    # Eight float32 roundings of 6e-8 at most.
    assert float(found) == pytest.approx(sum_of_powers(float(alpha), 7), rel=5e-7)


def test_limits():
    assert expected_tokens(1.0, gamma=10**9) == 10**9 + 1
    assert expected_tokens(0.0, gamma=10**9) == 1
    assert expected_tokens(0.75, gamma=np.inf) == 4
    assert expected_tokens(1.0, gamma=np.inf) == np.inf
    # 1 - alpha = 2^-53 and n = 10^9: n (1 - (n - 1)/2 (1 - alpha) + ...), to second order.
    n, short = 10**9 + 1, 2**-53
    assert expected_tokens(1 - short, gamma=n - 1) == pytest.approx(n * (1 - (n - 1) / 2 * short))


def test_scalars_give_scalars_and_arrays_broadcast():
    assert isinstance(expected_tokens(0.5, gamma=3), float)
    assert isinstance(expected_tokens(1, gamma=3), float)
    table = expected_tokens(np.array([[0.5], [0.9]]), gamma=np.array([1, 3, 5, 7, 10]))
    # Figure 2 at its two ends.
    assert np.round(table, 3).tolist() == [
        [1.5, 1.875, 1.969, 1.992, 1.999],
        [1.9, 3.439, 4.686, 5.695, 6.862],
    ]


def test_traced_and_differentiated():
    slope = jax.jit(jax.grad(lambda a: expected_tokens(a, gamma=3)))(0.5)
    # d/da (1 + a + a^2 + a^3) = 1 + 2a + 3a^2.
    assert float(slope) == pytest.approx(2.75, rel=1e-5)
    assert np.isfinite(jax.grad(lambda a: expected_tokens(a, gamma=3))(0.0))


def test_betas_of_their_own_against_enumeration():
    betas = np.array([0.9, 0.5, 0.2])
    # Stop after 1, 2, 3 tokens or go through:
    # 1 (.1) + 2 (.9)(.5) + 3 (.9)(.5)(.8) + 4 (.9)(.5)(.2).
    assert expected_tokens_from_betas(betas) == pytest.approx(0.1 + 0.9 + 1.08 + 0.36, rel=1e-14)
    # Order matters: the product ends where a position fails.
    assert expected_tokens_from_betas(betas[::-1]) < expected_tokens_from_betas(betas)
    assert expected_tokens_from_betas(np.full((2, 5), 0.8)) == pytest.approx(
        expected_tokens(0.8, gamma=5), rel=1e-14
    )
    assert expected_tokens_from_betas(jnp.ones((2, 0))).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("gamma", [0, 1, 6])
def test_the_law_sums_to_one_and_its_mean_is_equation_1(alpha, gamma):
    law = tokens_distribution(np.array([alpha, 0.5]), gamma=gamma)
    assert law.shape == (2, gamma + 1)
    assert law.sum(axis=-1) == pytest.approx([1, 1], rel=1e-14)
    assert law[0] @ np.arange(1, gamma + 2) == pytest.approx(sum_of_powers(alpha, gamma), rel=1e-14)


def test_the_law_of_two_drafted_tokens():
    assert tokens_distribution(0.8, gamma=2) == pytest.approx([0.2, 0.16, 0.64], rel=1e-14)
    assert tokens_distribution(jnp.float32(0.8), gamma=2).dtype == jnp.float32


@pytest.mark.parametrize("gamma", [1, 4, 30])
def test_alpha_from_tokens_inverts_equation_1(gamma):
    alpha = np.linspace(0, 1, 21)
    found = alpha_from_tokens(expected_tokens(alpha, gamma=gamma), gamma=gamma)
    # dE/dalpha >= 1 for gamma >= 1, so an error of E is no smaller than the one it makes in alpha:
    # E is at most 31, with a relative error of 1e-14.
    assert found == pytest.approx(alpha, abs=31e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: expected_tokens(1.2, gamma=3),
            "alpha is 1.2 and must be a number from 0 to 1: "
            "it is the mean probability that a drafted token is accepted.",
        ),
        (lambda: expected_tokens(np.array([0.5, np.nan]), gamma=3), "alpha is nan and must be"),
        (lambda: expected_tokens(jnp.float32(-1), gamma=3), "alpha is -1 and must be"),
        (
            lambda: expected_tokens(0.5, gamma=-1),
            "gamma is -1 and must be a whole number of at least 0: "
            "it is the number of tokens drafted per round.",
        ),
        (lambda: expected_tokens(0.5, gamma=2.5), "gamma is 2.5 and must be a whole number"),
        (lambda: expected_tokens_from_betas(np.array([0.5, 1.5])), "betas is 1.5 and must be"),
        (lambda: expected_tokens_from_betas(0.5), "for one acceptance probability call"),
        (lambda: tokens_distribution(0.5, gamma=-2), "gamma is -2 and must be"),
        (lambda: alpha_from_tokens(0.9, gamma=3), "tokens is 0.9 and must be a number of at least"),
        (lambda: alpha_from_tokens(4.5, gamma=3), "gamma + 1 - tokens is -0.5 and must be"),
        (lambda: alpha_from_tokens(1.0, gamma=0), "gamma is 0 and must be"),
    ],
)
def test_domain_errors_name_the_argument_and_the_reason(call, message):
    with pytest.raises(SpecdecError) as error:
        call()
    assert message in str(error.value)
