"""What a decoder remembers between calls, and how a block of tokens is written into it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax.sampling.types import Array, Float, Int


class KeysValues(NamedTuple):
    """Keys and values of one attention layer."""

    keys: Float[Array, "B H T K"]
    values: Float[Array, "B H T K"]


class T5State(NamedTuple):
    """A decoder's state for a batch of sources.

    A slot is a position of the decoder's input: slot 0 takes the start token. A slot is visible to
    a query at a position not before it, so what lies after a row's position, left there by
    rejected tokens, is never seen and is overwritten by the next block.
    """

    # evolving
    cache: tuple[KeysValues, ...]
    """Self-attention, one for each decoder layer."""
    # fixed by the source
    cross: tuple[KeysValues, ...]
    """Cross-attention, one for each decoder layer; projected once."""
    source_bias: Float[Array, "B 1 1 S"]
    """0 at source tokens and MASKED at padding."""
    # fixed by the parameters
    distance_bias: Float[Array, "M T H"]
    """Relative bias of a key that many positions behind the query; row 0 is the query itself. M is
    the number of layers where each has a table of its own, else 1."""


def write(
    cache: Float[Array, "B H T K"], block: Float[Array, "B H N K"], position: Int[Array, " B"]
) -> Float[Array, "B H T K"]:
    """Overwrite slots position[b] .. position[b] + N - 1 of each row b.

    The caller keeps position + N <= T: a start that does not fit would be moved back by XLA, onto
    slots that hold committed tokens. `decoding` sizes every buffer with gamma + 1 slots of slack.
    """
    block = block.astype(cache.dtype)
    if cache.shape[0] == 1:
        return lax.platform_dependent(cache, block, position, cpu=_scatter, default=_slice)

    def row(slots, new, start):
        return lax.dynamic_update_slice(slots, new, (0, start, 0))

    return jax.vmap(row)(cache, block, position)


def _slice(cache: Array, block: Array, position: Array) -> Array:
    """Write one row as one contiguous copy."""
    return lax.dynamic_update_slice(cache, block, (0, 0, position[0], 0))


def _scatter(cache: Array, block: Array, position: Array) -> Array:
    """Write one row slot by slot, and a last one that is outside and dropped.

    XLA's CPU back end fuses a slice's update with the product that reads it, and then copies the
    whole cache at every step; a scatter it writes in place. Without the slot outside it would see
    through this form and make it a slice again.
    """
    slots = jnp.append(position[0] + jnp.arange(block.shape[2]), cache.shape[2])
    block = jnp.concatenate([block, block[:, :, :1]], axis=2)
    return cache.at[:, :, slots].set(block, mode="drop")
