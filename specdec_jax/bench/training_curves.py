"""Learning curves of the shipped models, from the logs that training keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from specdec_jax.bench.figures import STYLE, WIDTH


@mpl.rc_context(STYLE)
def curves(logs: Mapping[str, Sequence[Mapping[str, Any]]], *, title: str) -> Figure:
    """Draw validation loss, and scores where a log has them, against tokens seen.

    Args:
        logs: entries of `fit`'s logs by model; runs that follow each other joined, in order.
        title: of the picture.
    """
    figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
    left = figure.add_subplot()
    right = None
    for name, log in logs.items():
        seen, total = [], 0
        for entry in log:
            total += entry["tokens"]
            seen.append(total / 1e6)
        (line,) = left.plot(seen, [entry["nll"] for entry in log], marker=".", label=name)
        for key, label in (("bleu", "BLEU"), ("rouge_l", "ROUGE-L")):
            scored = [(x, entry[key]) for x, entry in zip(seen, log, strict=True) if key in entry]
            if scored:
                if right is None:
                    right = left.twinx()
                    right.grid(False)
                right.plot(*zip(*scored, strict=True), ":", marker="x", color=line.get_color())
                right.set_ylabel(f"{label}, validation (dotted)")
    left.set(
        title=title,
        xlabel="tokens seen, source and target (millions)",
        ylabel="validation loss (nats per token)",
    )
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure
