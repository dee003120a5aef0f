"""One row's noise must be that row of JAX's noise for the batch, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.errors import SpecdecError
from specdec_jax.t5x_plugin.noise import noise

STEPS = 3


def step_keys(rng):
    """T5X's chain: at each step the key is split into the step's own and the next."""
    keys = []
    for _ in range(STEPS):
        now, rng = jax.random.split(rng)
        keys.append(now)
    return keys


def expected(rng, slots, rows, vocab_size):
    keys = step_keys(rng)
    whole = [np.asarray(jax.random.gumbel(key, (rows, vocab_size))) for key in keys]
    return np.stack([[whole[slot - 1][b] for slot in row] for b, row in enumerate(slots)])


@pytest.fixture(params=[True, False], ids=["partitionable", "original"])
def threefry(request):
    with jax.threefry_partitionable(request.param):
        yield


@pytest.mark.usefixtures("threefry")
# Odd and even totals: the original Threefry pairs the halves of the counters.
@pytest.mark.parametrize(("rows", "vocab_size", "high"), [(3, 7, False), (4, 6, True)])
def test_rows_are_those_of_the_batch(rows, vocab_size, high):
    rng = jax.random.PRNGKey(11)
    slots = np.random.default_rng(rows).integers(1, STEPS + 1, (rows, 3))
    before = jax.config.jax_high_dynamic_range_gumbel
    jax.config.update("jax_high_dynamic_range_gumbel", high)
    try:
        made = noise(rng, STEPS, rows=rows)
        found = jax.jit(lambda made, slots: made.gumbel(slots, vocab_size))(
            made, jnp.asarray(slots)
        )
        np.testing.assert_array_equal(found, expected(rng, slots, rows, vocab_size))
    finally:
        jax.config.update("jax_high_dynamic_range_gumbel", before)


def test_one_noise_for_all_rows_when_temperatures_differ():
    rng = jax.random.PRNGKey(2)
    found = noise(rng, STEPS, rows=5, shared=True).gumbel(jnp.full((5, 1), 3), 9)
    alone = jax.random.gumbel(step_keys(rng)[2], (1, 9))
    np.testing.assert_array_equal(found[:, 0], jnp.broadcast_to(alone, (5, 9)))


def test_another_generator_makes_whole_batches():
    rng = jax.random.key(3, impl="rbg")
    slots = np.array([[1, 2], [2, 3], [3, 1]])
    found = noise(rng, STEPS, rows=3).gumbel(jnp.asarray(slots), 10)
    np.testing.assert_array_equal(found, expected(rng, slots, 3, 10))


def test_a_row_that_has_ended_may_ask_beyond_the_chain():
    found = noise(jax.random.PRNGKey(0), STEPS, rows=1).gumbel(jnp.array([[0, STEPS + 9]]), 4)
    assert np.isfinite(found).all()


def test_more_numbers_than_counters_are_refused():
    huge = noise(jax.random.PRNGKey(0), STEPS, rows=1 << 20)
    with pytest.raises(SpecdecError, match="lower the batch size"):
        jax.eval_shape(lambda: huge.gumbel(jnp.ones((1, 1), jnp.int32), 1 << 13))
