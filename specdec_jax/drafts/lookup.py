"""The draft that copies: what followed the last tokens elsewhere follows them again, it guesses.

T5 is an encoder-decoder, so "elsewhere" is the encoder's input before all: names, numbers and
quotations are copied from there. The text written so far is searched as well.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specdec_jax.decoding.contract import Choose, Draft, Proposal
from specdec_jax.sampling.types import Array, Bool, Float, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LookupDraft:
    """Copy the continuation of the longest match of the last tokens, or ask another draft.

    The match is searched in the source and in the text so far; of several longest ones the latest
    in the text is taken, then the latest in the source. A guess that is copied is certain (its q is
    one-hot), so it is accepted with the target's own probability of it.

    Attributes:
        otherwise: guesses where nothing matches, or where a copy has come to its end.
        longest: most tokens that are compared; at least 1. Static.
        shortest: matches of fewer tokens are none; in 1 .. longest. Static.
    """

    otherwise: Draft
    longest: int = dataclasses.field(default=3, metadata={"static": True})
    shortest: int = dataclasses.field(default=1, metadata={"static": True})

    @property
    def vocab_size(self) -> int:
        """V of the other draft."""
        return self.otherwise.vocab_size

    def start(self, source: Int[Array, "B S"], prompt: Int[Array, "B P"], length: int) -> tuple:
        """Keep the source."""
        return source, self.otherwise.start(source, prompt, length)

    def propose(
        self,
        state: tuple,
        sequence: Int[Array, "B T"],
        position: Int[Array, " B"],
        choose: Choose,
        gamma: int,
    ) -> tuple[Proposal, tuple]:
        """Guess gamma tokens.

        The other draft makes every guess, and is handed certainty where a token is copied: so it
        reads the copied tokens into its own state, and the guesses after them build on them.
        """
        source, other = state
        copied, known = jax.vmap(self._copy, (0, 0, 0, None))(source, sequence, position, gamma)

        def choose_or_copy(index: int, logits: Float[Array, "B V"]):
            token, sure = copied[:, index, None], known[:, index, None]
            certain = jnp.where(jnp.arange(logits.shape[-1]) == token, 0.0, -jnp.inf)
            return choose(index, jnp.where(sure, certain, logits))

        proposal, other = self.otherwise.propose(other, sequence, position, choose_or_copy, gamma)
        return proposal, (source, other)

    def _copy(
        self, source: Int[Array, " S"], sequence: Int[Array, " T"], position: Int[Array, ""], gamma
    ) -> tuple[Int[Array, " G"], Bool[Array, " G"]]:
        """Return what one row's longest match goes on with, and how far it does."""
        width = source.shape[0]
        text = jnp.concatenate([source, sequence])
        index = jnp.arange(text.shape[0], dtype=jnp.int32)
        here = width + position
        # Candidates end before the last token; padding and what is not committed are no text.
        valid = jnp.where(index < width, text != 0, index <= here)
        length = jnp.zeros(text.shape, jnp.int32)
        going = valid & (index != here)
        for back in range(self.longest):
            # A match stays on its side of the border between source and text.
            inside = jnp.where(index < width, index - back >= 0, index - back >= width)
            same = text[jnp.maximum(index - back, 0)] == text[jnp.maximum(here - back, 0)]
            going = going & inside & same & (back <= position)
            length += going.astype(jnp.int32)
        score = jnp.where(length >= self.shortest, length * text.shape[0] + index, -1)
        best = jnp.argmax(score).astype(jnp.int32)
        found = score[best] >= 0
        ahead = jnp.arange(gamma, dtype=jnp.int32)
        # A match within the text may run into its own copy: "ab ab" goes on "ab ab ..".
        period = jnp.where(best < width, text.shape[0], here - best)
        taken = jnp.minimum(best + 1 + ahead % period, text.shape[0] - 1)
        stays = (best >= width) | (taken < width)
        return text[taken], found & stays & valid[taken]
