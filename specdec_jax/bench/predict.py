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
from specdec_jax.errors import SpecdecError

Number = int | float


class Device(NamedTuple):
    """What one accelerator reads per second, and what one layer costs beyond its reading.

    Attributes:
        bandwidth: peak memory bandwidth of one chip, bytes per second.
        layer_seconds: per layer of a decoder step, whatever its size; None where it is not known.
    """

    bandwidth: float
    layer_seconds: float | None = None


# Peak bandwidths as their makers publish them, in bytes per second.
DEVICES: dict[str, Device] = {
    # docs.cloud.google.com/tpu/docs/v4. The time per layer is the one that, with T5 v1.1's decoder
    # weights in bfloat16, gives the paper's c of Table 4: 0.02, 0.04 and 0.11 for small, base and
    # large against XXL; bandwidth alone gives 0.007, 0.022 and 0.070.
    "tpu-v4": Device(1.2e12, 16e-6),
    "tpu-v5e": Device(0.819e12),  # docs.cloud.google.com/tpu/docs/v5e
    "tpu-v5p": Device(2.765e12),  # docs.cloud.google.com/tpu/docs/v5p
    "tpu-v6e": Device(1.640e12),  # docs.cloud.google.com/tpu/docs/v6e
    "t4": Device(0.320e12),  # NVIDIA T4 datasheet
    "l4": Device(0.300e12),  # NVIDIA L4 datasheet
    "a100-40gb": Device(1.555e12),  # NVIDIA A100 datasheet, 40 GB
    "a100-80gb": Device(2.039e12),  # NVIDIA A100 datasheet, 80 GB SXM
    "h100": Device(3.35e12),  # NVIDIA H100 datasheet, SXM
    "h200": Device(4.8e12),  # NVIDIA H200 datasheet
}

# The paper's measured c over the ratio of weights that one decoder step reads (Table 4, T5 v1.1):
# 0.02 / 0.0069, 0.04 / 0.022 and 0.11 / 0.070. Where the time per layer is not known, c is
# somewhere between the ratio itself and the greatest of them.
_RATIO_TO_C = (1.0, 3.0)
_ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
_GAMMAS = (1, 2, 3, 4, 5, 7, 10, 15)


def estimate_costs(
    draft_bytes: Number,
    *,
    target_bytes: Number,
    device: str,
    draft_layers: int | None = None,
    target_layers: int | None = None,
) -> dict[str, Any]:
    """Estimates a decoder step of both models, and c, from the weights that it reads.

    At batch 1 a step takes `bytes / bandwidth + layers * seconds per layer`. Where the layers or
    the device's time per layer are not known only the first term is left; c is then the ratio of
    bytes at least, and three times it at most, the most that the paper measured.

    Args:
        draft_bytes: bytes of the weights that one step of the draft's decoder reads, > 0: its
            parameters without encoder, embedding table and cross-attention keys and values.
        target_bytes: likewise of the target.
        device: a key of `DEVICES`.
        draft_layers: layers of the draft's decoder.
        target_layers: layers of the target's decoder.

    Returns:
        `c`, `c_low`, `c_high`, the seconds of a step, `draft_step` and `target_step`, and whether
        they count `layers` or bandwidth alone.

    Raises:
        SpecdecError: where the device is not listed, or a number of bytes or layers not positive.
    """
    if device not in DEVICES:
        raise SpecdecError(
            f"device {device!r} is not known and must be one of {', '.join(DEVICES)}: "
            "for another, measure c and give that."
        )
    bandwidth, layer_seconds = DEVICES[device]
    ratio = float(theory.cost_ratio(draft_bytes, target=target_bytes))
    draft, target = draft_bytes / bandwidth, target_bytes / bandwidth
    costs = {"device": device, "draft_step": draft, "target_step": target, "layers": False}
    if layer_seconds is None or draft_layers is None or target_layers is None:
        low, high = (factor * ratio for factor in _RATIO_TO_C)
        # The middle of a range whose ends are factors is its geometric mean.
        return costs | {"c": (low * high) ** 0.5, "c_low": low, "c_high": high}
    for name, layers in (("draft_layers", draft_layers), ("target_layers", target_layers)):
        if layers < 1:
            raise SpecdecError(f"{name} is {layers} and must be at least 1: a decoder has layers.")
    draft += draft_layers * layer_seconds
    target += target_layers * layer_seconds
    costs |= {"draft_step": draft, "target_step": target, "layers": True}
    c = draft / target
    # The calibration reproduces the paper's three c to the half unit of their last digit, 0.005,
    # which for the smallest is a quarter.
    return costs | {"c": c, "c_low": 0.75 * c, "c_high": 1.25 * c}


def from_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Takes what `report` needs from a record of a measured run.

    Args:
        record: with `alpha` and `c`, and where they were measured `v` (a number, or call length ->
            cost), `c_hat`, `alpha_error` and `c_error`.

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
    return {name: record[name] for name in names if record.get(name) is not None}


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
        c_hat: operations per token, draft / target, >= 0; c stands in for it where it is not given,
            for at batch 1 reading weights and multiplying by them go together.
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
    given = _Given(c, c_band, _curve(v), c if c_hat is None else c_hat, alpha_error, max_gamma)
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
