"""Records of one machine joined into a list of rows, a table and figures.

Rows come from `specdec bench EXPERIMENT` (`alpha`, `c`, `v`, what was expected and measured) and
from comparisons with other decoders (`side_by_side`, scripts/bench_peers.py), which fill in the
last columns of the same case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from specdec_jax.bench.figures import COLOURS, GREY, STYLE, WIDTH, save
from specdec_jax.bench.tables import markdown
from specdec_jax.files import write_json, write_text

KEYS = ("task", "shape", "temperature", "draft", "gamma", "batch")
COLUMNS = (
    *KEYS,
    *("alpha", "c", "v", "exp", "emp", "emp_over_exp", "identical", "rows"),
    *("plain_over_t5x", "speculative_over_t5x", "speculative_over_hf_assisted"),
)
MEASURES = "summary.json"
RULE = "rejection"


def rows_of(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join records into rows with the keys `COLUMNS`, None where nothing was measured.

    `exp` is the predicted and `emp` the measured speedup over plain decoding, both without the
    encoders, which Theorem 3.8 of arXiv:2211.17192 leaves out.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        # The rows are of one rule; another one's records stand for themselves.
        if any(key not in record for key in KEYS) or record.get("rule", RULE) != RULE:
            continue
        row = rows.setdefault(tuple(record[key] for key in KEYS), dict.fromkeys(COLUMNS))
        row |= {key: record[key] for key in KEYS}
        if "over_t5x" in record:
            ratios = record["over_t5x"]
            row["plain_over_t5x"] = ratios["plain"]
            row["speculative_over_t5x"] = ratios["speculative"]
            if "hf_assisted" in ratios:
                row["speculative_over_hf_assisted"] = ratios["speculative"] / ratios["hf_assisted"]
            continue
        expected, measured = record["predicted_speedup"], record["speedup_decoding"]
        row |= {
            **{name: record[name] for name in ("alpha", "c", "v")},
            # Samples of one distribution need not be the same ones.
            "identical": record["identical"] if record["temperature"] == 0 else None,
            "rows": record["sentences"],
            "exp": expected,
            "emp": measured,
            "emp_over_exp": measured / expected if measured and expected else None,
        }
    return [rows[key] for key in sorted(rows)]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a Markdown table."""
    header = [name.replace("_", " ") for name in COLUMNS]
    return markdown(header, ([_cell(n, row[n]) for n in COLUMNS] for row in rows)) + "\n"


def peers_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Return how fast each decoder is over T5X's own, and at temperature 0 how exact.

    Args:
        records: those of comparisons are taken, others left out.
    """
    found = [record for record in records if "over_t5x" in record]
    ways = list(dict.fromkeys(way for record in found for way in record["over_t5x"]))

    def cell(record: Mapping[str, Any], way: str) -> str:
        if way not in record["over_t5x"]:
            return ""
        same = record["identical"].get(way)
        exact = record["temperature"] > 0 or same is None or same == record["sentences"]
        told = "" if exact else f" ({same} of {record['sentences']} identical)"
        return f"{record['over_t5x'][way]:.2f}{told}"

    order = sorted(found, key=lambda record: tuple(record[key] for key in KEYS))
    return (
        markdown(
            [*KEYS, "lines", *(way.replace("_", " ") for way in ways)],
            (
                (
                    *(
                        f"{record[key]}" if key != "temperature" else f"{record[key]:g}"
                        for key in KEYS
                    ),
                    record["sentences"],
                    *(cell(record, way) for way in ways),
                )
                for record in order
            ),
        )
        + "\n"
    )


def _cell(name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if name == "temperature" or isinstance(value, int):
        return f"{value:g}"
    return f"{value:.3f}" if name == "c" else f"{value:.2f}"


@mpl.rc_context(STYLE)
def against(rows: Sequence[Mapping[str, Any]], what: str, label: str) -> Figure:
    """Draw the speedup, measured (points) and predicted (lines), against gamma or batch.

    Rows that differ in `what` alone make a curve; those with one value of it are left out.
    """
    curves: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["emp"] is not None:
            curves.setdefault(tuple(row[key] for key in KEYS if key != what), []).append(row)
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(1.0, color=GREY, linewidth=0.8)
    drawn = [(key, part) for key, part in curves.items() if len(part) > 2]
    for number, (key, part) in enumerate(drawn):
        part = sorted(part, key=lambda row: row[what])
        colour = COLOURS[number % len(COLOURS)]
        x = [row[what] for row in part]
        expected = [float("nan") if row["exp"] is None else row["exp"] for row in part]
        shown = dict(zip([name for name in KEYS if name != what], key, strict=True))
        fixed = "batch" if what == "gamma" else "gamma"
        axes.plot(
            x,
            expected,
            "-",
            color=colour,
            linewidth=1.2,
            label=f"{shown['task']}, T5-{shown['shape']}, T = {shown['temperature']:g}, "
            f"{shown['draft']}, {fixed} {shown[fixed]}",
        )
        axes.plot(x, [row["emp"] for row in part], "o", color=colour, markersize=4)
    if what == "batch":
        axes.set_xscale("log", base=2)
    seen = sorted({row[what] for _, part in drawn for row in part})
    axes.set_xticks(seen, [str(x) for x in seen])
    axes.minorticks_off()
    axes.set(xlabel=label, ylabel="speedup over plain\n(points: measured)")
    if drawn:
        figure.legend(loc="outside lower center", frameon=False)
    return figure


def write(folder: Path) -> Path:
    """Join a folder's records into summary.json, table.md, peers.md and two figures beside them."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
        if path.name != MEASURES
    ]
    records = [record for record in records if isinstance(record, dict)]
    rows = rows_of(records)
    write_json(folder / MEASURES, rows)
    write_text(folder / "table.md", table(rows))
    write_text(folder / "peers.md", peers_table(records))
    save(against(rows, "gamma", "gamma (guesses a round)"), folder / "speedup_by_gamma")
    save(against(rows, "batch", "batch (lines decoded together)"), folder / "speedup_by_batch")
    return folder / MEASURES
