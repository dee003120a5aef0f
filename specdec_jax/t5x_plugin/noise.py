"""The Gumbel noise of T5X's sampler, made for the rows and positions that need it.

T5X's `temperature_sample` splits its key once for each step, and chooses with
`jax.random.categorical(key, logits)`, which is the argmax of logits + gumbel(key, [rows, V]). With
the same noise, the coupled rule emits the very tokens that T5X would. Rows advance unevenly here,
so a slot needs one row of a step's noise, and [rows, V] numbers would be made to use V of them.

Threefry computes number i of an array from the key and i alone. `_one_row` is a generator whose key
carries the row, too, and which answers with that row's bits. What turns bits into Gumbel noise
stays JAX's own code, in whatever mode JAX is configured to.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.extend import random as extend

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array, Float, Int, Key


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class T5XNoise:
    """Noise for the slots of rows; a `specdec_jax.decoding.Noise`.

    Attributes:
        keys: keys[i] is that of T5X's step i, which fills slot i + 1.
        rows: rows of T5X's batch, decodes included. Static.
        shared: whether all rows see the noise of a batch of one. T5X does so when every row has a
            temperature of its own, for it maps over rows and holds the key; all decodes of a source
            are then equal. Static.
    """

    keys: Key[Array, " T"]
    rows: int = dataclasses.field(metadata={"static": True})
    shared: bool = dataclasses.field(default=False, metadata={"static": True})

    def gumbel(self, slot: Int[Array, "B N"], vocab_size: int) -> Float[Array, "B N V"]:
        """Return the noise for the tokens of these slots, row b being row b of T5X's batch."""
        rows = 1 if self.shared else self.rows
        if 2 * rows * vocab_size >= 1 << 32:
            raise SpecdecError(
                f"The coupled rule numbers T5X's noise in 32 bits, but a step of {rows} rows has "
                f"{rows * vocab_size} numbers: lower the batch size or num_decodes."
            )
        step = jnp.clip(slot - 1, 0, self.keys.shape[0] - 1)
        row = jnp.arange(slot.shape[0], dtype=jnp.int32)[:, None] * (rows > 1)
        row = jnp.broadcast_to(row, slot.shape)
        keys = self.keys[step]
        if jax.random.key_impl(self.keys) != "threefry2x32":
            return _rows_of_batches(keys, row, rows, vocab_size)
        words = jnp.concatenate(
            [jax.random.key_data(keys), row[..., None].astype(jnp.uint32)], axis=-1
        )
        keys = jax.random.wrap_key_data(words, impl=_one_row(rows))
        return jax.vmap(jax.vmap(lambda key: jax.random.gumbel(key, (vocab_size,))))(keys)


def noise(rng: Array, steps: int, *, rows: int, shared: bool = False) -> T5XNoise:
    """Return the noise of a `temperature_sample` that was given `rng`.

    Args:
        rng: a key, typed or raw.
        steps: T, the most steps that T5X's loop could take.
        rows: batch size times num_decodes.
        shared: see `T5XNoise`.
    """

    def advance(rng, _):
        now, later = jax.random.split(rng)
        return later, now

    return T5XNoise(jax.lax.scan(advance, typed(rng), length=steps)[1], rows, shared)


def typed(rng: Array) -> Key[Array, ""]:
    """Return a key in the typed form; a raw one is of JAX's configured kind."""
    if jnp.issubdtype(rng.dtype, jax.dtypes.prng_key):
        return rng
    return jax.random.wrap_key_data(rng)


def _rows_of_batches(
    keys: Key[Array, "B N"], row: Int[Array, "B N"], rows: int, vocab_size: int
) -> Float[Array, "B N V"]:
    """For generators that count otherwise: every slot's whole batch, one after the other."""

    def one(key_and_row):
        key, row = key_and_row
        return jax.random.gumbel(key, (rows, vocab_size))[row]

    flat = jax.lax.map(one, (keys.reshape(-1), row.reshape(-1)))
    return flat.reshape(*row.shape, vocab_size)


@functools.cache
def _one_row(rows: int) -> Hashable:
    """Return a generator that answers with one row of Threefry's bits for [.., rows, V].

    Its keys have three words, Threefry's two and the row. A caller that asks for [.., V] bits gets
    [.., row, :] of what Threefry gives for [.., rows, V].
    """

    def bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
        *leading, size = shape
        total = math.prod(leading) * rows * size
        assert width == 32, "float32 noise is made of 32-bit numbers"
        block = jnp.arange(math.prod(leading), dtype=jnp.uint32)[:, None] * jnp.uint32(rows * size)
        index = block + key[2] * jnp.uint32(size) + jnp.arange(size, dtype=jnp.uint32)
        index = index.reshape(shape)
        first, second = key[0], key[1]
        if jax.config.jax_threefry_partitionable:
            # Number i is made of the 64-bit counter i.
            low, high = extend.threefry2x32_p.bind(first, second, jnp.zeros_like(index), index)
            return low ^ high
        # The counters 0 .. total - 1 are cut into halves (a missing last one is 0), and the pair
        # (i, i + half) makes the numbers i and i + half.
        half = jnp.uint32((total + 1) // 2)
        left = jnp.where(index < half, index, index - half)
        right = left + half
        right = jnp.where(right < total, right, 0).astype(jnp.uint32)
        low, high = extend.threefry2x32_p.bind(first, second, left, right)
        return jnp.where(index < half, low, high)

    def no_other_use(*_):
        raise NotImplementedError("A key for one row's noise makes no other keys.")

    return extend.define_prng_impl(
        key_shape=(3,),
        seed=no_other_use,
        split=no_other_use,
        random_bits=bits,
        fold_in=no_other_use,
        name=f"row_of_{rows}",
        tag=f"row{rows}",
    )
