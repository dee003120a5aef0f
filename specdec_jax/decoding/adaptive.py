"""How many tokens to guess, chosen by the batch before each round.

A round of gamma guesses costs gamma c + v(gamma + 1) target steps and is expected to yield

    E_b(gamma) = (1 - alpha_b^(gamma + 1)) / (1 - alpha_b)        Eq. (1)

tokens of row b. The batch takes the gamma of its `Options.gammas` with the most tokens for the
cost, all running rows together: the largest sum_b E_b(gamma) / (gamma c + v(gamma + 1)), Theorem
3.8 with the cost of verification. alpha_b is estimated from the row's own rounds in this call.

Zero is final. A round without guesses tests none, so nothing could be learnt from which to start
again, and a model draft would have to read first what it missed; so once the batch has chosen 0 it
decodes plainly to the end of the call, and the draft is not asked again. Where 0 is not among the
gammas, the batch always guesses.

Why the law stays exact. Let H be all that happened before a round: what every row committed, which
guesses were made, how many were accepted. gamma is a function of H and of nothing else; above all
not of what this round draws.

- Rejection and block rule: the chances of a round come from the row's key and the slot at which the
  round starts (`randomness.round_keys`). No earlier round of the row started there, whatever the
  gammas were, so given H they are fresh, those of guesses that are made again for the same slot
  included. Given H gamma is a constant, and for every constant the tokens that a round commits,
  continued with the target, are the target's (A.1 of arXiv:2211.17192; `sampling.accept_block`).
  The rounds that continue them are of this kind again, so by induction from the end the text of a
  row, given H, follows the target after the row's own prefix. Nothing else of H appears in that
  law: rows do not influence each other, although gamma is common to them.
- Coupled rule: the token of a slot is argmax(adjusted logits + noise of row and slot), whatever
  was guessed. Guessing a slot again meets the same noise, by which draft and target choose the
  same as before; gamma decides only in how many rounds the tokens are found.

The law, not the sample: with the rejection and block rules another gamma uses other chances, so a
row's tokens may differ with its batch mates and with the costs given. With the coupled rule, and at
temperature 0, they do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from specdec_jax import theory
from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array, Bool, Float, Int


class Pace(NamedTuple):
    """What the choice goes by; all of it traced, so measuring anew compiles nothing."""

    costs: Float[Array | np.ndarray, " K"]
    """Of a round, for each of `Options.gammas`, in target steps of one token."""
    accepted: Float[Array | np.ndarray, ""]
    """Parameter a of the Beta(a, b) from which alpha_b is estimated: guesses accepted before."""
    rejected: Float[Array | np.ndarray, ""]
    """Parameter b."""
    memory: Float[Array | np.ndarray, ""]
    """What a round's counts still weigh one round later, in (0, 1]; 1 forgets nothing."""


class Estimate(NamedTuple):
    """What the rounds of this call have shown, and what follows from it; carried by the loop."""

    accepted: Float[Array, " B"]
    """Guesses accepted, older rounds with less weight, and the prior's a as the oldest."""
    rejected: Float[Array, " B"]
    """Guesses rejected, likewise."""
    choice: Int[Array, ""]
    """Which of the gammas the next round takes."""
    plain: Bool[Array, ""]
    """Whether there has been a round without guesses."""


def pace(
    gammas: tuple[int, ...],
    *,
    c: float,
    v: Mapping[int, float],
    accepted: float = 1.0,
    rejected: float = 1.0,
    memory: float = 0.9,
) -> Pace:
    """Turn measured costs into what `request` takes.

    The default prior, uniform on [0, 1], is given up after a few rounds: a good draft gets the
    largest gamma from the second on, a useless one is dropped after two or three.

    Args:
        gammas: as in `Options`.
        c: one draft step / one target step (Definition 3.7).
        v: tokens per call, >= 2 -> time of that call / one target step; other lengths are read from
            the curve through these (`theory.verify_cost`). Tokens per call are gamma + 1.
        accepted: a of the prior Beta(a, b), above 0.
        rejected: b, above 0; a / (a + b) is alpha before the first round.
        memory: in (0, 1].

    Raises:
        SpecdecError: where a number is outside its range.
    """
    for name, value in (("accepted", accepted), ("rejected", rejected), ("memory", memory)):
        if not (0 < value < np.inf and (name != "memory" or value <= 1)):
            bounds = "above 0 and at most 1" if name == "memory" else "a number above 0"
            raise SpecdecError(f"{name} is {value}, but must be {bounds}.")
    if not 0 <= c < np.inf:
        raise SpecdecError(f"c is {c}, but must be a number from 0 on: a draft step's cost.")
    widths = np.asarray(gammas)
    costs = widths * c + np.asarray(theory.verify_cost(v)(widths + 1))
    numbers = (costs, accepted, rejected, memory)
    # NumPy's, which a mesh of several hosts takes as common to all.
    return Pace(*(np.asarray(number, np.float32) for number in numbers))


def begin(running: Bool[Array, " B"], pace: Pace, gammas: tuple[int, ...]) -> Estimate:
    """Choose the first round's gamma, from the prior alone."""
    unseen = Estimate(
        accepted=jnp.full(running.shape, pace.accepted, jnp.float32),
        rejected=jnp.full(running.shape, pace.rejected, jnp.float32),
        choice=jnp.int32(0),
        plain=jnp.asarray(False),
    )
    return _choose(unseen, running, pace, gammas)


def learn(
    estimate: Estimate,
    accepted: Int[Array, " B"],
    gamma: int,
    running: Bool[Array, " B"],
    pace: Pace,
    gammas: tuple[int, ...],
) -> Estimate:
    """Take in a round and choose the next one's gamma.

    Args:
        estimate: before the round.
        accepted: how many of its guesses were; the one after them, if there was one, was rejected.
        gamma: how many it made.
        running: which rows still run.
        pace: what rounds cost.
        gammas: as in `Options`.
    """
    rejected = accepted < gamma
    seen = estimate._replace(
        accepted=pace.memory * estimate.accepted + accepted.astype(jnp.float32),
        rejected=pace.memory * estimate.rejected + rejected.astype(jnp.float32),
        plain=jnp.asarray(gamma == 0),
    )
    return _choose(seen, running, pace, gammas)


def _choose(
    estimate: Estimate, running: Bool[Array, " B"], pace: Pace, gammas: tuple[int, ...]
) -> Estimate:
    # The prior is in the counts and forgotten with them, or a useless draft might never be dropped.
    alpha = estimate.accepted / (estimate.accepted + estimate.rejected)
    tokens = theory.expected_tokens(alpha[:, None], gamma=np.asarray(gammas))
    gain = jnp.sum(jnp.where(running[:, None], tokens, 0.0), axis=0) / pace.costs
    # The least of equals. Where there was a round of no guesses, 0 is the first of the gammas.
    best = jnp.argmax(gain).astype(jnp.int32)
    return estimate._replace(choice=jnp.where(estimate.plain, 0, best))
