"""umT5's form: every layer has a table of relative biases of its own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_t5s import (
    ATOL,
    CONFIGS,
    LAYOUTS,
    ROWS,
    SLOTS,
    SOURCE,
    TOKENS,
    extend,
    forward,
    random_params,
    start,
)

from specdec_jax.t5.expand import expand
from specdec_jax.t5.model import T5, prepare, t5

SHARED = dataclasses.replace(CONFIGS["1.1"], num_encoder_layers=2)
CONFIG = dataclasses.replace(SHARED, relative_bias_per_layer=True)
WIDER = {"num_heads": 5, "num_encoder_layers": 3, "num_decoder_layers": 3}


def model(layout="token_major") -> T5:
    made = t5(random_params(CONFIG), CONFIG)
    return prepare(made, platform="cpu") if layout == "feature_major" else made


def with_tables_of(shared: T5) -> T5:
    """The same function, each layer with a copy of its stack's table."""
    params = jax.tree.map(lambda x: x, shared.params)
    for stack, count in (("encoder", 2), ("decoder", 2)):
        table = params[stack].pop("relpos_bias")
        for i in range(count):
            params[stack][f"layers_{i}"]["relpos_bias"] = table
    return t5(params, CONFIG)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_tables_are_a_shared_one(layout):
    shared = t5(random_params(SHARED), SHARED)
    expected = forward(shared, SOURCE, TOKENS)
    same = with_tables_of(shared)
    same = prepare(same, platform="cpu") if layout == "feature_major" else same
    np.testing.assert_allclose(forward(same, SOURCE, TOKENS), expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("layer", [0, 1])
def test_every_table_counts(stack, layer):
    """Swapping nothing but one layer's table for its neighbour's moves the logits."""
    first = model()
    params = jax.tree.map(lambda x: x, first.params)
    other = params[stack][f"layers_{1 - layer}"]["relpos_bias"]
    params[stack][f"layers_{layer}"]["relpos_bias"] = other
    moved = forward(t5(params, CONFIG), SOURCE, TOKENS) - forward(first, SOURCE, TOKENS)
    assert np.abs(moved).max() > 1000 * ATOL


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_against_the_cache_are_the_whole_pass(layout):
    """Rows at positions of their own, guesses thrown away, written over, and read once more."""
    made = model(layout)
    expected = forward(made, SOURCE, TOKENS)
    state = start(made, SOURCE, SLOTS)
    assert state.distance_bias.shape == (2, SLOTS, CONFIG.num_heads)
    at = jnp.zeros(ROWS, jnp.int32)
    found, state = extend(made, state, TOKENS[:, :4], at)
    np.testing.assert_allclose(found, expected[:, :4], rtol=0, atol=ATOL)
    _, state = extend(made, state, TOKENS[:, 10:14], at + 4)  # rejected
    at = jnp.array([4, 2, 3])
    for _ in range(3):
        block = jnp.take_along_axis(TOKENS, at[:, None] + jnp.arange(4), axis=1)
        found, state = extend(made, state, block, at)
        wanted = jnp.stack([expected[b, at[b] : at[b] + 4] for b in range(ROWS)])
        np.testing.assert_allclose(found, wanted, rtol=0, atol=ATOL)
        at = at + jnp.array([4, 2, 3])


def test_a_larger_shape_keeps_its_tables():
    old = model()
    new = expand(old, dataclasses.replace(SHARED, **WIDER))
    assert new.config == dataclasses.replace(CONFIG, **WIDER)
    wanted = jax.tree.map(jnp.shape, random_params(new.config))
    assert jax.tree.map(jnp.shape, new.params) == wanted
    found, expected = (forward(m, SOURCE, TOKENS) for m in (new, old))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2 * ATOL)
