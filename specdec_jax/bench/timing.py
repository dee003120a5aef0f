"""Clocks: what one step of each model costs, and what whole decodes take, side by side.

The machine may be shared and its speed may drift, so whatever is to be compared is measured in
turns (A B A B) in one process, after warm-up, and reported as a median with its quartiles.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.decoding import (
    Decoded,
    Draft,
    LanguageModel,
    Options,
    autoregressive,
    request,
    speculative,
)
from specdec_jax.drafts import LookupDraft, ModelDraft
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Pair
from specdec_jax.sampling import sampling
from specdec_jax.sampling.types import Array, Int


@dataclasses.dataclass(frozen=True)
class Spread:
    """A median and its quartiles, in seconds."""

    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(samples: list[float]) -> Spread:
        """Summarise samples."""
        low, median, high = np.percentile(samples, [25, 50, 75])
        return Spread(float(median), float(low), float(high), len(samples))


class Turns(NamedTuple):
    """Calls that were timed in turns, by name."""

    seconds: dict[str, list[float]]
    last: dict[str, Any]
    """What each call returned the last time."""


def in_turns(calls: Mapping[str, Callable[[], Any]], *, repeats: int, warmup: int = 1) -> Turns:
    """Time calls in turns, `repeats` times each; each waits until its arrays are there."""
    turns = Turns({name: [] for name in calls}, {})
    for turn in range(warmup + repeats):
        for name, call in calls.items():
            began = time.perf_counter()
            turns.last[name] = jax.block_until_ready(call())
            if turn >= warmup:
                turns.seconds[name].append(time.perf_counter() - began)
    return turns


@jax.jit
def start(model: Any, source: Int[Array, "B S"]) -> Any:
    """Encode a source and project cross-attention: what a decode does before its first round."""
    return model.start(source, 8)


@dataclasses.dataclass(frozen=True)
class StepCosts:
    """What the parts of a round cost.

    Attributes:
        target_step: seconds of one round of plain decoding: a token through the target, and chosen.
        draft_step: the same of the draft's model, which is what a guess costs; 0 where the draft
            runs no model, and what it does instead is part of `verify`.
        verify: seconds of a speculative round without its gamma guesses.
        c: draft_step / target_step (Definition 3.7 of arXiv:2211.17192).
        v: verify / target_step; Theorem 3.8 assumes 1.
    """

    target_step: Spread
    draft_step: Spread
    verify: Spread
    c: float
    v: float


def guessing_model(draft: Draft) -> LanguageModel | None:
    """Return the model that a draft runs for each guess, or None where it runs none."""
    while isinstance(draft, LookupDraft):
        draft = draft.otherwise
    return draft.model if isinstance(draft, ModelDraft) else None


def encoders(pair: Pair, source: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return calls that run the encoder of each model of a pair on a source, by name."""
    guesser = None if pair.draft is None else guessing_model(pair.draft)
    models = {"target_encoder": pair.target, "draft_encoder": guesser}
    tokens = jnp.asarray(source)
    return {
        name: functools.partial(start, model, tokens)
        for name, model in models.items()
        if model is not None
    }


SHORT, LONG = 4, 36
"""Limits whose difference in time is that of the steps alone."""


def step_costs(
    pair: Pair, source: np.ndarray, *, gamma: int, temperature: float = 0.0, repeats: int = 5
) -> StepCosts:
    """Measure a round's parts, by decoding the same sources to two lengths.

    The difference of two whole decodes leaves out the encoder, the start and the dispatch, and
    keeps everything that a round really does, in the program that really runs. Limits are traced,
    so both lengths are one compilation; no token ends a row.
    """
    if pair.draft is None:
        raise SpecdecError("Step costs need a draft: name one.")
    batch = source.shape[0]
    tokens = jnp.asarray(source)
    settings = sampling(batch, temperature=temperature)
    plain, spec = (Options(max_tokens=LONG, gamma=g, eos_id=-1) for g in (0, gamma))
    draft, guesser = pair.draft, guessing_model(pair.draft)

    def asked(limit: int):
        key = jax.random.key(0)
        return request(batch, key=key, max_tokens=LONG, limits=limit, settings=settings)

    requests = {limit: asked(limit) for limit in (SHORT, LONG)}
    calls: dict[str, Callable[[], Decoded]] = {}
    for limit, what in requests.items():
        calls[f"target {limit}"] = lambda r=what: autoregressive(pair.target, tokens, r, plain)
        if guesser is not None:
            calls[f"draft {limit}"] = lambda r=what: autoregressive(guesser, tokens, r, plain)
        calls[f"round {limit}"] = lambda r=what: speculative(pair.target, draft, tokens, r, spec)
    times = in_turns(calls, repeats=repeats).seconds

    def slope(name: str) -> np.ndarray:
        longer, shorter = calls[f"{name} {LONG}"](), calls[f"{name} {SHORT}"]()
        # A batch runs until its slowest row has ended.
        runs = max(longer.counters.target_runs.tolist()) - max(
            shorter.counters.target_runs.tolist()
        )
        return np.subtract(times[f"{name} {LONG}"], times[f"{name} {SHORT}"]) / runs

    target = slope("target")
    guess = np.zeros_like(target) if guesser is None else slope("draft")
    verify = slope("round") - gamma * guess
    return StepCosts(
        target_step=Spread.of(target.tolist()),
        draft_step=Spread.of(guess.tolist()),
        verify=Spread.of(verify.tolist()),
        c=float(np.median(guess) / np.median(target)),
        v=float(np.median(verify) / np.median(target)),
    )
