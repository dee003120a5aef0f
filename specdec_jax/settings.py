"""How to decode: what a caller chooses, checked before a model is loaded for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from specdec_jax import text
from specdec_jax.decoding import Options, Pace, pace
from specdec_jax.errors import SpecdecError
from specdec_jax.sampling import Sampling, sampling


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to decode, for all lines alike.

    Attributes:
        gamma: guesses of a round; 0 decodes with the target alone.
        gammas: the numbers of guesses, `gamma` the last, among which each batch chooses before each
            round by c and v (see `specdec_jax.decoding.adaptive`); empty: always `gamma`.
        c: one draft step / one target step, as measured (`specdec tune`); for `gammas`.
        v: tokens of a verifying call -> its cost in target steps, as measured; for `gammas`.
        alpha: of the pair, as measured, from which the choice among `gammas` starts; None knows
            nothing before the first round.
        temperature: 0 is argmax.
        top_k: 0 is off.
        top_p: 1 is off.
        draft_temperature: the draft's own; None is the target's. Any setting is exact.
        draft_top_k: likewise.
        draft_top_p: likewise.
        rule: see `specdec_jax.sampling.RULES`.
        lenience: in (0, 1]; below 1, the output is no longer the target's.
        max_tokens: of a line's output, end token included.
        batch_size: lines decoded together.
        seed: of every line's key, in 0 .. 2^32 - 1: JAX reads no more bits than that.
        record: keep the rounds of every line.

    Raises:
        SpecdecError: for a value outside its range.
    """

    gamma: int = 7
    gammas: tuple[int, ...] = ()
    c: float | None = None
    v: Mapping[int, float] | None = None
    alpha: float | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    draft_temperature: float | None = None
    draft_top_k: int | None = None
    draft_top_p: float | None = None
    rule: str = "rejection"
    lenience: float = 1.0
    max_tokens: int = 128
    batch_size: int = 1
    seed: int = 0
    record: bool = False

    def __post_init__(self):
        """Refuse what cannot be meant, before a model is loaded for it."""
        if self.batch_size < 1:
            raise SpecdecError(f"batch_size is {self.batch_size}, but must be at least 1.")
        if not 0 < self.lenience <= 1:
            raise SpecdecError(
                f"lenience is {self.lenience}, but must be above 0 and at most 1 (1 is lossless)."
            )
        if not 0 <= self.seed < 2**32:
            raise SpecdecError(f"seed is {self.seed}, but must be in 0 .. {2**32 - 1}.")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise SpecdecError(f"alpha is {self.alpha}, but must be in 0 .. 1.")
        if self.gammas and (self.c is None or not self.v):
            raise SpecdecError(
                f"gammas is {self.gammas}, but nothing says what they cost: give c and v."
            )
        self.pace()
        self.options(text.EOS_ID)
        self.sampling(1)
        self.draft_sampling(1)

    def sampling(self, batch: int) -> Sampling:
        """Return how the rows of a batch choose their tokens."""
        return sampling(batch, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)

    def draft_sampling(self, batch: int) -> Sampling:
        """Return how the draft chooses its guesses."""

        def own(name: str) -> Any:
            value = getattr(self, f"draft_{name}")
            return getattr(self, name) if value is None else value

        return sampling(batch, **{name: own(name) for name in ("temperature", "top_k", "top_p")})

    def pace(self) -> Pace | None:
        """Return what rounds cost, where the batch chooses among them."""
        if not (self.gamma and self.gammas) or self.c is None or self.v is None:
            return None
        if self.alpha is None:
            return pace(self.gammas, c=self.c, v=self.v)
        # As heavy as two guesses that were seen, like the prior that knows nothing.
        accepted = min(max(2 * self.alpha, 0.01), 1.99)
        return pace(self.gammas, c=self.c, v=self.v, accepted=accepted, rejected=2 - accepted)

    def options(self, eos_id: int) -> Options:
        """Return the part that is compiled in."""
        return Options(
            max_tokens=self.max_tokens,
            gamma=self.gamma,
            # With gamma 0, as a baseline has it, there is nothing to choose.
            gammas=self.gammas if self.gamma else (),
            rule=self.rule,
            lenience=self.lenience,
            eos_id=eos_id,
            record=self.record,
        )
