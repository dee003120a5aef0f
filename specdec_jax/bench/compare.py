"""Plain and speculative decoding of the same lines, in turns, and what theory says of the ratio."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from specdec_jax import text, theory
from specdec_jax.bench import memory
from specdec_jax.bench.timing import Spread, StepCosts, encoders, in_turns, step_costs
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Line, Pair, Settings, decode, unpack


@dataclasses.dataclass(frozen=True)
class LineResult:
    """One batch of lines decoded both ways; seconds of each repeat."""

    plain: list[Line]
    speculative: list[Line]
    seconds_plain: list[float]
    seconds_speculative: list[float]
    seconds_target_encoder: list[float]
    """Of the target's encoder alone, which both ways run."""
    seconds_draft_encoder: list[float]
    tested: list[int]
    """Guesses that the target looked at, by their place in a round [gamma]."""
    accepted: list[int]
    """Of those, the accepted ones."""


def sources(pair: Pair, lines: Sequence[str], prefix: str, size: int) -> list[np.ndarray]:
    """Encode lines in batches of `size`, each padded to its own bucket as `generate` does.

    The last batch is filled with the first lines again.

    Raises:
        SpecdecError: for no lines, or a line longer than every bucket.
    """
    if not lines:
        raise SpecdecError("There are no lines to decode: give at least one.")
    full = [prefix + lines[i % len(lines)] for i in range(-(-len(lines) // size) * size)]
    return [
        text.encode_batch(pair.vocabulary, full[start : start + size])
        for start in range(0, len(full), size)
    ]


def rows_of(index: int, size: int, lines: int, max_tokens: int) -> dict[str, np.ndarray]:
    """Return what `decode` is told of the rows of one of the batches of `sources`.

    Args:
        index: of the batch.
        size: rows of a batch.
        lines: how many there are in all; rows beyond them only fill the last batch.
        max_tokens: of an output.
    """
    numbers = np.arange(index * size, (index + 1) * size)
    return {"numbers": numbers, "limits": np.where(numbers < lines, max_tokens, 0)}


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

    Compilation and one warm-up run of each bucket happen before its clock starts. The timed region
    is the whole decode: both encoders, every round; text and ids are converted outside of it.

    Args:
        pair: with a draft.
        lines: sources without prefix.
        settings: of the speculative run; the plain one differs in gamma alone.
        prefix: put before each line.
        repeats: times that each line is decoded each way.
        progress: whether to show a bar.
    """
    if pair.draft is None:
        raise SpecdecError("A comparison needs a draft: name one.")
    encoded = sources(pair, lines, prefix, settings.batch_size)
    size = settings.batch_size
    ways = {"plain": dataclasses.replace(settings, gamma=0), "speculative": settings}

    def calls(index: int) -> dict[str, Callable[[], Any]]:
        rows = rows_of(index, size, len(lines), settings.max_tokens)
        batch = encoded[index]
        decodes = {
            name: functools.partial(decode, pair, batch, way, **rows) for name, way in ways.items()
        }
        return decodes | encoders(pair, batch)

    warm = set()
    for index, batch in enumerate(
        tqdm(encoded, desc="decoding both ways", disable=not progress, leave=False)
    ):
        timed, decoded = in_turns(
            calls(index), repeats=repeats, warmup=int(batch.shape not in warm)
        )
        warm.add(batch.shape)
        part = lines[index * size : (index + 1) * size]
        yield LineResult(
            plain=unpack(decoded["plain"], part, pair.vocabulary),
            speculative=unpack(decoded["speculative"], part, pair.vocabulary),
            seconds_plain=timed["plain"],
            seconds_speculative=timed["speculative"],
            seconds_target_encoder=timed["target_encoder"],
            seconds_draft_encoder=timed.get("draft_encoder", [0.0]),
            tested=_over_rows(decoded["speculative"].counters.tested),
            accepted=_over_rows(decoded["speculative"].counters.accepted),
        )


def _over_rows(counts: Any) -> list[int]:
    return np.asarray(counts).sum(0).tolist()


def summarise(
    pair: Pair, results: Sequence[LineResult], settings: Settings, costs: StepCosts
) -> dict[str, Any]:
    """Put a comparison into one record.

    `speedup` is that of whole decodes; `speedup_by_repeat` says how much it differs from one repeat
    to the next, `speedup_by_batch` from one batch of lines to the next. `predicted_speedup` is
    E[tokens] / (gamma c + v) with the measured tokens per target run, which is Theorem 3.8 of
    arXiv:2211.17192 where v = 1. Like the theorem it leaves out the encoders, and so does
    `speedup_decoding`: the time of each model's encoder, measured beside, is taken off. Where noise
    has made a cost negative, as a busy machine does to small models, a prediction or speedup is
    None.
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
    target_encoder = sum(float(np.median(r.seconds_target_encoder)) for r in results)
    draft_encoder = sum(float(np.median(r.seconds_draft_encoder)) for r in results)
    decoding_plain = seconds_plain - target_encoder
    decoding_spec = seconds_spec - target_encoder - draft_encoder
    ratios = [float(np.median(r.seconds_plain) / np.median(r.seconds_speculative)) for r in results]
    by_repeat = [
        sum(r.seconds_plain[turn] for r in results)
        / sum(r.seconds_speculative[turn] for r in results)
        for turn in range(min(len(r.seconds_plain) for r in results))
    ]
    by_place = [
        a / t if t else None
        for a, t in zip(
            np.sum([r.accepted for r in results], 0).tolist(),
            np.sum([r.tested for r in results], 0).tolist(),
            strict=True,
        )
    ]
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
        "lenience": settings.lenience,
        "lossy": settings.lenience < 1,
        "alpha": accepted / tested if tested else None,
        "alpha_by_position": by_place,
        "tokens_per_run": tokens / runs,
        "c": costs.c,
        "v": costs.v,
        "seconds_plain": seconds_plain,
        "seconds_speculative": seconds_spec,
        "seconds_encoders": {"target": target_encoder, "draft": draft_encoder},
        "speedup": seconds_plain / seconds_spec,
        "speedup_decoding": (
            decoding_plain / decoding_spec if min(decoding_plain, decoding_spec) > 0 else None
        ),
        "speedup_by_batch": dataclasses.asdict(Spread.of(ratios)),
        "speedup_by_repeat": dataclasses.asdict(Spread.of(by_repeat)),
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
    if min(costs.target_step.median, costs.verify.median) <= 0 or costs.draft_step.median < 0:
        return None
    return float(theory.walltime_improvement_from_tokens(tokens, gamma=gamma, c=costs.c, v=costs.v))


def measure(
    pair: Pair,
    lines: Sequence[str],
    settings: Settings,
    *,
    prefix: str,
    repeats: int,
    progress: bool = True,
) -> tuple[list[LineResult], dict[str, Any]]:
    """Decode all lines both ways, time the steps, and return the results with their record."""
    first = _first(pair, lines, settings, prefix)
    programs = {
        "plain": memory.compiled(pair, first, dataclasses.replace(settings, gamma=0)),
        "speculative": memory.compiled(pair, first, settings),
    }
    results = list(
        compare(pair, lines, settings, prefix=prefix, repeats=repeats, progress=progress)
    )
    costs = costs_for(pair, lines, settings, prefix=prefix, repeats=2 * repeats + 1)
    return results, {**summarise(pair, results, settings, costs), "programs": programs}


def costs_for(
    pair: Pair, lines: Sequence[str], settings: Settings, *, prefix: str, repeats: int
) -> StepCosts:
    """Measure `step_costs` on the first batch of the lines."""
    encoded = _first(pair, lines, settings, prefix)
    return step_costs(
        pair, encoded, gamma=settings.gamma, temperature=settings.temperature, repeats=repeats
    )


def _first(pair: Pair, lines: Sequence[str], settings: Settings, prefix: str) -> np.ndarray:
    return sources(pair, lines[: settings.batch_size], prefix, settings.batch_size)[0]
