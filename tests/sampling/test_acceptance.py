import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling import (
    RULES,
    accept_block,
    check_rule,
    match,
    reject,
    residual,
    sampling,
    standardize,
)

P = jnp.array([0.5, 0.3, 0.2])
Q = jnp.array([0.2, 0.5, 0.3])
BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
VERIFIERS = pytest.mark.parametrize("verify", [reject, accept_block])


def normal(seed, *shape):
    """NumPy's: one compilation less for each shape."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def uniform(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).random(shape, np.float32))


def guesses(seed, q):
    """Tokens that q allows, likely ones more often."""
    return jnp.asarray(np.argmax(uniform(seed, *q.shape) * np.asarray(q), -1), jnp.int32)


def everywhere(distribution, positions, rows=1):
    return jnp.broadcast_to(distribution, (rows, positions, distribution.shape[-1]))


def test_residual_divides_by_the_sum():
    assert residual(P, Q).tolist() == [1.0, 0.0, 0.0]
    # Excess (.2, .1) of (.4, .4, .2) over (.2, .3, .5); one subtraction and one division.
    owed = residual(jnp.array([0.4, 0.4, 0.2]), jnp.array([0.2, 0.3, 0.5]))
    np.testing.assert_allclose(owed, [2 / 3, 1 / 3, 0], rtol=1e-6)


def test_residual_without_excess_is_the_target():
    assert residual(P, P).tolist() == P.tolist()
    np.testing.assert_array_equal(residual(P, jnp.nextafter(P, 2 * P)), P)


def test_only_the_accepted_prefix_counts():
    # Kept, rejected, kept, kept: 1 and not 3.
    verdict = reject(
        everywhere(P, 5),
        everywhere(Q, 4),
        jnp.array([[0, 1, 0, 0]]),
        jnp.array([[0.9, 0.7, 0.1, 0.1]]),
    )
    assert verdict.accepted.tolist() == [1]
    assert verdict.accepted.dtype == jnp.int32
    assert verdict.extra.tolist() == [[1.0, 0.0, 0.0]]


def test_the_residual_is_that_of_the_rejected_position():
    # Position 2: p = (.2, .3, .5) against q = (.1, .6, .3); guess 1 fails, (.1, 0, .2) is owed.
    p = jnp.stack([P, P[::-1], P, P])[None]
    q = jnp.stack([Q, jnp.array([0.1, 0.6, 0.3]), Q])[None]
    verdict = reject(p, q, jnp.array([[0, 1, 0]]), jnp.full((1, 3), 0.9))
    assert verdict.accepted.tolist() == [1]
    # One subtraction of numbers below 1 and one division by .3.
    np.testing.assert_allclose(verdict.extra, [[1 / 3, 0.0, 2 / 3]], atol=5e-7)


def test_rows_stop_where_they_stop():
    drafted = jnp.array([[1, 0], [0, 1], [0, 0]])
    verdict = reject(everywhere(P, 3, 3), everywhere(Q, 2, 3), drafted, jnp.full((3, 2), 0.7))
    assert verdict.accepted.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(verdict.extra, jnp.stack([residual(P, Q)] * 2 + [P]))


@VERIFIERS
def test_a_complete_block_leaves_the_last_target_distribution_untouched(verify):
    p = everywhere(P, 3).at[:, -1].set(jnp.array([0.1, 0.2, 0.7]))
    verdict = verify(p, everywhere(Q, 2), jnp.array([[0, 0]]), jnp.full((1, 2), BELOW_ONE))
    assert verdict.accepted.tolist() == [2]
    np.testing.assert_array_equal(verdict.extra, p[:, -1])


@VERIFIERS
def test_an_empty_block_is_plain_decoding(verify):
    verdict = verify(P[None, None], jnp.zeros((1, 0, 3)), jnp.zeros((1, 0), int), jnp.zeros((1, 0)))
    assert verdict.accepted.tolist() == [0]
    np.testing.assert_array_equal(verdict.extra, P[None])


@VERIFIERS
def test_an_impossible_guess_is_rejected_even_at_zero(verify):
    p = everywhere(jnp.array([0.0, 1.0, 0.0]), 3)
    verdict = verify(p, everywhere(Q, 2), jnp.array([[0, 1]]), jnp.zeros((1, 2)))
    assert verdict.accepted.tolist() == [0]
    assert verdict.extra.tolist() == [[0.0, 1.0, 0.0]]


def test_a_guess_that_the_target_likes_as_much_is_always_kept():
    # p = q at the largest uniform: u q must stay below p at every mantissa that rounding meets.
    q = jnp.maximum(uniform(0, 20_000, 1, 1), 1e-30)
    p = jnp.concatenate([q, q], axis=1)
    guesses = jnp.zeros((20_000, 1), int)
    assert jnp.all(reject(p, q, guesses, jnp.full((20_000, 1), BELOW_ONE)).accepted == 1)


@VERIFIERS
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_model_that_drafts_for_itself_is_always_accepted(verify, dtype):
    rows, gamma, V = 500, 4, 30
    logits = (normal(1, rows, gamma + 1, V) * 4).astype(dtype)
    p = standardize(logits, sampling(rows, temperature=0.8, top_p=0.95))
    drafted = guesses(2, p[:, :-1])
    for u in (0.0, 0.5, BELOW_ONE):
        verdict = verify(p, p[:, :-1], drafted, jnp.full((rows, gamma), u))
        assert jnp.all(verdict.accepted == gamma)
        np.testing.assert_array_equal(verdict.extra, p[:, -1])


@VERIFIERS
def test_rounding_between_equal_models_never_gives_nan(verify):
    rows, gamma, V = 2000, 4, 30
    p = jax.nn.softmax(normal(3, rows, gamma + 1, V) * 4)
    for shift in (-1e-7, 1e-7, None):
        noise = (2 * uniform(4, *p[:, :-1].shape) - 1) * 1e-7
        q = p[:, :-1] * (1 + (noise if shift is None else shift))
        drafted = guesses(5, q)
        # The two differ by 2 units in the last place at most, and gamma of them by 1e-6.
        likely = verify(p, q, drafted, jnp.full((rows, gamma), 1 - 1e-6))
        assert jnp.all(likely.accepted == gamma)
        # The largest uniform does reject some; what it draws from must still be a distribution.
        worst = verify(p, q, drafted, jnp.full((rows, gamma), BELOW_ONE))
        assert jnp.all(worst.extra >= 0)
        np.testing.assert_allclose(worst.extra.sum(-1), 1.0, rtol=2e-6)
        if shift == 1e-7:
            assert jnp.any(worst.accepted < gamma)


def test_the_block_rule_redeems_an_earlier_failure():
    # Guess 0 then 1: w = 1, then min(1, .3/.5) = .6; reversed, w = .6, then min(1, .6 * 2.5) = 1.
    # So the reversed block is kept whole at any u, where the token rule stops at its first guess.
    p, q, drafted = everywhere(P, 3), everywhere(Q, 2), jnp.array([[1, 0]])
    late = jnp.full((1, 2), BELOW_ONE)
    assert accept_block(p, q, drafted, late).accepted.tolist() == [2]
    assert reject(p, q, drafted, late).accepted.tolist() == [0]


def test_a_last_bit_lost_does_not_cost_the_block_rule_earlier_guesses():
    # Guess 1 has w = 1; after it q exceeds p by one unit in the last place, so nothing is owed.
    p = everywhere(P, 3)
    q = jnp.stack([Q, jnp.nextafter(P, 2 * P)])[None]
    # A ratio of 1 - 1.2e-7, below the uniform 1 - 6e-8: the mantissa of .5 is 1.
    verdict = accept_block(p, q, jnp.array([[0, 0]]), jnp.full((1, 2), BELOW_ONE))
    assert verdict.accepted.tolist() == [1]
    np.testing.assert_array_equal(verdict.extra, P[None])


def test_match_counts_the_common_prefix():
    drafted = jnp.array([[4, 5, 6], [4, 0, 6], [0, 5, 6], [4, 5, 0]])
    accepted = match(jnp.broadcast_to(jnp.array([4, 5, 6, 7]), (4, 4)), drafted)
    assert accepted.tolist() == [3, 1, 0, 2]
    assert accepted.dtype == jnp.int32
    assert match(jnp.zeros((2, 1), int), jnp.zeros((2, 0), int)).tolist() == [0, 0]


def test_lenience_one_is_the_exact_rule_to_the_bit():
    p = jax.nn.softmax(normal(6, 50, 4, 9))
    q = jax.nn.softmax(normal(7, 50, 3, 9))
    drafted = jnp.asarray(np.random.default_rng(8).integers(0, 9, (50, 3)))
    uniforms = uniform(9, 50, 3)
    exact, lenient = (
        reject(p, q, drafted, uniforms),
        reject(p, q, drafted, uniforms, lenience=1.0),
    )
    jax.tree.map(np.testing.assert_array_equal, exact, lenient)


@pytest.mark.parametrize("lenience", [0.0, -0.5, 1.5, float("nan")])
def test_lenience_outside_its_domain(lenience):
    with pytest.raises(SpecdecError) as error:
        reject(
            everywhere(P, 2),
            everywhere(Q, 1),
            jnp.zeros((1, 1), int),
            jnp.zeros((1, 1)),
            lenience=lenience,
        )
    assert str(error.value) == (
        f"lenience is {lenience}, but must be above 0 and at most 1: 1 keeps the target's "
        f"distribution, smaller values accept more and change it."
    )


def test_rules_are_checked_by_name():
    assert [check_rule(name) for name in RULES] == ["rejection", "block", "coupled"]
    with pytest.raises(SpecdecError) as error:
        check_rule("Block")
    assert str(error.value) == (
        "there is no verification rule 'Block': choose one of 'rejection', 'block', 'coupled'."
    )
