"""Figures 1 and 5 of the paper, drawn from recorded runs: the tokens, and the calls over time.

A trace record is a JSON object: `target`, `draft`, `source` and `text` (strings), `gamma` (0 for
plain decoding), `rounds`, one per run of the target, each with `drafted` (gamma pieces of the
tokenizer), `accepted` (how many of them) and `extra` (the target's own piece, empty if there was
none), and `seconds`, the mean times of `target_encoder`, `draft_encoder`, `target_step` (one
token), `verify` (gamma + 1 tokens) and `draft_step`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch

from specdec_jax.bench.figures import GREY, INK, STYLE, WIDTH
from specdec_jax.errors import SpecdecError

_FIELDS = ("target", "draft", "source", "text", "gamma", "rounds", "seconds")
_ROUND = ("drafted", "accepted", "extra")
_SECONDS = ("target_encoder", "draft_encoder", "target_step", "verify", "draft_step")

# What became of a token -> the chip's fill, its ink, and the words of the key.
_FATES = {
    "accepted": ("#cfead9", "#0b6b3f", "drafted, accepted"),
    "rejected": ("#f8d3cb", "#b3261e", "drafted, rejected"),
    "unread": ("#eeeeee", GREY, "drafted after it, unread"),
    "own": ("#cfe2f6", "#0b4f94", "the target's own"),
}
_CALLS = {
    "target encoder": "#e6b800",
    "target decoder": "#6a3d9a",
    "draft encoder": "#f08030",
    "draft decoder": "#3b8fd4",
}
# The monospaced face is laid out by counting characters, each this wide per point of size.
_ADVANCE = 0.602
_COLUMNS = 76


class Chip(NamedTuple):
    """One token of Figure 1: its line, its first column, its text and what became of it."""

    line: float
    column: float
    text: str
    fate: str


class Call(NamedTuple):
    """One call of Figure 5: a key of the figure's legend, its start and its length in seconds."""

    kind: str
    start: float
    length: float


def check_trace(record: Mapping[str, Any]) -> None:
    """Raises `SpecdecError` where a record lacks a field or its rounds do not fit its gamma."""
    _require(record, _FIELDS, "the trace")
    _require(record["seconds"], _SECONDS, "the trace's seconds")
    gamma = record["gamma"]
    for i, turn in enumerate(record["rounds"]):
        _require(turn, _ROUND, f"round {i} of the trace")
        drafted, accepted = len(turn["drafted"]), turn["accepted"]
        if not accepted <= drafted <= gamma:
            raise SpecdecError(
                f"round {i} of the trace accepts {accepted} of {drafted} drafted tokens at "
                f"gamma = {gamma}, and must have accepted <= drafted <= gamma: record it again."
            )


def tokens_of(record: Mapping[str, Any]) -> int:
    """The tokens that a recorded run produced."""
    return sum(turn["accepted"] + bool(turn["extra"]) for turn in record["rounds"])


def chips(record: Mapping[str, Any]) -> list[Chip]:
    """Lays out the tokens of a run, one round per line, wrapped at the width of the page.

    The target's own token follows the one that it replaces; what was drafted after that comes last.
    A piece that begins a word stands one column off its neighbour, a piece that continues one a
    quarter; no piece is shown with its tokenizer's mark for the space.
    """
    laid = []
    line = 0
    for turn in record["rounds"]:
        column = 0.0
        kept, drafted = turn["accepted"], turn["drafted"]
        pieces = [(piece, "accepted") for piece in drafted[:kept]]
        pieces += [(piece, "rejected") for piece in drafted[kept : kept + 1]]
        pieces += [(turn["extra"], "own")]
        pieces += [(piece, "unread") for piece in drafted[kept + 1 :]]
        for piece, fate in pieces:
            if not piece:
                continue
            text = piece.replace("▁", " ").strip() or "␣"
            column += 1.0 if piece.startswith("▁") else 0.25
            if column + len(text) > _COLUMNS:
                line, column = line + 1, 1.0
            laid.append(Chip(line, column, text, fate))
            column += len(text)
        line += 1
    return laid


def calls(record: Mapping[str, Any]) -> list[Call]:
    """The calls of a run one after the other, each as long as its kind takes on average."""
    seconds = record["seconds"]
    drafting = record["gamma"] > 0
    lengths = [("target encoder", seconds["target_encoder"])]
    if drafting:
        lengths.append(("draft encoder", seconds["draft_encoder"]))
    for turn in record["rounds"]:
        lengths += [("draft decoder", seconds["draft_step"])] * len(turn["drafted"])
        lengths.append(("target decoder", seconds["verify" if drafting else "target_step"]))
    made, start = [], 0.0
    for kind, length in lengths:
        made.append(Call(kind, start, length))
        start += length
    return made


@mpl.rc_context(STYLE)
def token_figure(record: Mapping[str, Any], *, max_lines: int = 24) -> Figure:
    """Figure 1: each run of the target on a line, each token marked by what became of it.

    Args:
        record: a trace of gamma >= 1.
        max_lines: rounds that would go beyond this many lines are counted and not drawn.

    Raises:
        SpecdecError: where the record is no trace, or one of plain decoding.
    """
    check_trace(record)
    if record["gamma"] == 0:
        raise SpecdecError(
            "the trace is one of plain decoding, gamma = 0, and figure 1 shows drafts: "
            "record a run with gamma >= 1."
        )
    # The lines of one round stay together, so a round is drawn whole or not at all.
    laid = [chips({**record, "rounds": [turn]}) for turn in record["rounds"]]
    heights = [1 + max((chip.line for chip in turn), default=0) for turn in laid]
    shown = sum(sum(heights[: i + 1]) <= max_lines for i in range(len(laid)))
    lines = sum(heights[:shown]) + (shown < len(laid))

    # In the axes' units a line is 1 high and a column 1 wide; the key stands above line 0, the
    # summary below the last.
    columns, head, foot = _COLUMNS + 14, 2.1, 2.6
    figure = Figure(figsize=(WIDTH, 0.235 * (head + lines + foot)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-4, columns - 4), ylim=(lines - 0.5 + foot, -0.5 - head))
    axes.axis("off")
    size = WIDTH * 72 / columns / _ADVANCE
    _key(axes, size)
    top = 0
    for i, (turn, height) in enumerate(zip(laid[:shown], heights, strict=False)):
        text = partial(axes.text, size=size, color=GREY, va="center_baseline")
        text(-1.2, top, f"{i + 1}", ha="right")
        for chip in turn:
            _draw(axes, chip._replace(line=top + chip.line), size)
        accepted, drafted = record["rounds"][i]["accepted"], len(record["rounds"][i]["drafted"])
        text(columns - 5, top, f"{accepted} of {drafted}", ha="right")
        top += height
    if shown < len(laid):
        rest = f"… and {len(laid) - shown} more runs"
        axes.text(0, top, rest, size=size, color=GREY, va="center")
    runs, tokens = len(laid), tokens_of(record)
    summary = (
        f"{tokens} tokens in {runs} runs of the target, {tokens / runs:.2f} per run; "
        rf"$\gamma$ = {record['gamma']}"
    )
    foot_lines = (summary, f"target {record['target']}", f"draft {record['draft']}")
    for i, words in enumerate(foot_lines):
        below = lines + 0.05 + 0.85 * i
        axes.text(-3.5, below, words, size=0.9 * size, color=INK, va="center")
    return figure


@mpl.rc_context(STYLE)
def call_figure(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Figure 5: the encoder and decoder calls of several runs of one source over wall time.

    Args:
        records: traces of one source, drawn from the greatest gamma down to plain decoding.

    Raises:
        SpecdecError: where a record is no trace, none is given, or the sources differ.
    """
    if not records:
        raise SpecdecError("there is no trace to draw: record one run at least.")
    for record in records:
        check_trace(record)
    sources = {record["source"] for record in records}
    if len(sources) > 1:
        raise SpecdecError(
            f"the traces have {len(sources)} different sources and must share one: "
            "times of different work say nothing beside each other."
        )
    runs = sorted(records, key=lambda record: -record["gamma"])
    figure = Figure(figsize=(WIDTH, 0.62 * len(runs) + 0.95), layout="constrained")
    axes = figure.subplots()
    made = [calls(record) for record in runs]
    ends = [1e3 * (run[-1].start + run[-1].length) for run in made]
    for place, (record, run, end) in enumerate(zip(runs, made, ends, strict=True)):
        for call in run:
            shift = 0.2 if record["gamma"] else 0.0
            lane = place + (-shift if call.kind.startswith("target") else shift)
            # A white edge parts calls of one kind, where it would not hide them.
            edge = 0.4 if 1e3 * call.length > max(ends) / 100 else 0.0
            axes.barh(
                lane,
                1e3 * call.length,
                left=1e3 * call.start,
                height=0.36,
                color=_CALLS[call.kind],
                edgecolor="white",
                linewidth=edge,
            )
        note = f"{end:.0f} ms\n{tokens_of(record)} tokens, {len(record['rounds'])} runs"
        axes.annotate(note, (end, place), (5, 0), textcoords="offset points", va="center", size=8)
    axes.set_xlim(0, 1.27 * max(ends))
    axes.set_ylim(len(runs) - 0.45, -0.55)
    labels = [rf"$\gamma$ = {run['gamma']}" if run["gamma"] else "plain" for run in runs]
    axes.set_yticks(range(len(runs)), labels)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("wall time, ms")
    handles = [
        Patch(color=colour, label=f"{kind}\n{_lengths(kind, made)}")
        for kind, colour in _CALLS.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _lengths(kind: str, runs: Sequence[Sequence[Call]]) -> str:
    """The shortest and the longest call of a kind: a draft's may be too thin to be seen."""
    lengths = [1e3 * call.length for run in runs for call in run if call.kind == kind]
    if not lengths:
        return "none"
    low, high = (f"{length:.2g}" for length in (min(lengths), max(lengths)))
    return f"{low} ms each" if low == high else f"{low} to {high} ms"


def _draw(axes: Axes, chip: Chip, size: float) -> None:
    fill, ink, _ = _FATES[chip.fate]
    width = len(chip.text)
    box = FancyBboxPatch(
        (chip.column, chip.line - 0.36), width, 0.72, boxstyle="round,pad=0.08", fc=fill, ec="none"
    )
    axes.add_patch(box)
    weight = "bold" if chip.fate == "own" else "normal"
    axes.text(
        chip.column,
        chip.line,
        chip.text,
        size=size,
        color=ink,
        va="center_baseline",
        family="DejaVu Sans Mono",
        weight=weight,
        parse_math=False,
    )
    if chip.fate in ("rejected", "unread"):
        axes.plot([chip.column, chip.column + width], [chip.line] * 2, color=ink, linewidth=0.8)


def _key(axes: Axes, size: float) -> None:
    column = 0.0
    for fate, (_, _, words) in _FATES.items():
        _draw(axes, Chip(-1.6, column, words, fate), size)
        column += len(words) + 1.5


def _require(record: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    missing = [name for name in names if name not in record]
    if missing:
        raise SpecdecError(
            f"{what} lacks {', '.join(missing)} and must have {', '.join(names)}: "
            "record the run again."
        )
