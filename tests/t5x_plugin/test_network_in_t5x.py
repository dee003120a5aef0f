"""Our network under T5X's calling convention: full pass, cached steps, packed rows, parameters."""

import dataclasses
import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from flax import core
from flax import linen as nn

from specdec_jax.errors import SpecdecError
from specdec_jax.t5.network import Transformer as Plain
from specdec_jax.t5x_plugin.network import Transformer, config_of

MODULE = Transformer(tiny.CONFIG)
SOURCE = jnp.array([[5, 6, 7, 1, 0, 0], [9, 8, 7, 6, 5, 1]])
TARGET = jnp.array([[3, 4, 5, 6, 1], [7, 8, 9, 2, 1]])
# Logits of order 10, through three norms: a hundred units in the last place.
CLOSE = {"rtol": 0, "atol": 1e-4}


def shifted(tokens):
    return jnp.pad(tokens, ((0, 0), (1, 0)))[:, :-1]


# Under jit: op by op, what takes time is compiling each of them.
QUIET = jax.jit(functools.partial(MODULE.apply, enable_dropout=False))


def full(source, target):
    return QUIET({"params": tiny.params()}, source, shifted(target), target)


def test_parameters_and_full_pass_are_those_of_the_plain_network():
    plain = Plain(tiny.CONFIG)
    wanted = jax.eval_shape(lambda: plain.init(jax.random.key(0), SOURCE, TARGET))
    found = jax.eval_shape(
        lambda: MODULE.init(jax.random.key(0), SOURCE, TARGET, TARGET, enable_dropout=False)
    )
    assert jax.tree.structure(found["params"]) == jax.tree.structure(wanted["params"])
    assert core.freeze(found["params_axes"]) == core.freeze(wanted["params_axes"])
    expected = jax.jit(plain.apply)({"params": tiny.params()}, SOURCE, shifted(TARGET))
    np.testing.assert_array_equal(full(SOURCE, TARGET), expected)


def test_cached_steps_follow_the_full_pass():
    expected = full(SOURCE, TARGET)
    variables = {"params": tiny.params()}
    quiet = functools.partial(MODULE.apply, enable_dropout=False)
    encoded = jax.jit(functools.partial(quiet, method=MODULE.encode))(variables, SOURCE)
    decoding = {"decode": True, "mutable": ["cache"]}
    ones = jnp.ones_like(TARGET)
    start = jax.jit(functools.partial(quiet, **decoding))
    cache = start(variables, jnp.ones_like(SOURCE), ones, ones)[1]["cache"]
    assert cache["cache_index"] == 0
    step = functools.partial(
        quiet, **decoding, max_decode_length=TARGET.shape[1], method=MODULE.decode
    )
    step = jax.jit(step)
    for index, token in enumerate(shifted(TARGET).T):
        token = token[:, None]
        logits, changed = step({**variables, "cache": cache}, encoded, SOURCE, token, token)
        cache = changed["cache"]
        np.testing.assert_allclose(logits[:, 0], expected[:, index], **CLOSE)
    assert cache["cache_index"] == TARGET.shape[1]


def test_packed_rows_do_not_see_each_other():
    source = jnp.array([[5, 6, 1, 9, 8, 7, 1, 0]])
    target = jnp.array([[3, 4, 1, 7, 8, 9, 1, 0]])
    inputs = jnp.array([[0, 3, 4, 0, 7, 8, 9, 0]])
    segments = jnp.array([[1, 1, 1, 2, 2, 2, 2, 0]])
    packed = QUIET({"params": tiny.params()}, source, inputs, target, segments, segments)
    first = full(source[:, :3], target[:, :3])
    second = full(source[:, 3:7], target[:, 3:7])
    np.testing.assert_allclose(packed[:, :3], first, **CLOSE)
    np.testing.assert_allclose(packed[:, 3:7], second, **CLOSE)


def test_dropout_needs_its_key_and_acts():
    arguments = ({"params": tiny.params()}, SOURCE, shifted(TARGET), TARGET)
    with pytest.raises(Exception, match="dropout"):
        jax.eval_shape(MODULE.apply, *arguments)
    noisy = jax.jit(MODULE.apply)(*arguments, rngs={"dropout": jax.random.key(0)})
    assert not np.allclose(noisy, full(SOURCE, TARGET))


def test_sizes_are_read_from_a_network_of_t5x_and_a_scanned_one_is_refused():
    class Other(nn.Module):
        config: Any
        scan_layers: bool = False

    sizes = {f.name: getattr(tiny.CONFIG, f.name) for f in dataclasses.fields(tiny.CONFIG)}
    theirs = types.SimpleNamespace(**sizes, float32_attention_logits=False)
    assert config_of(Other(theirs)) == tiny.CONFIG
    with pytest.raises(SpecdecError, match="emb_dim"):
        config_of(Other(types.SimpleNamespace(vocab_size=8)))
    with pytest.raises(SpecdecError, match="scan_layers is set"):
        config_of(Other(theirs, scan_layers=True))
