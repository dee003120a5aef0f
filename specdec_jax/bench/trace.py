"""A recorded run of one line: the data of the paper's Figures 1 and 5, and of `specdec trace`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax import text
from specdec_jax.bench.demo import BLUE, GREEN, PLAIN, RED
from specdec_jax.bench.timing import step_costs
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Pair, Settings, generate

GAMMAS = (7, 3, 0)


def trace(pair: Pair, line: str, settings: Settings) -> list[dict[str, Any]]:
    """Decode a line with the gamma asked for and with those of the paper's Figure 5.

    Returns:
        Trace records (see `specdec_jax.bench.trace_figures`), that of the settings first.

    Raises:
        SpecdecError: without a draft.
    """
    if pair.draft is None:
        raise SpecdecError("A trace needs a draft: name one.")
    prefix = text.prefix("ende")
    source = text.encode_batch(pair.vocabulary, [prefix + line])
    encoders = {
        "target_encoder": _encoder_seconds(pair.target, source),
        "draft_encoder": _encoder_seconds(pair.draft.model, source),
    }
    records = []
    for gamma in dict.fromkeys((settings.gamma, *GAMMAS)):
        way = dataclasses.replace(settings, gamma=gamma, record=True)
        (result,) = generate(pair, [line], way, prefix=prefix)
        costs = step_costs(pair, source, gamma=max(gamma, 1), repeats=3)
        records.append(
            {
                "target": pair.target_shape,
                "draft": pair.draft_shape,
                "gamma": gamma,
                "source": line,
                "text": result.text,
                "rounds": [
                    {
                        "drafted": [pair.vocabulary.piece(t) for t in guesses],
                        "accepted": accepted,
                        "extra": pair.vocabulary.piece(extra) if extra else "",
                    }
                    for guesses, accepted, extra in result.rounds or []
                ],
                "seconds": encoders
                | {
                    "target_step": costs.target_step.median,
                    "draft_step": costs.draft_step.median,
                    "verify": costs.verify.median,
                },
            }
        )
    return records


def _encoder_seconds(model: Any, source: np.ndarray) -> float:
    """Return the median time of `start`, which runs the encoder and projects cross-attention."""
    start: Callable[..., Any] = jax.jit(lambda model, tokens: model.start(tokens, 8))
    tokens = jnp.asarray(source)
    samples = []
    for _ in range(6):
        began = time.perf_counter()
        jax.block_until_ready(start(model, tokens))
        samples.append(time.perf_counter() - began)
    return float(np.median(samples[1:]))


def render(record: dict[str, Any], *, colour: bool) -> str:
    """Return the rounds, one a line: accepted, first rejected, the target's own."""
    green, red, blue, plain = (GREEN, RED, BLUE, PLAIN) if colour else ("", "-", "+", "")
    lines = [f"source  {record['source']}", f"output  {record['text']}", ""]
    for number, one in enumerate(record["rounds"], 1):
        accepted = one["accepted"]
        parts = [f"{green}{piece}{plain}" for piece in one["drafted"][:accepted]]
        if one["extra"]:
            if accepted < len(one["drafted"]):
                parts.append(f"{red}{one['drafted'][accepted]}{plain}")
            parts.append(f"{blue}{one['extra']}{plain}")
        lines.append(f"{number:4d}  {accepted} accepted  {' '.join(parts)}")
    return "\n".join(lines)
