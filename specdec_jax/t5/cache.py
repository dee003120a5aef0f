"""What a decoder remembers between calls, and how a block of tokens is written into it."""

from __future__ import annotations

from typing import NamedTuple

import jax
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
    distance_bias: Float[Array, "T H"]
    """Relative bias of a key that many positions behind the query; row 0 is the query itself."""


def write(
    cache: Float[Array, "B H T K"], block: Float[Array, "B H N K"], position: Int[Array, " B"]
) -> Float[Array, "B H T K"]:
    """Overwrite slots position[b] .. position[b] + N - 1 of each row b.

    The caller keeps position + N <= T: a start that does not fit would be moved back by XLA, onto
    slots that hold committed tokens. `decoding` sizes every buffer with gamma + 1 slots of slack.
    """
    if cache.shape[0] == 1:
        # One row is one contiguous copy; the general form becomes a scatter.
        return lax.dynamic_update_slice(cache, block.astype(cache.dtype), (0, 0, position[0], 0))

    def row(slots, new, start):
        return lax.dynamic_update_slice(slots, new, (0, start, 0))

    return jax.vmap(row)(cache, block.astype(cache.dtype), position)
