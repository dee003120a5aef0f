import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.overlap import overlap
from specdec_jax.theory import (
    argmax_lenience_accepts,
    lenient_alpha,
    rejection_sampling_acceptance,
)

P = np.array([0.5, 0.3, 0.2, 0.0])
Q = np.array([0.1, 0.4, 0.3, 0.2])


@pytest.mark.parametrize("lenience", [0.0, 0.1, 0.5, 0.7, 1.0])
def test_lenient_alpha_is_the_mean_acceptance_of_what_the_draft_says(lenience):
    # The rule itself, token by token: keep x with probability min(1, p / (l q)).
    kept = sum(
        q * (1 if lenience * q <= p else p / (lenience * q)) for p, q in zip(P, Q, strict=True)
    )
    assert lenient_alpha(P, Q, lenience=lenience) == pytest.approx(kept, rel=1e-14)


def test_lenience_one_is_theorem_3_5_and_less_accepts_no_less():
    p, q = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(11), (2, 50)))
    # Sums of 11 float32 terms below 1.
    exact = lenient_alpha(p, q, lenience=1.0)
    np.testing.assert_allclose(exact, overlap(p, q), rtol=0, atol=11 * 6e-8)
    grid = lenient_alpha(p, q, lenience=jnp.array([1.0, 0.5, 0.3, 0.1, 0.0])[:, None])
    assert (jnp.diff(grid, axis=0) >= 0).all()
    np.testing.assert_allclose(grid[-1], 1.0, rtol=0, atol=11 * 6e-8)


def test_greedy_lenience_keeps_what_is_probable_enough():
    keeps = argmax_lenience_accepts(P, token=np.arange(4), lenience=0.5)
    # At least half of the best token's 0.5; the printed inequality would give the complement.
    assert keeps.tolist() == [True, True, False, False]
    exact = argmax_lenience_accepts(P, token=np.arange(4), lenience=1.0)
    assert exact.tolist() == [True, False, False, False]
    assert argmax_lenience_accepts(P, token=np.arange(4), lenience=0.0).all()
    rows = argmax_lenience_accepts(jnp.stack([P, Q]), token=jnp.array([1, 0]), lenience=0.6)
    assert rows.tolist() == [True, False]


def test_rejection_sampling_accepts_one_over_m_and_speculation_no_less():
    q = np.array([0.25, 0.45, 0.2, 0.1])
    # M = max p / q = 0.5 / 0.25.
    assert rejection_sampling_acceptance(P, q) == pytest.approx(0.5)
    assert rejection_sampling_acceptance(P, P) == 1
    assert rejection_sampling_acceptance(P, np.array([0.0, 0.5, 0.3, 0.2])) == 0
    p, q = jnp.asarray(np.random.default_rng(1).dirichlet(np.ones(7), (2, 200)))
    assert (rejection_sampling_acceptance(p, q) <= overlap(p, q) + 1e-6).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lenient_alpha(P, Q, lenience=1.5), "lenience is 1.5 and must be"),
        (lambda: lenient_alpha(2 * P, 4 * Q, lenience=1), "q is 1.6 and must be"),
        (lambda: lenient_alpha(P, Q[:3], lenience=1), "p has shape (4,) and q has shape (3,)"),
        (lambda: argmax_lenience_accepts(P, token=4, lenience=1), "token is 4 and must be"),
        (lambda: argmax_lenience_accepts(P, token=0.5, lenience=1), "must be a whole number from"),
    ],
)
def test_domain_errors(call, message):
    with pytest.raises(SpecdecError) as error:
        call()
    assert message in str(error.value)
