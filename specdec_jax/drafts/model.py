"""A smaller language model as the draft, the paper's main case."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specdec_jax.decoding.contract import Choose, LanguageModel, Proposal
from specdec_jax.sampling.types import Array, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ModelDraft:
    """Guess with a language model, one token after the other.

    A round begins with the last *two* committed tokens. If the round before was accepted whole, its
    last guess was never read by the draft; one token would leave a hole there in its cache.
    """

    model: LanguageModel

    @property
    def vocab_size(self) -> int:
        """V of the model."""
        return self.model.vocab_size

    def start(self, source: Int[Array, "B S"], prompt: Int[Array, "B P"], length: int) -> Any:
        """Read the source, and the prompt but for its last token."""
        state = self.model.start(source, length)
        if prompt.shape[1] > 1:
            begin = jnp.zeros(prompt.shape[:1], jnp.int32)
            _, state = self.model.extend(state, prompt[:, :-1], begin)
        return state

    def propose(
        self,
        state: Any,
        sequence: Int[Array, "B T"],
        position: Int[Array, " B"],
        choose: Choose,
        gamma: int,
    ) -> tuple[Proposal, Any]:
        """Guess gamma tokens with gamma runs of the model."""
        # At slot 0 there is no token before the last: the pair starts there instead, and its second
        # member is whatever follows, overwritten by the next call before anything sees it.
        start = jnp.maximum(position - 1, 0)
        pair = start[:, None] + jnp.arange(2, dtype=jnp.int32)
        pair = jnp.take_along_axis(sequence, pair, axis=1)
        logits, state = self.model.extend(state, pair, start)
        logits = jnp.take_along_axis(logits, (position - start)[:, None, None], axis=1)[:, 0]
        tokens, probs = [], []
        for index in range(gamma):
            if index:
                last = tokens[-1][:, None]
                logits, state = self.model.extend(state, last, position + index)
                logits = logits[:, 0]
            token, q = choose(index, logits)
            tokens.append(token)
            probs.append(q)
        return Proposal(jnp.stack(tokens, axis=1), jnp.stack(probs, axis=1)), state
