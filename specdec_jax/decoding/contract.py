"""What a model and a draft must offer to be decoded with.

Both are pytrees: parameters are leaves, everything else is static. One compiled loop then serves
every checkpoint of a shape, and parameters are arguments, never constants of the program.

Slots. A row's decoder input is a sequence: slot 0 holds the start token, then come the prompt and
the generated tokens. `position[b]` is the slot of row b's last committed token, the one whose
successor is to be found next. Rows advance unevenly, so every position belongs to a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from specdec_jax.sampling.types import Array, Float, Int

State = Any
"""A pytree that only its owner looks into."""


@runtime_checkable
class LanguageModel(Protocol):
    """A target, or what a model draft wraps."""

    @property
    def vocab_size(self) -> int:
        """V: ids 0 .. V - 1 can be read and emitted; padding of the vocabulary is left out."""
        ...

    def start(self, source: Int[Array, "B S"], length: int) -> State:
        """Read the source and make room for `length` slots.

        Whatever depends on the source alone (encoder, cross-attention keys and values) is computed
        here, once.
        """
        ...

    def extend(
        self, state: State, tokens: Int[Array, "B N"], position: Int[Array, " B"]
    ) -> tuple[Float[Array, "B N V"], State]:
        """Read tokens into slots position[b] .. position[b] + N - 1, OVERWRITING what was there.

        A token sees the slots up to its own and none after it. So rewinding is calling `extend`
        again from an earlier position: nothing is copied, cropped or zeroed.

        Returns:
            float32 logits, at n for the token of slot position + n + 1; and the state.
        """
        ...


@runtime_checkable
class Choose(Protocol):
    """How a draft turns logits into a guess; the loop provides it.

    Settings, keys and the verification rule stay with the loop: a draft that draws for itself
    could draw from another distribution than the one that it reports, and the law would be wrong.
    """

    def __call__(
        self, index: int, logits: Float[Array, "B V"]
    ) -> tuple[Int[Array, " B"], Float[Array, "B V"]]:
        """Choose guess `index` (from 0) of the round: its token, and the q that it came from."""
        ...


class Proposal(NamedTuple):
    """A round's guesses.

    Attributes:
        tokens: int32 [B, G].
        probs: float32 [B, G, V], the distributions that the tokens were drawn from, to the bit;
            one-hot for a guess without chance.
    """

    tokens: Int[Array, "B G"]
    probs: Float[Array, "B G V"]


@runtime_checkable
class Draft(Protocol):
    """The approximation model M_q of the paper, or anything else that guesses."""

    @property
    def vocab_size(self) -> int:
        """V, the same as the target's."""
        ...

    def start(self, source: Int[Array, "B S"], prompt: Int[Array, "B P"], length: int) -> State:
        """Read the source and the prompt (slots 0 .. P - 1, start token first)."""
        ...

    def propose(
        self,
        state: State,
        sequence: Int[Array, "B T"],
        position: Int[Array, " B"],
        choose: Choose,
        gamma: int,
    ) -> tuple[Proposal, State]:
        """Guess the tokens of slots position + 1 .. position + gamma.

        Args:
            state: the draft's own.
            sequence: committed tokens up to `position`; what is behind it means nothing.
            position: [B].
            choose: draws each guess.
            gamma: G >= 1, static.
        """
        ...
