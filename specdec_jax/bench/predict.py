"""What speculation will bring, before it is tried: `report` predicts, `render` prints.

From an acceptance and costs, typed in or measured: the best gamma, its speedup with a band, the
alpha below which it does not pay, the operations it adds. From two checkpoints alone: an estimate
of c on a known device, and the same at several alphas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from specdec_jax import theory
from specdec_jax.bench.devices import costs_of_checkpoints as costs_of_checkpoints
from specdec_jax.bench.devices import estimate_costs as estimate_costs
from specdec_jax.errors import SpecdecError

Number = int | float

_ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
_GAMMAS = (1, 2, 3, 4, 5, 7, 10, 15)


def from_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Takes what `report` needs from a record of a measured run.

    Args:
        record: with `alpha` and `c`; where they were measured `v` (call length -> cost, or, beside
            the run's `gamma`, the cost of its calls), `c_hat`, `alpha_error` and `c_error`; for
            the last also `step_seconds`, whose quartiles give the width of c's band.

    Returns:
        Keyword arguments of `report`.

    Raises:
        SpecdecError: where alpha or c is missing.
    """
    missing = [name for name in ("alpha", "c") if record.get(name) is None]
    if missing:
        raise SpecdecError(
            f"the bench record lacks {' and '.join(missing)}, which a prediction starts from: "
            "measure both, or type them in."
        )
    names = ("alpha", "c", "v", "c_hat", "alpha_error", "c_error")
    given = {name: record[name] for name in names if record.get(name) is not None}
    if record.get("gamma") and isinstance(given.get("v"), Number):
        # Calls of other lengths cost something else: the curve of `verify_cost`.
        given["v"] = {record["gamma"] + 1: given["v"]}
    if "c_error" not in given and "step_seconds" in record:
        steps = [record["step_seconds"][name] for name in ("draft_step", "target_step")]
        # Relative errors of a ratio's two sides add up at most.
        spread = sum((step["high"] - step["low"]) / (2 * step["median"]) for step in steps)
        given["c_error"] = spread * record["c"]
    return given


def report(
    *,
    alpha: Number | None = None,
    c: Number | None = None,
    v: Number | Mapping[Any, Number] = 1.0,
    c_hat: Number | None = None,
    alpha_error: Number = 0.02,
    c_error: Number | None = None,
    costs: Mapping[str, Any] | None = None,
    max_gamma: int = 32,
) -> dict[str, Any]:
    """Predicts the gain of speculation: Theorem 3.8 with the cost of verification.

    Args:
        alpha: mean acceptance, in [0, 1]; without it the best gamma is given at several.
        c: one draft step / one target step, >= 0; without it `costs` must be given.
        v: verifying call / one target step: one number for every call, or measured ones, tokens
            per call -> cost.
        c_hat: operations per token, draft / target, >= 0; where it is not given that of `costs`,
            or c, for at batch 1 reading weights and multiplying by them go together.
        alpha_error: half the width of alpha's band, >= 0.
        c_error: half the width of c's band, >= 0; a fifth of c where it is not given.
        costs: what `estimate_costs` returns; its c and band are used where c is not given.
        max_gamma: the greatest gamma considered, >= 1.

    Returns:
        A JSON object: the inputs, `c_band`, `best` (a row), `rows`, and `break_even_alpha`, below
        which no gamma pays. A row has `alpha`, `gamma`, `tokens` (per run of the target),
        `speedup`, `low` and `high` (at the far ends of both bands; v has none), and `operations`
        (a factor, Theorem 3.11). `best` is null where alpha is, and `break_even_alpha` where no
        alpha would pay.

    Raises:
        SpecdecError: where neither c nor costs is given, or a number is outside its range.
    """
    for name, value, least in (
        ("alpha_error", alpha_error, 0),
        ("c_error", c_error or 0, 0),
        ("max_gamma", max_gamma, 1),
    ):
        if not value >= least:
            raise SpecdecError(f"{name} is {value} and must be at least {least}.")
    if c is not None:
        spread = c / 5 if c_error is None else c_error
        c_band = (max(c - spread, 0.0), c + spread)
    elif costs is not None:
        c, c_band = float(costs["c"]), (costs["c_low"], costs["c_high"])
    else:
        raise SpecdecError(
            "neither c nor an estimate of it is given, and a prediction needs one: "
            "type c in, or give two checkpoints and a device."
        )
    estimate = c if costs is None else costs["c_hat"]
    ratio = estimate if c_hat is None else c_hat
    given = _Given(c, c_band, _curve(v), ratio, alpha_error, max_gamma)
    best = None if alpha is None else _best(given, alpha)
    if alpha is None or best is None:
        rows = [_best(given, each) for each in _ALPHAS]
    else:
        gammas = {best["gamma"], *(gamma for gamma in _GAMMAS if gamma <= max_gamma)}
        rows = [_row(given, alpha, gamma) for gamma in sorted(gammas)]
    gammas = np.arange(1, max_gamma + 1)
    least = float(theory.break_even_alpha(gamma=gammas, c=c, v=given.v(gammas + 1)).min())
    return {
        "alpha": alpha,
        "alpha_error": alpha_error,
        "c": c,
        "c_band": list(c_band),
        "v": dict(v) if isinstance(v, Mapping) else v,
        "c_hat": given.c_hat,
        "costs": None if costs is None else dict(costs),
        "best": best,
        "rows": rows,
        "break_even_alpha": least if np.isfinite(least) else None,
    }


def render(prediction: Mapping[str, Any]) -> str:
    """The text that the command line prints for a `report`."""
    alpha, best, costs = prediction["alpha"], prediction["best"], prediction["costs"]
    low, high = prediction["c_band"]
    v = prediction["v"]
    measured = (
        ", ".join(f"{n} tokens {cost:g}" for n, cost in v.items())
        if isinstance(v, Mapping)
        else f"{v:g}"
    )
    lines = [
        f"c      {prediction['c']:.3g} ({low:.3g} to {high:.3g}), a draft step over a target step",
        f"v      {measured}, a verifying call over a target step",
    ]
    if alpha is not None:
        lines.insert(0, f"alpha  {alpha:.3g} (give or take {prediction['alpha_error']:.2g})")
    if costs is not None:
        lines.append(
            f"{costs['device']}: {1e3 * costs['draft_step']:.3g} ms per draft step, "
            f"{1e3 * costs['target_step']:.3g} ms per target step, "
            + ("with the time per layer" if costs["layers"] else "by bandwidth alone")
        )
    lines.append("")
    if best is None:
        lines.append("No alpha is given: the table has the best gamma at several.")
    elif best["gamma"] == 0:
        lines.append("No gamma pays: decode with the target alone.")
    else:
        lines.append(
            f"Best gamma {best['gamma']}: {best['speedup']:.2f}x ({best['low']:.2f}x to "
            f"{best['high']:.2f}x), with {best['operations']:.2f}x the arithmetic operations."
        )
    least = prediction["break_even_alpha"]
    lines += [
        "No alpha pays at this c and v." if least is None else f"Pays above alpha = {least:.3g}.",
        "",
        "alpha  gamma  tokens/run  speedup      band      operations",
    ]
    for row in prediction["rows"]:
        mark = "  <- best" if best is not None and row == best else ""
        lines.append(
            f"{row['alpha']:5.2f}  {row['gamma']:5d}  {row['tokens']:10.2f}  "
            f"{row['speedup']:6.2f}x  {row['low']:5.2f} to {row['high']:5.2f}  "
            f"{row['operations']:9.2f}x{mark}"
        )
    return "\n".join(lines)


class _Given(NamedTuple):
    """What a row of a report is computed from; see `report`."""

    c: Number
    c_band: tuple[Number, Number]
    v: Callable[[Any], Any]
    c_hat: Number
    alpha_error: Number
    max_gamma: int


def _curve(v: Number | Mapping[Any, Number]) -> Callable[[Any], Any]:
    if isinstance(v, Mapping):
        # A record that went through JSON has its call lengths as strings.
        return theory.verify_cost({int(length): cost for length, cost in v.items()})
    # A call of one token is a plain step, whatever the verifying calls cost.
    return lambda tokens: np.where(np.asarray(tokens) == 1, 1.0, v)


def _best(given: _Given, alpha: Number) -> dict[str, Any]:
    gamma = theory.optimal_gamma(alpha, c=given.c, v=given.v, max_gamma=given.max_gamma)
    return _row(given, alpha, int(gamma))


def _row(given: _Given, alpha: Number, gamma: int) -> dict[str, Any]:
    def gain(alpha: Number, c: Number) -> float:
        return float(theory.walltime_improvement(alpha, gamma=gamma, c=c, v=given.v(gamma + 1)))

    return {
        "alpha": alpha,
        "gamma": gamma,
        "tokens": float(theory.expected_tokens(alpha, gamma=gamma)),
        "speedup": gain(alpha, given.c),
        "low": gain(max(alpha - given.alpha_error, 0.0), given.c_band[1]),
        "high": gain(min(alpha + given.alpha_error, 1.0), given.c_band[0]),
        "operations": float(theory.operations_factor(alpha, gamma=gamma, c_hat=given.c_hat)),
    }
