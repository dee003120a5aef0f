"""Figures 2, 3 and 4 of the paper, drawn from `specdec_jax.theory`.

A figure comes back as a `matplotlib.figure.Figure`, without pyplot and its global state; `save`
writes it as SVG and PNG. Curves carry their labels, so no legend has to be matched by colour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec_jax import theory

# Inches: the text width of a page, so that a printed point is a point.
WIDTH = 6.5
INK, GREY = "#222222", "#8a8a8a"
# Okabe and Ito's colours, told apart by colour-blind readers and, by lightness, in print.
COLOURS = ("#0072b2", "#009e73", "#d55e00", "#7b3f9e", "#b07c00")
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "mathtext.fontset": "dejavusans",
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.6,
    "text.color": INK,
    # The same figure is the same file, so that a repository sees no change where there is none.
    "svg.hashsalt": "specdec_jax",
}
ALPHAS = np.linspace(0.5, 0.9, 161)


@mpl.rc_context(STYLE)
def save(figure: Figure, path: Path) -> list[Path]:
    """Writes `path` with the suffixes .svg and .png; returns both paths."""
    vector, pixels = path.with_suffix(".svg"), path.with_suffix(".png")
    figure.savefig(vector, metadata={"Date": None})
    figure.savefig(pixels, dpi=200, metadata={"Software": None})
    return [vector, pixels]


@mpl.rc_context(STYLE)
def expected_tokens_figure(gammas: Sequence[int | float] = (1, 3, 5, 7, np.inf)) -> Figure:
    """Figure 2: expected tokens per run of the target against alpha, one curve per gamma."""
    figure, axes = _axes("Expected tokens per run of the target", top=10.2)
    _curves(axes, gammas, lambda gamma: theory.expected_tokens(ALPHAS, gamma=gamma))
    axes.axhline(1, color=GREY, linestyle=":", linewidth=1.2)
    axes.text(0.898, 0.9, "plain decoding", color=GREY, ha="right", va="top")
    return figure


@mpl.rc_context(STYLE)
def optimal_gamma_figure(costs: Sequence[float] = (0.01, 0.02, 0.05, 0.1)) -> Figure:
    """Figure 3: the best gamma of Theorem 3.8 against alpha, one staircase per c."""
    figure, axes = _axes(r"Optimal $\gamma$", top=25.0)
    for colour, c in zip(COLOURS, costs, strict=False):
        gamma = theory.optimal_gamma(ALPHAS, c=c)
        axes.step(ALPHAS, gamma, where="mid", color=colour)
        _label(axes, gamma[-1], f"c = {c:g}", colour)
    return figure


@mpl.rc_context(STYLE)
def speed_and_operations_figure(gammas: Sequence[int | float] = (1, 3, 5, 7, 10)) -> Figure:
    """Figure 4: speed (solid) and operations (dotted) against alpha, for c = c_hat = 0."""
    figure, axes = _axes("Factor over plain decoding", top=7.5)
    _curves(axes, gammas, lambda gamma: theory.walltime_improvement(ALPHAS, gamma=gamma, c=0))
    for colour, gamma in zip(COLOURS, gammas, strict=False):
        axes.plot(ALPHAS, theory.operations_factor(ALPHAS, gamma=gamma), color=colour, ls=":")
    axes.axhline(1, color=INK, linewidth=0.9)
    axes.plot([], [], color=INK, label="speed")
    axes.plot([], [], color=INK, ls=":", label="arithmetic operations")
    axes.legend(loc="upper left", frameon=False)
    return figure


def _axes(ylabel: str, *, top: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0.5, 0.9), ylim=(0, top), xlabel=r"$\alpha$, mean acceptance", ylabel=ylabel)
    return figure, axes


def _curves(
    axes: Axes, gammas: Sequence[int | float], values: Callable[[int | float], np.ndarray]
) -> None:
    for colour, gamma in zip(COLOURS, gammas, strict=False):
        curve = values(gamma)
        axes.plot(ALPHAS, curve, color=colour)
        _label(axes, curve[-1], rf"$\gamma$ = {'∞' if np.isinf(gamma) else f'{gamma:g}'}", colour)


def _label(axes: Axes, height: np.number, text: str, colour: str) -> None:
    """Writes at the right end of a curve, outside the frame, where nothing is drawn."""
    place = (0.9, height)
    axes.annotate(text, place, xytext=(5, 0), textcoords="offset points", color=colour, va="center")
