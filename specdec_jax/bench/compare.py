"""Plain and speculative decoding of the same lines, in turns, and what theory says of the ratio."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from specdec_jax import text, theory
from specdec_jax.bench.timing import Spread, StepCosts, in_turns, step_costs
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Line, Pair, Settings, decode, unpack


@dataclasses.dataclass(frozen=True)
class LineResult:
    """One batch of lines decoded both ways."""

    plain: list[Line]
    speculative: list[Line]
    seconds_plain: list[float]
    seconds_speculative: list[float]


def sources(pair: Pair, lines: Sequence[str], prefix: str, multiple: int = 16) -> np.ndarray:
    """Encode lines to one common width, so that all of them are one compilation.

    Raises:
        SpecdecError: for no lines.
    """
    if not lines:
        raise SpecdecError("There are no lines to decode: give at least one.")
    longest = max(len(pair.vocabulary.encode(prefix + line)) + 1 for line in lines)
    width = -(-longest // multiple) * multiple
    return text.encode_batch(pair.vocabulary, [prefix + line for line in lines], buckets=(width,))


def compare(
    pair: Pair,
    lines: Sequence[str],
    settings: Settings,
    *,
    prefix: str,
    repeats: int = 1,
    progress: bool = True,
) -> Iterator[LineResult]:
    """Decode every line plainly and speculatively, in turns.

    Compilation and one warm-up run happen before the first clock starts. The timed region is the
    whole decode: both encoders, every round; text and ids are converted outside of it.

    Args:
        pair: with a draft.
        lines: sources without prefix.
        settings: of the speculative run; the plain one differs in gamma alone.
        prefix: put before each line.
        repeats: times that each line is decoded each way.
        progress: whether to show a bar.
    """
    encoded = sources(pair, lines, prefix)
    size = settings.batch_size
    ways = {"plain": dataclasses.replace(settings, gamma=0), "speculative": settings}

    def calls(start: int) -> dict[str, Callable[[], Any]]:
        rows = np.arange(start, start + size) % len(lines)
        limits = np.where(np.arange(start, start + size) < len(lines), settings.max_tokens, 0)
        return {
            name: functools.partial(
                decode,
                pair,
                encoded[rows],
                way,
                numbers=np.arange(start, start + size),
                limits=limits,
            )
            for name, way in ways.items()
        }

    for call in calls(0).values():
        jax.block_until_ready(call())
    starts = range(0, len(lines), size)
    for start in tqdm(starts, desc="decoding both ways", disable=not progress, leave=False):
        here = calls(start)
        decoded: dict[str, Any] = {}

        def keep(name: str, here=here, decoded=decoded):
            decoded[name] = here[name]()
            return decoded[name]

        timed = in_turns(
            {name: functools.partial(keep, name) for name in here}, repeats=repeats, warmup=0
        )
        part = lines[start : start + size]
        yield LineResult(
            plain=unpack(decoded["plain"], part, pair.vocabulary),
            speculative=unpack(decoded["speculative"], part, pair.vocabulary),
            seconds_plain=timed["plain"],
            seconds_speculative=timed["speculative"],
        )


def summarise(
    pair: Pair, results: Sequence[LineResult], settings: Settings, costs: StepCosts
) -> dict[str, Any]:
    """Put a comparison into one record.

    `predicted_speedup` is E[tokens] / (gamma c + v) with the measured tokens per target run, which
    is Theorem 3.8 of arXiv:2211.17192 where v = 1. Like the theorem it leaves out the encoders.
    Where noise has made a cost negative, as a busy machine does to small models, it is None.
    """
    spec = [line for result in results for line in result.speculative]
    plain = [line for result in results for line in result.plain]
    tokens = sum(len(line.tokens) for line in spec)
    runs = sum(line.target_runs for line in spec)
    tested = sum(line.tested for line in spec)
    accepted = sum(line.accepted for line in spec)
    # A line's median over the repeats, summed: one slow moment of the machine is not a result.
    seconds_plain = sum(float(np.median(r.seconds_plain)) for r in results)
    seconds_spec = sum(float(np.median(r.seconds_speculative)) for r in results)
    ratios = [float(np.median(r.seconds_plain) / np.median(r.seconds_speculative)) for r in results]
    gamma = settings.gamma
    # A batch ends with its slowest row, so its rounds are those of that row.
    rounds = sum(max(line.target_runs for line in r.speculative) for r in results)
    steps = sum(max(line.target_runs for line in r.plain) for r in results)
    return {
        "sentences": len(spec),
        "tokens": tokens,
        "identical": sum(a.tokens == b.tokens for a, b in zip(plain, spec, strict=True)),
        "gamma": gamma,
        "temperature": settings.temperature,
        "batch": settings.batch_size,
        "rule": settings.rule,
        "lossy": settings.lenience < 1,
        "alpha": accepted / tested if tested else None,
        "tokens_per_run": tokens / runs,
        "c": costs.c,
        "v": costs.v,
        "seconds_plain": seconds_plain,
        "seconds_speculative": seconds_spec,
        "speedup": seconds_plain / seconds_spec,
        "speedup_by_batch": dataclasses.asdict(Spread.of(ratios)),
        "predicted_speedup": _predict(steps / rounds, gamma, costs),
        "step_seconds": {
            name: dataclasses.asdict(getattr(costs, name))
            for name in ("target_step", "draft_step", "verify")
        },
        "target_shape": pair.target_shape,
        "draft_shape": pair.draft_shape,
        "timed": "encoders and all rounds, after compilation and warm-up; text conversion left out",
    }


def _predict(tokens: float, gamma: int, costs: StepCosts) -> float | None:
    if min(costs.target_step.median, costs.draft_step.median, costs.verify.median) <= 0:
        return None
    return float(theory.walltime_improvement_from_tokens(tokens, gamma=gamma, c=costs.c, v=costs.v))


def costs_for(
    pair: Pair, lines: Sequence[str], settings: Settings, *, prefix: str, repeats: int
) -> StepCosts:
    """Measure `step_costs` on the first batch of the lines."""
    rows = np.arange(settings.batch_size) % len(lines)
    encoded = sources(pair, lines, prefix)[rows]
    return step_costs(
        pair, encoded, gamma=settings.gamma, temperature=settings.temperature, repeats=repeats
    )
