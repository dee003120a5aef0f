"""A recorded run of one line: the data of the paper's Figures 1 and 5, and of `specdec trace`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from specdec_jax import text
from specdec_jax.bench.demo import BLUE, GREEN, PLAIN, RED
from specdec_jax.bench.timing import encoders, in_turns, step_costs
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
    timed = in_turns(encoders(pair, source), repeats=5).seconds
    starts = {
        name: float(np.median(timed.get(name, 0.0))) for name in ("target_encoder", "draft_encoder")
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
                "seconds": starts
                | {
                    "target_step": costs.target_step.median,
                    "draft_step": costs.draft_step.median,
                    "verify": costs.verify.median,
                },
            }
        )
    return records


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
