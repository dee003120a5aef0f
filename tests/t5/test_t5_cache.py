"""The cache: any way of reading a sequence block by block is the whole pass over it."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_t5s import (
    ATOL,
    KINDS,
    LAYOUTS,
    ROWS,
    SLOTS,
    SOURCE,
    TOKENS,
    extend,
    forward,
    ids,
    small,
    start,
)

from specdec_jax.t5.cache import write

LENGTH = 6
SPLITS = [
    split
    for count in range(1, LENGTH + 1)
    for split in itertools.product(range(1, 6), repeat=count)
    if sum(split) == LENGTH
]


def at(*position):
    return jnp.asarray(position, jnp.int32)


@functools.cache
def begin(family, layout):
    """A model, its state before the first token, and what is right for `TOKENS`."""
    model = small(family, layout)
    return model, start(model, SOURCE, SLOTS), forward(small(family), SOURCE, TOKENS)


@pytest.mark.parametrize(("family", "layout"), KINDS)
def test_every_split_into_blocks_is_the_whole_pass(family, layout):
    model, state, right = begin(family, layout)
    assert len(SPLITS) == 31
    # The families differ in nothing that a split could touch: one is enough for 1.0.
    for split in SPLITS if family == "1.1" else [(3, 3)]:
        reached, position = state, 0
        for n in split:
            block = TOKENS[:, position : position + n]
            logits, reached = extend(model, reached, block, at(*[position] * ROWS))
            expected = right[:, position : position + n]
            np.testing.assert_allclose(logits, expected, atol=ATOL, err_msg=str(split))
            position += n


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rewind_to_other_tokens_leaves_no_trace(layout):
    model, state, right = begin("1.1", layout)
    wrong = ids(ROWS, 5, seed=9)
    for keep in range(5):
        _, reached = extend(model, state, TOKENS[:, :4], at(0, 0, 0))
        _, reached = extend(model, reached, wrong, at(*[keep] * ROWS))
        # One token from the rewound position: behind it lie rejected ones that it must not see.
        block = TOKENS[:, keep : keep + 1]
        logits, reached = extend(model, reached, block, at(*[keep] * ROWS))
        np.testing.assert_allclose(logits, right[:, keep : keep + 1], atol=ATOL)
        block = TOKENS[:, keep + 1 : keep + 6]
        logits, _ = extend(model, reached, block, at(*[keep + 1] * ROWS))
        np.testing.assert_allclose(logits, right[:, keep + 1 : keep + 6], atol=ATOL)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_advance_unevenly(layout):
    model, state, right = begin("1.1", layout)
    position = np.zeros(ROWS, int)
    for step in ([5, 1, 3], [1, 5, 2], [4, 1, 2], [1, 2, 5]):
        # Every row reads 5 tokens and is then moved on by as many as it accepts.
        read = position[:, None] + np.arange(5)
        block = jnp.asarray(np.take_along_axis(np.array(TOKENS), read, axis=1))
        logits, state = extend(model, state, block, at(*position))
        expected = np.take_along_axis(np.array(right), read[..., None], axis=1)
        np.testing.assert_allclose(logits, expected, atol=ATOL)
        position += np.array(step)
    assert len(set(position)) == 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_far_positions(layout):
    """Beyond the last border between two buckets of distance, 113, and rows apart."""
    length = 152
    tokens = ids(ROWS, length, seed=4)
    plain = small("1.1", num_decoder_layers=1)
    model = small("1.1", layout, num_decoder_layers=1)
    right = np.array(forward(plain, SOURCE, tokens))
    _, state = extend(model, start(model, SOURCE, length), tokens[:, :147], at(0, 0, 0))
    for position in (at(147, 147, 147), at(140, 112, 64)):
        read = position[:, None] + np.arange(5)
        block = jnp.take_along_axis(tokens, read, axis=1)
        logits, state = extend(model, state, block, position)
        expected = np.take_along_axis(right, np.array(read)[..., None], axis=1)
        np.testing.assert_allclose(logits, expected, atol=ATOL)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_b23_extend_leaves_cross_attention_and_biases_alone(layout):
    model, state, _ = begin("1.1", layout)
    _, after = extend(model, state, TOKENS[:, :4], at(3, 0, 9))
    for name in ("cross", "source_bias", "distance_bias"):
        before_, after_ = getattr(state, name), getattr(after, name)
        jax.tree.map(np.testing.assert_array_equal, before_, after_)
    assert np.any(np.asarray(after.cache[0].keys) != np.asarray(state.cache[0].keys))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_extend_touches_its_own_slots_alone(layout):
    model, state, _ = begin("1.1", layout)
    for position in range(0, 20, 5):
        _, state = extend(model, state, TOKENS[:, :5], at(*[position] * ROWS))
    _, after = extend(model, state, ids(ROWS, 5, seed=7), at(3, 0, 19))
    touched = np.arange(SLOTS) - np.array([3, 0, 19])[:, None]
    touched = (touched >= 0) & (touched < 5)
    for before_, after_ in zip(state.cache, after.cache, strict=True):
        for old, new in zip(before_, after_, strict=True):
            changed = np.any(np.asarray(old) != np.asarray(new), axis=(1, 3))
            np.testing.assert_array_equal(changed, touched)


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@pytest.mark.parametrize("count", [1, 3])
def test_write_overwrites_each_row_at_its_own_slot(count):
    cache, block = numbers(4, 2, 9, 5), numbers(4, 2, count, 5, seed=1)
    positions = [0, 3, 9 - count, 2]
    expected = np.array(cache)
    for row, position in enumerate(positions):
        for n in range(count):
            expected[row, :, position + n] = block[row, :, n]
    np.testing.assert_array_equal(write(cache, block, at(*positions)), expected)
    # One row takes another path to the same result.
    for row, position in enumerate(positions):
        alone = write(cache[row : row + 1], block[row : row + 1], at(position))
        np.testing.assert_array_equal(alone, expected[row : row + 1])


@pytest.mark.parametrize("rows", [1, 2])
def test_write_keeps_the_dtype_of_the_cache(rows):
    cache = numbers(rows, 2, 6, 5).astype(jnp.bfloat16)
    block = numbers(rows, 2, 2, 5, seed=1)
    written = write(cache, block, at(*[1] * rows))
    assert written.dtype == jnp.bfloat16
    np.testing.assert_array_equal(written[:, :, 1:3], block.astype(jnp.bfloat16))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_row_alone_is_the_row_in_a_batch(layout):
    """One row is written by another path: see `write`."""
    model, _, right = begin("1.1", layout)
    state = start(model, SOURCE[1:2], SLOTS)
    for position in range(0, 12, 4):
        block = TOKENS[1:2, position : position + 4]
        logits, state = extend(model, state, block, at(position))
        np.testing.assert_allclose(logits, right[1:2, position : position + 4], atol=ATOL)
