"""Tables of what follows the last tokens: the drafts of no cost of the paper's section 3.6.

The smallest table is one line of equal probabilities: the draft that knows nothing, the floor.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec_jax.decoding.contract import Choose, Proposal
from specdec_jax.sampling.types import Array, Float, Int


class Continuations(NamedTuple):
    """What follows each known context of one length; K continuations are kept of each.

    Stored and remaining probability sum to one: ``probs[c].sum() + rest[c] == 1``.
    """

    contexts: Int[Array, " C"]
    """Sorted codes, see `context_code`."""
    tokens: Int[Array, "C K"]
    """The most frequent continuations; unused places repeat one, with probability 0."""
    probs: Float[Array, "C K"]
    rest: Float[Array, " C"]
    """What is left to the distribution of the context that is one token shorter."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NGramDraft:
    """Guess from counted n-grams, backing off to ever shorter contexts.

    The distribution after a context is its stored continuations, and the shorter context's
    distribution for the rest (interpolated back-off, of one weight for each context); a context
    that was never counted is the shorter one's. With no `levels` the draft is the unigram. It
    remembers nothing: rewinding it is free.

    Attributes:
        unigram: float32 [V], probabilities.
        levels: continuations of contexts of 1, 2, .. tokens.
    """

    unigram: Float[Array, " V"]
    levels: tuple[Continuations, ...] = ()

    @classmethod
    def uniform(cls, vocab_size: int) -> NGramDraft:
        """Return the draft that guesses at random; exact like any draft, and useless."""
        return cls(jnp.full((vocab_size,), 1 / vocab_size, jnp.float32))

    @property
    def vocab_size(self) -> int:
        """V of the tables."""
        return self.unigram.shape[0]

    def start(self, source: Int[Array, "B S"], prompt: Int[Array, "B P"], length: int) -> tuple:
        """Remember nothing."""
        del source, prompt, length
        return ()

    def propose(
        self,
        state: tuple,
        sequence: Int[Array, "B T"],
        position: Int[Array, " B"],
        choose: Choose,
        gamma: int,
    ) -> tuple[Proposal, tuple]:
        """Guess gamma tokens, each from the tokens before it."""
        # Slots before the first hold the start token, as they do in counting.
        slots = position[:, None] - jnp.arange(len(self.levels) - 1, -1, -1, dtype=jnp.int32)
        past = jnp.take_along_axis(sequence, jnp.maximum(slots, 0), axis=1)
        past = jnp.where(slots >= 0, past, 0)
        guesses = []
        for index in range(gamma):
            token, q = choose(index, jnp.log(self.probabilities(past)))
            guesses.append((token, q))
            past = jnp.concatenate([past, token[:, None]], axis=1)[:, 1:] if self.levels else past
        tokens, probs = (jnp.stack(part, axis=1) for part in zip(*guesses, strict=True))
        return Proposal(tokens, probs), state

    def describe(self) -> str:
        """Return the order and the size in words."""
        order = len(self.levels) + 1
        counted = sum(level.contexts.shape[0] for level in self.levels)
        contexts = f" of {counted} contexts" if self.levels else ""
        return f"{order}-gram{contexts} V{self.vocab_size}"

    def probabilities(self, past: Int[Array, "B N"]) -> Float[Array, "B V"]:
        """Return the distribution after the last N tokens, N the number of levels."""
        q = jnp.broadcast_to(self.unigram, (past.shape[0], self.vocab_size))
        for width, level in enumerate(self.levels, 1):
            q = jax.vmap(_back_off, (None, 0, 0))(
                level, context_code(past[:, past.shape[1] - width :], self.vocab_size), q
            )
        return q


def _back_off(level: Continuations, code: Int[Array, ""], shorter: Float[Array, " V"]) -> Array:
    place = jnp.searchsorted(level.contexts, code)
    place = jnp.minimum(place, level.contexts.shape[0] - 1)
    longer = (level.rest[place] * shorter).at[level.tokens[place]].add(level.probs[place])
    return jnp.where(level.contexts[place] == code, longer, shorter)


def context_code(tokens: Int[Array, "B N"], vocab_size: int) -> Int[Array, " B"]:
    """Number the contexts of N tokens: base V, the last token the lowest digit.

    The caller keeps V**N below 2**31, where int32 ends.
    """
    code = jnp.zeros(tokens.shape[:1], jnp.int32)
    for column in range(tokens.shape[1]):
        code = code * vocab_size + tokens[:, column]
    return code
