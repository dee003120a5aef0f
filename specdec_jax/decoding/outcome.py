"""What a decode returns: tokens, and how they came about."""

from __future__ import annotations

import enum
from typing import NamedTuple

import jax.numpy as jnp

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array, Float, Int


class Finish(enum.IntEnum):
    """Why a row stopped."""

    RUNNING = 0
    END_TOKEN = 1
    LENGTH = 2
    NOT_FINITE = 3

    def __str__(self) -> str:
        """Return the sentence for a reader."""
        return {
            Finish.RUNNING: "still running",
            Finish.END_TOKEN: "the end token came",
            Finish.LENGTH: "the length limit was reached",
            Finish.NOT_FINITE: "the target's logits are not finite (NaN or infinite)",
        }[self]


def require_finite(bad: int, lines: int) -> None:
    """Refuse outputs of which some ended as `Finish.NOT_FINITE`.

    Args:
        bad: how many did.
        lines: of how many.

    Raises:
        SpecdecError: when there are any.
    """
    if bad:
        raise SpecdecError(
            f"{bad} of {lines} lines ended because {Finish.NOT_FINITE}: "
            "check the checkpoint's weights (specdec inspect), or its dtype."
        )


class Counters(NamedTuple):
    """What a row's rounds amounted to; nothing after the end of the row counts.

    A guess is *tested* when all guesses before it in its round were accepted; it is *accepted* when
    its token entered the output. So accepted <= tested <= drafted, the ratio accepted / tested
    estimates alpha (Definition 3.1 and after), and lengths = accepted + (one token for each round
    that was not cut short).
    """

    target_runs: Int[Array, " B"]
    """Calls of the target while the row was running, of gamma + 1 tokens each."""
    gammas: Int[Array, "B N"]
    """How many of them made n guesses, n = 0 .. G; one n alone where gamma is fixed."""
    drafted: Int[Array, " B"]
    """Guesses made."""
    tested: Int[Array, "B G"]
    """Rounds in which guess g was reached."""
    accepted: Int[Array, "B G"]
    """Rounds in which guess g entered the output."""


class Rounds(NamedTuple):
    """A record of every round, for the reader (the paper's Figure 1); kept on request."""

    drafted: Int[Array, "B L G"]
    """Guesses of each round; 0 behind them where the round made fewer than G."""
    gammas: Int[Array, "B L"]
    """How many guesses the round made."""
    accepted: Int[Array, "B L"]
    """How many of them were accepted."""
    extra: Int[Array, "B L"]
    """The token that the target put behind them; 0 where the row ended on a guess."""


class Decoded(NamedTuple):
    """Result of a decode."""

    tokens: Int[Array, "B L"]
    """Generated ids, prompt left out, end token included, 0 after it."""
    lengths: Int[Array, " B"]
    """Generated tokens of each row, end token included."""
    scores: Float[Array, "B L"]
    """log p of each generated token under the target, 0 after the end."""
    finish: Int[Array, " B"]
    """`Finish` codes."""
    counters: Counters
    """Target runs and the fate of the guesses."""
    rounds: Rounds | None
    """Every round, when asked for."""

    def alpha(self) -> Float[Array, ""]:
        """Return the acceptance rate over all tested guesses (alpha of the paper); NaN if none."""
        tested = jnp.sum(self.counters.tested).astype(jnp.float32)
        return jnp.sum(self.counters.accepted).astype(jnp.float32) / tested

    def tokens_per_run(self) -> Float[Array, ""]:
        """Return generated tokens for each target run, the quantity of equation (1)."""
        runs = jnp.sum(self.counters.target_runs).astype(jnp.float32)
        return jnp.sum(self.lengths).astype(jnp.float32) / runs
