"""The draft that knows nothing: every id alike (section 3.6 of arXiv:2211.17192, the floor)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specdec_jax.decoding.contract import Choose, Proposal
from specdec_jax.sampling.types import Array, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UniformDraft:
    """Guess at random; exact like any draft, and useless."""

    vocab_size: int = dataclasses.field(metadata={"static": True})

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
        """Guess gamma tokens."""
        del position
        flat = jnp.zeros((sequence.shape[0], self.vocab_size), jnp.float32)
        guesses = [choose(index, flat) for index in range(gamma)]
        tokens, probs = (jnp.stack(part, axis=1) for part in zip(*guesses, strict=True))
        return Proposal(tokens, probs), state
