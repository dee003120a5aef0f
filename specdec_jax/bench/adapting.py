"""Whether choosing gamma before each round gains anything over the best fixed one, measured."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from specdec_jax.bench.compare import rows_of
from specdec_jax.bench.timing import Spread, in_turns
from specdec_jax.generate import Pair, Settings, decode

CHOICES = (0, 1, 3, 7)
"""Numbers of guesses to choose among: few, since each is a verifying call that is compiled, and
those for which a CPU multiplies well."""
WIDEST = 7
"""The largest choice where no gamma pays: then what adapting costs is measured."""


def choices(gamma: int) -> tuple[int, ...]:
    """Return what a batch chooses among, up to a gamma.

    Example:
        >>> choices(5)
        (0, 1, 3, 5)
    """
    return (*(each for each in CHOICES if each < gamma), gamma)


def adapting(
    pair: Pair,
    encoded: Sequence[np.ndarray],
    settings: Settings,
    *,
    gamma: int,
    alpha: float,
    c: float,
    v: Mapping[int, float],
    lines: int,
    repeats: int,
    progress: bool = True,
) -> dict[str, Any]:
    """Decode the same batches plainly, with one gamma, and with one chosen before each round.

    Args:
        pair: with a draft.
        encoded: batches of sources.
        settings: all but gamma.
        gamma: the fixed one; 0 where no guess pays.
        alpha: for the choice, see `Settings`.
        c: likewise.
        v: likewise.
        lines: how many there are; rows beyond them only fill the last batch.
        repeats: decodes of each batch, each way.
        progress: whether to show a bar.

    Returns:
        `gammas` to choose among; for `plain`, `fixed` and `adaptive` the `seconds` (sums over the
        batches of medians) and `tokens_per_run`; and `adaptive_over_fixed`, the fixed way's seconds
        over the adaptive way's, with its spread over the repeats.
    """
    given = choices(gamma or WIDEST)
    known = {"alpha": alpha, "c": c, "v": dict(v)}
    ways = {
        "plain": dataclasses.replace(settings, gamma=0),
        "fixed": dataclasses.replace(settings, gamma=gamma),
        "adaptive": dataclasses.replace(settings, gamma=given[-1], gammas=given, **known),
    }
    if not gamma:
        del ways["fixed"]
    size = settings.batch_size
    seconds: dict[str, list[list[float]]] = {name: [] for name in ways}
    runs, tokens = dict.fromkeys(ways, 0), dict.fromkeys(ways, 0)
    warm = set()
    for index, batch in enumerate(
        tqdm(encoded, desc="adapting", disable=not progress, leave=False)
    ):
        rows = rows_of(index, size, lines, settings.max_tokens)
        timed = in_turns(
            {
                name: functools.partial(decode, pair, batch, way, **rows)
                for name, way in ways.items()
            },
            repeats=repeats,
            warmup=int(batch.shape not in warm),
        )
        warm.add(batch.shape)
        for name, decoded in timed.last.items():
            seconds[name].append(timed.seconds[name])
            runs[name] += int(np.asarray(decoded.counters.target_runs).sum())
            tokens[name] += int(np.asarray(decoded.lengths).sum())
    fixed = seconds["fixed" if gamma else "plain"]
    by_repeat = np.sum(fixed, 0) / np.sum(seconds["adaptive"], 0)
    return {
        "gammas": list(given),
        "gamma": gamma,
        "seconds": {n: float(np.median(each, 1).sum()) for n, each in seconds.items()},
        "tokens_per_run": {name: tokens[name] / runs[name] for name in ways},
        "adaptive_over_fixed": dataclasses.asdict(Spread.of(by_repeat.tolist())),
    }
