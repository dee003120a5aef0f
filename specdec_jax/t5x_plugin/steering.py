"""Logits that T5X's options change before a token is chosen: forced tokens and callbacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from t5x import decoding as t5x_decoding

from specdec_jax.decoding import LanguageModel
from specdec_jax.sampling.types import Array, Float, Int

LogitCallback = Callable[[Array, t5x_decoding.SamplingLoopState], Array]


class SteeredState(NamedTuple):
    """The inner model's state, and the tokens read so far."""

    inner: Any
    sequence: Int[Array, "B T"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Steered:
    """A language model whose logits a callback may change, and some of whose tokens are given.

    T5X calls `logit_callback_fn(logits [B, V], state)` before each token. Verification has the
    logits of gamma + 1 positions at once, so the callback is called for each of them, with what
    T5X's state would be if the guesses before it are accepted (if not, nothing of it is used):

    - `cur_index` [B]: the row's position; `step` is the same as [B, 1], for rows advance unevenly;
    - `sequences` [B, L + 2]: the row's tokens up to that position, prompt tokens to come, else 0;
    - `cur_token` [B, 1]: the token at that position; `ended` [B, 1]: False, as in every row that
      still counts;
    - `cache`, `rng` and `log_prob` are None: a callback that reads them fails, and is not misled.

    Attributes:
        model: the model steered.
        given: int32 [B, L]; nonzero where the token of a slot is given (T5X's `inputs`).
        callback: static; None leaves the logits as they are.
        block: most tokens of a verification; longer reads are prompts, whose logits nobody
            reads.
    """

    model: LanguageModel
    given: Int[Array, "B L"]
    callback: LogitCallback | None = dataclasses.field(metadata={"static": True})
    block: int = dataclasses.field(metadata={"static": True})

    @property
    def vocab_size(self) -> int:
        """V of the model."""
        return self.model.vocab_size

    def start(self, source: Int[Array, "B S"], length: int) -> SteeredState:
        """Start the model, with no tokens read."""
        sequence = jnp.zeros((source.shape[0], length), jnp.int32)
        return SteeredState(self.model.start(source, length), sequence)

    def extend(
        self, state: SteeredState, tokens: Int[Array, "B N"], position: Int[Array, " B"]
    ) -> tuple[Float[Array, "B N V"], SteeredState]:
        """Read tokens as the model does, and steer its logits."""
        logits, inner = self.model.extend(state.inner, tokens, position)

        def row(sequence, new, start):
            return jax.lax.dynamic_update_slice(sequence, new, (start,))

        sequence = jax.vmap(row)(state.sequence, tokens, position)
        state = SteeredState(inner, sequence)
        if tokens.shape[1] > self.block:
            return logits, state
        steered = [
            self._steer(logits[:, n], sequence, tokens[:, n], position + n)
            for n in range(tokens.shape[1])
        ]
        return jnp.stack(steered, axis=1), state

    def _steer(
        self,
        logits: Float[Array, "B V"],
        sequence: Int[Array, "B T"],
        token: Int[Array, " B"],
        position: Int[Array, " B"],
    ) -> Float[Array, "B V"]:
        length = self.given.shape[1]
        given = jnp.pad(self.given, ((0, 0), (0, 2)))
        if self.callback is not None:
            read = jnp.arange(length + 2) <= position[:, None]
            padded = jnp.pad(sequence, ((0, 0), (0, max(0, length + 2 - sequence.shape[1]))))
            seen = jnp.where(read, padded[:, : length + 2], given)
            logits = self.callback(
                logits,
                t5x_decoding.SamplingLoopState(
                    step=position[:, None],
                    cur_index=position,
                    sequences=seen,
                    cache=None,
                    cur_token=token[:, None],
                    ended=jnp.zeros((position.shape[0], 1), jnp.bool_),
                    rng=None,
                    log_prob=None,
                ),
            ).astype(jnp.float32)
        # One possible token: chosen by every rule, guessed by the draft as well, of log p = 0.
        index = jnp.minimum(position + 1, length + 1)[:, None]
        forced = jnp.take_along_axis(given, index, axis=1)
        one = jnp.where(jnp.arange(logits.shape[-1]) == forced, 0.0, -jnp.inf)
        return jnp.where(forced != 0, one, logits)
