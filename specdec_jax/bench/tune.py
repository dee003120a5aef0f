"""The best fixed gamma for a pair on this device: what to guess, from what was measured here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from specdec_jax import theory
from specdec_jax.bench.adapting import adapting
from specdec_jax.bench.compare import rows_of, sources
from specdec_jax.bench.outputs import ratio
from specdec_jax.bench.timing import StepCosts, step_costs
from specdec_jax.drafts import ModelDraft
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Pair, Settings, decode

GAMMAS = (1, 3, 5, 7, 11, 15)
"""Whose verification is timed; between them its cost is interpolated."""


def tune(
    pair: Pair,
    lines: Sequence[str],
    settings: Settings,
    *,
    prefix: str,
    gammas: Sequence[int] = GAMMAS,
    repeats: int = 5,
    progress: bool = True,
) -> dict[str, Any]:
    """Measure a pair, and predict the speedup at every gamma up to the largest of `gammas`.

    The lines are decoded once, with the largest gamma, and accepted guesses counted by their
    position in the round: the expected tokens of any shorter gamma follow from those without the
    paper's assumption that all positions are alike. c and v are timed on the first batch of lines.
    A gamma whose v was not timed is never the result: it is timed, and the search begins anew.

    Args:
        pair: with a draft.
        lines: sources without prefix.
        settings: all but gamma.
        prefix: put before each line.
        gammas: at least 1, see `GAMMAS`.
        repeats: of each measurement.
        progress: whether to show a bar.

    Returns:
        A JSON object: `gamma` (the best, 0 where plain decoding is), `speculate`,
        `predicted_speedup`, `gamma_if_alike` (by `theory.optimal_gamma`, from alpha alone),
        `alpha` with `alpha_se` (over lines), `alpha_by_position`, `tested_by_position`, `c`, `v`
        (tokens of a call -> target steps), `adapting` (what choosing gamma before each round
        gains, see `bench.adapting`), `rows` (`gamma`, `tokens` for each target run, `v`,
        `timed`, `speedup`), `step_seconds`, the settings and the models' sizes. Like Theorem 3.8
        the speedups leave out the encoders.

    Raises:
        SpecdecError: without a draft, for a gamma below 1, or where the costs drown in noise.
    """
    if pair.draft is None:
        raise SpecdecError("Tuning needs a draft: name one.")
    if not gammas or min(gammas) < 1:
        raise SpecdecError(f"The gammas to be timed are {list(gammas)}, but must be at least 1.")
    encoded = sources(pair, lines, prefix, settings.batch_size)
    widest = dataclasses.replace(settings, gamma=max(gammas), record=False)
    tested, accepted, lengths = _count(pair, encoded, widest, len(lines), progress)
    if not tested.sum():
        raise SpecdecError(
            f"No guess was tested in {len(lines)} lines, whose outputs are of one token each: "
            "give longer ones."
        )
    alpha, alpha_se = ratio(accepted.sum(axis=1), tested.sum(axis=1))
    by_position = _shares(accepted.sum(axis=0), tested.sum(axis=0), alpha)
    costs: dict[int, StepCosts] = {}

    def time(gamma: int) -> None:
        found = step_costs(
            pair, encoded[0], gamma=gamma, temperature=settings.temperature, repeats=repeats
        )
        if min(found.target_step.median, found.verify.median) <= 0 or found.draft_step.median < 0:
            raise SpecdecError(
                f"At gamma {gamma} a step takes no more time than this machine's noise: use more "
                "repeats, a machine that is not busy, or larger models."
            )
        costs[gamma] = found

    for gamma in tqdm(sorted(set(gammas)), desc="timing", disable=not progress, leave=False):
        time(gamma)
    while (best := _best(rows := _rows(by_position, costs)))["gamma"] and not best["timed"]:
        time(best["gamma"])
    c, v = _c(costs), {gamma + 1: costs[gamma].v for gamma in sorted(costs)}
    found = adapting(
        pair,
        encoded,
        settings,
        gamma=best["gamma"],
        alpha=alpha,
        c=c,
        v=v,
        lines=len(lines),
        repeats=repeats,
        progress=progress,
    )
    alike = theory.optimal_gamma(alpha, c=c, v=theory.verify_cost(v), max_gamma=max(costs))
    return {
        "gamma": best["gamma"],
        "speculate": best["gamma"] > 0,
        "predicted_speedup": best["speedup"],
        "gamma_if_alike": int(alike),
        "alpha": alpha,
        "alpha_se": alpha_se,
        "alpha_by_position": by_position.tolist(),
        "tested_by_position": tested.sum(axis=0).astype(int).tolist(),
        "c": c,
        "v": {str(tokens): cost for tokens, cost in v.items()},
        "adapting": found,
        "rows": rows,
        "step_seconds": {
            str(gamma): {
                name: dataclasses.asdict(getattr(found, name))
                for name in ("target_step", "draft_step", "verify")
            }
            for gamma, found in sorted(costs.items())
        },
        "sentences": len(lines),
        "tokens": int(lengths.sum()),
        **{name: getattr(settings, name) for name in SETTINGS},
        "draft_is_model": isinstance(pair.draft, ModelDraft),
        "target_shape": pair.target_shape,
        "draft_shape": pair.draft_shape,
    }


SETTINGS = ("temperature", "top_k", "top_p", "rule", "max_tokens", "batch_size", "seed")
"""What a result holds for."""


def _count(
    pair: Pair, encoded: Sequence[np.ndarray], settings: Settings, count: int, progress: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decode, and return tested and accepted guesses [lines, G] and lengths [lines]."""
    size = settings.batch_size
    found = []
    for index, batch in enumerate(
        tqdm(encoded, desc="decoding", disable=not progress, leave=False)
    ):
        rows = rows_of(index, size, count, settings.max_tokens)
        decoded = decode(pair, batch, settings, **rows)
        counters = decoded.counters
        found.append([np.asarray(x) for x in (counters.tested, counters.accepted, decoded.lengths)])
    tested, accepted, lengths = (np.concatenate(part) for part in zip(*found, strict=True))
    return tested.astype(float), accepted.astype(float), lengths


def _shares(accepted: np.ndarray, tested: np.ndarray, otherwise: float) -> np.ndarray:
    """Return accepted / tested; `otherwise` where nothing was tested, and nothing depends on it."""
    return np.where(tested > 0, accepted / np.maximum(tested, 1), otherwise)


def _c(costs: Mapping[int, StepCosts]) -> float:
    return float(np.median([found.c for found in costs.values()]))


def _rows(by_position: np.ndarray, costs: Mapping[int, StepCosts]) -> list[dict[str, Any]]:
    """Predict every gamma from 1 on."""
    curve = theory.verify_cost({gamma + 1: found.v for gamma, found in costs.items()})
    rows = []
    for gamma in range(1, len(by_position) + 1):
        tokens = float(theory.expected_tokens_from_betas(by_position[:gamma]))
        v = float(curve(gamma + 1))
        gain = theory.walltime_improvement_from_tokens(tokens, gamma=gamma, c=_c(costs), v=v)
        rows.append(
            {
                "gamma": gamma,
                "tokens": tokens,
                "v": v,
                "timed": gamma in costs,
                "speedup": float(gain),
            }
        )
    return rows


def _best(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of the greatest speedup, the least gamma of equals; plain decoding is one."""
    plain = {"gamma": 0, "tokens": 1.0, "v": 1.0, "timed": True, "speedup": 1.0}
    return max([plain, *rows], key=lambda row: row["speedup"])


def render(record: Mapping[str, Any]) -> str:
    """Return a result as lines for the terminal."""
    error = "" if record["alpha_se"] is None else f" ± {record['alpha_se']:.3f}"
    lines = [
        f"target  {record['target_shape']}",
        f"draft   {record['draft_shape']}",
        f"alpha   {record['alpha']:.3f}{error}, accepted / tested in {record['tokens']} tokens "
        f"of {record['sentences']} lines",
        f"c       {record['c']:.3f}, a draft step over a target step",
        "",
        "gamma  alpha at  tokens/run  v (~ interpolated)  speedup",
    ]
    for row, alpha in zip(record["rows"], record["alpha_by_position"], strict=True):
        mark = "  <- best" if row["gamma"] == record["gamma"] else ""
        v = f"{'' if row['timed'] else '~'}{row['v']:.2f}"
        lines.append(
            f"{row['gamma']:5d}  {alpha:8.3f}  {row['tokens']:10.2f}  {v:>18}  "
            f"{row['speedup']:6.2f}x{mark}"
        )
    lines.append("")
    if record["speculate"]:
        lines.append(
            f"Speculate, with gamma {record['gamma']}: {record['predicted_speedup']:.2f}x expected "
            "over plain decoding, encoders left out."
        )
    else:
        lines.append("Do not speculate: no gamma is expected to be faster than plain decoding.")
    found = record["adapting"]
    ratio = found["adaptive_over_fixed"]
    lines.append(
        f"Choosing among {', '.join(map(str, found['gammas']))} before each round (--adaptive) "
        f"is {ratio['median']:.2f} times as fast as always {found['gamma']} (quartiles "
        f"{ratio['low']:.2f} to {ratio['high']:.2f} of {ratio['count']})."
    )
    return "\n".join(lines)


def gin(record: Mapping[str, Any]) -> str:
    """Return a gin fragment for T5X, to be named behind the run, the target and the draft."""
    verdict = f"{record['predicted_speedup']:.2f}x expected"
    if not record["speculate"]:
        verdict = "no gamma pays: the target decodes alone"
    return "\n".join(
        [
            "# Written by `specdec tune`; name it behind gin_configs/runs/, targets/ and drafts/.",
            f"# Target {record['target_shape']}, draft {record['draft_shape']}, batch "
            f"{record['batch_size']}: {verdict}.",
            f"GAMMA = {record['gamma']}",
            f"RULE = {record['rule']!r}",
            f"TEMPERATURE = {record['temperature']!r}",
            f"TOPK = {record['top_k']}",
            # T5X turns the filter off with 0.
            f"TOPP = {0.0 if record['top_p'] == 1 else record['top_p']!r}",
            "",
        ]
    )


def gamma_of(record: Any, where: str) -> int:
    """Return the gamma of a record of `tune`.

    Raises:
        SpecdecError: for a record of another kind.
    """
    gamma = record.get("gamma") if isinstance(record, Mapping) else None
    if not isinstance(gamma, int) or gamma < 0 or "alpha_by_position" not in record:
        raise SpecdecError(
            f"{where} is no record of `specdec tune`: give the tuned.json that it wrote."
        )
    return gamma
