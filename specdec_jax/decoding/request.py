"""What is asked of a decode: `Request` is traced, `Options` is compiled in."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from specdec_jax.decoding.adaptive import Pace
from specdec_jax.decoding.randomness import Noise, RowNoise, row_keys
from specdec_jax.errors import SpecdecError
from specdec_jax.sampling import Sampling, check_rule, sampling
from specdec_jax.sampling.types import Array, Int, Key


class Request(NamedTuple):
    """The rows of a batch and how each is to be decoded. Changing any of it compiles nothing."""

    prompt: Int[Array, "B P"]
    """Start token, then what the output has to begin with; P >= 1."""
    prompt_lengths: Int[Array, " B"]
    """Columns of `prompt` that belong to each row, start token included; at least 1."""
    limits: Int[Array, " B"]
    """Most tokens that each row may generate."""
    sampling: Sampling
    """How the target's tokens are chosen."""
    draft_sampling: Sampling
    """How the draft's are; any setting is exact, the same as the target's is usually the best."""
    keys: Key[Array, " B"]
    """A key for each row."""
    noise: Noise
    """What plain decoding and the coupled rule choose with."""
    pace: Pace | None = None
    """What rounds cost, where the batch chooses their gamma."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What shapes the program; changing any of it compiles anew.

    Attributes:
        max_tokens: L >= 1, room for generated tokens.
        gamma: guesses of a round; 0 is plain decoding, and the draft is never called.
        gammas: the numbers of guesses among which the batch chooses before each round, ascending,
            `gamma` the last (see `specdec_jax.decoding.adaptive`); empty: always `gamma`.
        rule: how guesses are verified, see `specdec_jax.sampling.RULES`.
        lenience: below 1, the output is no longer the target's (A.5); rejection rule only.
        eos_id: the end token.
        adjusted_scores: scores from the adjusted distribution (T5X's `rescale_log_probs`) instead
            of from the target's own.
        record: keep every round (`Decoded.rounds`).
    """

    max_tokens: int = 128
    gamma: int = 0
    gammas: tuple[int, ...] = ()
    rule: str = "rejection"
    lenience: float = 1.0
    eos_id: int = 1
    adjusted_scores: bool = False
    record: bool = False

    def __post_init__(self):
        """Refuse what cannot be meant."""
        if self.max_tokens < 1:
            raise SpecdecError(
                f"max_tokens is {self.max_tokens}, but must be at least 1; "
                "to generate nothing for some rows, set their limits to 0."
            )
        if self.gamma < 0:
            raise SpecdecError(f"gamma is {self.gamma}, but must be 0 (no draft) or more.")
        ascending = self.gammas == tuple(sorted({*self.gammas, self.gamma}))
        if self.gammas and (not ascending or self.gammas[0] < 0):
            raise SpecdecError(
                f"gammas is {self.gammas} and gamma {self.gamma}, but gammas must be whole numbers "
                "from 0 on, ascending, and gamma the last of them."
            )
        check_rule(self.rule)
        if self.lenience != 1.0 and self.rule != "rejection":
            raise SpecdecError(
                f"lenience is {self.lenience} with the {self.rule} rule, "
                "but only the rejection rule can be lenient: set lenience to 1."
            )


def request(
    batch: int,
    *,
    key: Key[Array, "*rows"],
    max_tokens: int,
    limits: int | np.ndarray | Array | None = None,
    prompt: Int[Array, "B P"] | None = None,
    prompt_lengths: Int[Array, " B"] | None = None,
    settings: Sampling | None = None,
    draft_settings: Sampling | None = None,
    pace: Pace | None = None,
) -> Request:
    """Fill in what a caller leaves out.

    Args:
        batch: B.
        key: one key, or one for each row. With one, row b gets it folded with b.
        max_tokens: L.
        limits: most generated tokens of each row, in 0 .. L; L when left out.
        prompt: int32 [B, P], the start token first; the start token 0 alone when left out.
        prompt_lengths: columns of each row's prompt, start token included; P when left out.
        settings: how the target's tokens are chosen; argmax when left out.
        draft_settings: how the draft's are; as the target's when left out.
        pace: what rounds cost, from `specdec_jax.decoding.adaptive.pace`; for `Options.gammas`.

    Raises:
        SpecdecError: for limits outside 0 .. max_tokens, or prompt lengths outside 1 .. P.
    """
    limits = max_tokens if limits is None else limits
    _check_range("limits", limits, 0, max_tokens, "raise max_tokens or lower the limits")
    prompt = jnp.zeros((batch, 1), jnp.int32) if prompt is None else prompt
    width = prompt.shape[1]
    lengths = width if prompt_lengths is None else prompt_lengths
    _check_range("prompt_lengths", lengths, 1, width, "a prompt begins with the start token")
    settings = sampling(batch) if settings is None else settings
    keys = row_keys(key, batch)
    return Request(
        prompt=prompt,
        prompt_lengths=_rows(lengths, batch),
        limits=_rows(limits, batch),
        sampling=settings,
        draft_sampling=settings if draft_settings is None else draft_settings,
        keys=keys,
        noise=RowNoise(keys),
        pace=pace,
    )


def _rows(value: int | np.ndarray | Array, batch: int) -> Int[Array, " B"]:
    return jnp.broadcast_to(jnp.asarray(value, jnp.int32), (batch,))


def _check_range(name: str, value: int | np.ndarray | Array, low: int, high: int, remedy: str):
    if isinstance(value, Tracer):
        return
    given = np.asarray(value)
    if given.size and (given.min() < low or given.max() > high):
        worst = given.min() if given.min() < low else given.max()
        raise SpecdecError(f"{name} holds {worst}, outside {low} .. {high}: {remedy}.")
