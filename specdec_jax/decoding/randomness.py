"""Keys and noise that belong to a row and a slot, and to nothing else.

A row's samples depend on its own key, not on its batch mates, on padding, or on the mesh: the same
line of text gives the same output in a batch of one and of a hundred.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax

from specdec_jax.sampling.types import Array, Float, Int, Key


@runtime_checkable
class Noise(Protocol):
    """Gumbel noise that is a fixed function of row and slot.

    Plain decoding chooses the token of a slot as argmax(adjusted logits + noise), which is a sample
    of the adjusted distribution. Two decoders with the same noise can be compared token by token;
    that is what the coupled rule does. A pytree.
    """

    def gumbel(self, slot: Int[Array, "B N"], vocab_size: int) -> Float[Array, "B N V"]:
        """Return the noise for the tokens of these slots."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RowNoise:
    """The default noise: from the row's key and the slot."""

    keys: Any
    """Key[Array, " B"]. Any, since JAX also keeps descriptions of arrays in such trees, as in what
    `lower` returns."""

    def gumbel(self, slot: Int[Array, "B N"], vocab_size: int) -> Float[Array, "B N V"]:
        """Return the noise for the tokens of these slots."""

        def one(key, slot):
            # mode="high": the common form cannot draw a token of probability below 1e-7.
            return jax.random.gumbel(jax.random.fold_in(key, slot), (vocab_size,), mode="high")

        return jax.vmap(jax.vmap(one, (None, 0)))(self.keys, slot)


def row_keys(key: Key[Array, ""] | Key[Array, " B"], batch: int) -> Key[Array, " B"]:
    """Return the keys of the rows: those given, or the one given folded with each row's number.

    Rows draw under `vmap`, and there only threefry draws for each row by its own key: XLA's bit
    generator (`rbg`, `unsafe_rbg`, which T5X makes the default for interactive models) takes the
    first row's for all. So whatever the keys are, the rows' are threefry's, made from all their
    bits.
    """
    key = _threefry(key)
    if key.ndim:
        return key
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jax.numpy.arange(batch))


def _threefry(key: Key[Array, "*rows"]) -> Key[Array, "*rows"]:
    impl = "threefry2x32"
    if jax.random.key_impl(key) == impl:
        return key
    words = jax.random.key_data(key)
    flat = words.reshape(-1, words.shape[-1])
    made = jax.random.wrap_key_data(flat[:, :2], impl=impl)
    for column in range(2, flat.shape[1]):
        made = jax.vmap(jax.random.fold_in)(made, flat[:, column])
    return made.reshape(key.shape)


class RoundKeys(NamedTuple):
    """The chances of one round, for the rejection and block rules."""

    guesses: Key[Array, "B G"]
    uniforms: Float[Array, "B G"]
    extra: Key[Array, " B"]


def round_keys(keys: Key[Array, " B"], position: Int[Array, " B"], gamma: int) -> RoundKeys:
    """Make a round's chances from the row's key and the slot where the round starts.

    A round starts where no other round of the row started, since each commits a token, so no two
    rounds share a key, and what a rejected guess was drawn with is never used again.
    """
    here = jax.vmap(jax.random.fold_in)(keys, position)

    def stream(number):
        return jax.vmap(jax.random.fold_in, (0, None))(here, number)

    return RoundKeys(
        guesses=jax.vmap(lambda key: jax.random.split(key, gamma))(stream(0)),
        uniforms=jax.vmap(lambda key: jax.random.uniform(key, (gamma,)))(stream(1)),
        extra=stream(2),
    )
