"""What a step of a decoder takes on a device that is not at hand, from the weights it reads."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

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


# Peak bandwidths in bytes per second. Those marked unverified are commonly quoted figures that were
# not checked against the maker's datasheet.
DEVICES: dict[str, Device] = {
    # docs.cloud.google.com/tpu/docs/v4. The time per layer is the one that, with T5 v1.1's decoder
    # weights in bfloat16, gives the paper's c of Table 4: 0.02, 0.04 and 0.11 for small, base and
    # large against XXL; bandwidth alone gives 0.007, 0.022 and 0.070.
    "tpu-v4": Device(1.2e12, 16e-6),
    "tpu-v5e": Device(0.819e12),  # docs.cloud.google.com/tpu/docs/v5e
    "tpu-v5p": Device(2.765e12),  # docs.cloud.google.com/tpu/docs/v5p
    "tpu-v6e": Device(1.640e12),  # docs.cloud.google.com/tpu/docs/v6e
    "t4": Device(0.320e12),  # unverified: NVIDIA T4
    "l4": Device(0.300e12),  # unverified: NVIDIA L4
    "a100-40gb": Device(1.555e12),  # unverified: NVIDIA A100, 40 GB
    "a100-80gb": Device(2.039e12),  # unverified: NVIDIA A100, 80 GB SXM
    "h100": Device(3.35e12),  # NVIDIA H100 datasheet, SXM
    "h200": Device(4.8e12),  # NVIDIA H200 datasheet
}

# The paper's measured c over the ratio of weights that one decoder step reads (Table 4, T5 v1.1):
# 0.02 / 0.0069, 0.04 / 0.022 and 0.11 / 0.070. Where the time per layer is not known, c is
# somewhere between the ratio itself and the greatest of them.
_RATIO_TO_C = (1.0, 3.0)


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
        `c`, `c_low`, `c_high`, the seconds of a step, `draft_step` and `target_step`, whether they
        count `layers` or bandwidth alone, and `c_hat`: a weight read is a weight multiplied by.

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
    costs = {"device": device, "c_hat": ratio, "layers": False}
    costs |= {"draft_step": draft, "target_step": target}
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


def costs_of_checkpoints(
    target: str | os.PathLike[str] | None,
    draft: str | os.PathLike[str] | None,
    device: str | None,
    *,
    weight_bytes: int = 2,
) -> dict[str, Any]:
    """Estimates the costs of a step from the headers of two checkpoints; no parameter is read.

    Args:
        target: folder of the target, of any format, or a shipped name.
        draft: likewise of the draft.
        device: a key of `DEVICES`.
        weight_bytes: of one parameter in the device's memory; 2 is bfloat16.

    Returns:
        See `estimate_costs`.

    Raises:
        SpecdecError: where one of the three is missing, or no checkpoint is found.
    """
    # Late: reading a file is no part of a prediction from numbers.
    from specdec_jax.checkpoints import open_checkpoint

    given = {"target": target, "draft": draft, "device": device}
    missing = [name for name, value in given.items() if value is None]
    if target is None or draft is None or device is None:
        raise SpecdecError(
            f"{' and '.join(missing)} not given, and an estimate of c needs target, draft and "
            f"device: give all three, the device one of {', '.join(DEVICES)}."
        )
    small, large = open_checkpoint(draft).config, open_checkpoint(target).config
    return estimate_costs(
        weight_bytes * small.decoder_step_weights,
        target_bytes=weight_bytes * large.decoder_step_weights,
        device=device,
        draft_layers=small.num_decoder_layers,
        target_layers=large.num_decoder_layers,
    )
