import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.errors import SpecdecError
from specdec_jax.theory import (
    break_even_alpha,
    cost_ratio,
    expected_tokens_from_betas,
    guaranteed_improvement,
    optimal_gamma,
    oracle_improvement,
    verify_cost,
    walltime_improvement,
    walltime_improvement_from_tokens,
)

ALPHAS = np.linspace(0, 1, 21)
COSTS = np.array([0, 0.01, 0.02, 0.05, 0.1, 0.3, 0.9, 1.5])[:, None]


def test_table_1_speed():
    alpha = np.array([0.6, 0.7, 0.8, 0.8, 0.9, 0.9])
    gamma = np.array([2, 3, 2, 5, 2, 10])
    found = walltime_improvement(alpha, gamma=gamma, c=0)
    assert np.round(found, 2).tolist() == [1.96, 2.53, 2.44, 3.69, 2.71, 6.86]


def test_theorem_3_8_with_and_without_the_cost_of_verification():
    # gamma = 2, alpha = 1/2: 1 + 1/2 + 1/4 tokens for two draft steps and one verifying call.
    assert walltime_improvement(0.5, gamma=2, c=0.1) == pytest.approx(1.75 / 1.2)
    assert walltime_improvement(0.5, gamma=2, c=0.1, v=1.3) == pytest.approx(1.75 / 1.5)
    assert walltime_improvement(1.0, gamma=7, c=0.0) == 8
    assert walltime_improvement(0.0, gamma=7, c=0.1) == pytest.approx(1 / 1.7)
    assert walltime_improvement(jnp.float32(0.5), gamma=2, c=0.1).dtype == jnp.float32


def test_measured_tokens_take_the_place_of_equation_1():
    tokens = expected_tokens_from_betas(np.array([0.9, 0.5]))
    assert walltime_improvement_from_tokens(tokens, gamma=2, c=0.1, v=1.2) == pytest.approx(
        (1 + 0.9 + 0.45) / 1.4
    )


def test_corollary_3_9_bounds_the_best_gamma():
    best = walltime_improvement(ALPHAS, gamma=optimal_gamma(ALPHAS, c=COSTS), c=COSTS)
    bound = guaranteed_improvement(ALPHAS, c=COSTS)
    # Equality where gamma = 1 is best, so up to the rounding of either side.
    assert (best >= bound * (1 - 1e-12)).all()
    assert guaranteed_improvement(0.8, c=0.1) == pytest.approx(1.8 / 1.1)
    assert guaranteed_improvement(0.1, c=0.2) == 1


def test_some_gamma_helps_exactly_where_alpha_exceeds_c():
    # alpha = c is left out: there gamma = 1 only draws level, and rounding decides.
    apart = np.abs(ALPHAS - COSTS) > 1e-9
    assert ((optimal_gamma(ALPHAS, c=COSTS) > 0) == (ALPHAS > COSTS))[apart].all()


def test_figure_3():
    alpha = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
    found = optimal_gamma(alpha, c=np.array([0.01, 0.02, 0.05, 0.1])[:, None])
    assert found.tolist() == [
        [5, 7, 9, 14, 24],
        [4, 6, 8, 11, 19],
        [3, 4, 6, 8, 13],
        [2, 3, 4, 6, 10],
    ]


def test_best_gammas_of_table_4():
    alpha = np.array([0.75, 0.80, 0.82, 0.62, 0.68, 0.71, 0.65, 0.73, 0.74, 0.53, 0.55, 0.56])
    found = optimal_gamma(alpha, c=np.array([0.02, 0.04, 0.11] * 4))
    assert found.tolist() == [9, 9, 6, 6, 6, 4, 7, 7, 4, 5, 4, 3]


def test_the_best_gamma_of_jax_arrays_and_of_a_bounded_search():
    # Float32 tells these gains apart: they differ from their neighbours' by more than 1e-4.
    assert optimal_gamma(jnp.array([0.5, 0.8]), c=0.1).tolist() == [2, 6]
    assert optimal_gamma(0.9, c=0.01, max_gamma=10) == 10
    assert optimal_gamma(1.0, c=0.1, max_gamma=40) == 40
    assert optimal_gamma(0.9, c=0.01, max_gamma=0) == 0


def test_a_verifying_call_that_grows_shortens_the_best_draft():
    v = verify_cost({4: 1.5, 8: 2.5})
    gain = [walltime_improvement(0.8, gamma=g, c=0.05, v=v(g + 1)) for g in range(1, 30)]
    assert optimal_gamma(0.8, c=0.05, v=v) == 1 + int(np.argmax(gain)) == 3
    assert optimal_gamma(0.8, c=0.05) == 8
    # gamma drafted tokens make a call of gamma + 1: the last cheap call is one of four.
    assert optimal_gamma(0.8, c=0.05, v=verify_cost({4: 1.0, 5: 5.0})) == 3
    # Plain decoding has nothing to verify, so a constant v is no cost of gamma = 0.
    assert optimal_gamma(0.5, c=0.05, v=3.0) == 0


def test_the_curve_through_measured_costs():
    v = verify_cost({8: 1.49, 4: 1.26})
    assert v(np.array([1, 4, 8])) == pytest.approx([1, 1.26, 1.49])
    assert v(6) == pytest.approx((1.26 + 1.49) / 2)
    assert v(16) == pytest.approx(1.49 + 8 * (1.49 - 1.26) / 4)
    # A last piece that falls is noise: the curve stays level.
    assert verify_cost({4: 1.3, 8: 1.2})(16) == pytest.approx(1.2)


def test_the_oracle_bounds_every_gamma_and_agrees_with_the_known_ratios():
    best = walltime_improvement(ALPHAS, gamma=optimal_gamma(ALPHAS, c=COSTS), c=COSTS)
    assert (
        oracle_improvement(ALPHAS, c=COSTS)[ALPHAS > COSTS] >= best[ALPHAS > COSTS] - 1e-9
    ).all()
    alpha, c = np.array([0.8, 0.8, 0.9, 0.9]), np.array([0.02, 0.05, 0.05, 0.1])
    fixed = walltime_improvement(alpha, gamma=optimal_gamma(alpha, c=c), c=c)
    # "Up to about 60%" in the paper is the top of this range.
    percent = np.round(100 * (oracle_improvement(alpha, c=c) / fixed - 1))
    assert percent.tolist() == [21, 35, 48, 53]
    assert oracle_improvement(0.75, c=0) == 4
    assert oracle_improvement(0.5, c=0.1, v=1.5) == pytest.approx(1 / 0.8)
    assert oracle_improvement(1, c=0) == np.inf


@pytest.mark.parametrize("v", [1.0, 1.4])
def test_at_break_even_the_gain_is_one(v):
    gamma = np.array([1, 3, 7])
    alpha = break_even_alpha(gamma=gamma, c=0.1, v=v)
    assert walltime_improvement(alpha, gamma=gamma, c=0.1, v=v) == pytest.approx(1, rel=1e-12)


def test_break_even_at_the_ends():
    assert break_even_alpha(gamma=1, c=0.05) == pytest.approx(0.05, rel=1e-12)
    assert break_even_alpha(gamma=3, c=0.5, v=3) == np.inf
    assert break_even_alpha(gamma=3, c=1.0, v=1) == pytest.approx(1)
    # A verifying call that was measured faster than a step leaves nothing to earn.
    assert break_even_alpha(gamma=3, c=0.0, v=0.9) == pytest.approx(0, abs=1e-12)


def test_cost_ratio():
    assert cost_ratio(0.5, target=np.array([10.0, 25.0])).tolist() == [0.05, 0.02]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: walltime_improvement(0.5, gamma=3, c=-0.1),
            "c is -0.1 and must be a number of at least 0: "
            "it is the time of a draft step over a target step.",
        ),
        (
            lambda: walltime_improvement(0.5, gamma=3, c=0.1, v=0),
            "v is 0 and must be a number above 0: "
            "it is the time of a verifying call over a target step.",
        ),
        (lambda: walltime_improvement(0.5, gamma=np.inf, c=0), "gamma is inf and must be a whole"),
        (lambda: walltime_improvement(0.5, gamma=1, c=np.inf), "c is inf and must be"),
        (lambda: walltime_improvement_from_tokens(0.5, gamma=1, c=0), "tokens is 0.5 and must be"),
        (lambda: optimal_gamma(-0.5, c=0), "alpha is -0.5 and must be"),
        (lambda: optimal_gamma(0.5, c=0, max_gamma=-1), "gamma is -1 and must be"),
        (lambda: break_even_alpha(gamma=0, c=0), "gamma is 0 and must be"),
        (lambda: cost_ratio(1, target=0), "target is 0 and must be a number above 0"),
        (lambda: verify_cost({}), "measured is empty and must hold"),
        (lambda: verify_cost({1: 1.2}), "one token costs 1 by definition"),
        (lambda: verify_cost({4: -1}), "measured[4] is -1 and must be a number above 0"),
    ],
)
def test_domain_errors_name_the_argument_and_the_reason(call, message):
    with pytest.raises(SpecdecError) as error:
        call()
    assert message in str(error.value)
