"""Records of several programs side by side: rows for a machine, a page for a reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec_jax.bench.tables import markdown

Record = dict[str, Any]
_TASK, _TEMPERATURE = "EnDe", 0


def summary(records: Sequence[Record]) -> list[Record]:
    """Return one row for each record.

    Returns:
        Rows with `topology, chips, target, draft, gamma, hbm_bytes_per_chip` (the peak),
        `hbm_limit, fits, weight_copies, step_seconds, verify_seconds, draft_seconds, c, v,
        predicted_speedup` (of the paper's English-German at temperature 0), and further counts.
        What is not known (of plain decoding, or of what was not or could not be compiled) is null.
    """
    return [_row(record) for record in records]


def _row(record: Record) -> Record:
    memory, loop = record["hbm_bytes_per_chip"], record["loop"] or {}
    costs, bytes_alone = record.get("costs", {}), record.get("costs_of_bytes_alone", {})
    paper = _paper_row(record)
    return {
        **{name: record[name] for name in ("topology", "chips", "target", "draft", "gamma")},
        "hbm_bytes_per_chip": memory.get("peak", memory.get("refused")),
        "hbm_limit": memory["limit"],
        "fits": memory["fits"],
        "compiled": record["compiled"],
        "layouts": record["layouts"],
        "weight_copies": loop.get("weight_copies"),
        "cache_copies": loop.get("cache_copies"),
        "collectives": loop.get("collective_count"),
        "collective_bytes": loop.get("collective_bytes"),
        "step_seconds": costs.get("step_seconds", record["step_bytes"]["seconds"]),
        "verify_seconds": costs.get("verify_seconds"),
        "draft_seconds": costs.get("draft_seconds"),
        "c": costs.get("c"),
        "v": costs.get("v"),
        "predicted_speedup": paper.get("predicted_speedup"),
        "c_of_bytes_alone": bytes_alone.get("c"),
    }


def _paper_row(record: Record) -> Record:
    """The row of Table 2 that the summary quotes, where the compiled gamma is the paper's."""
    for row in record.get("table2", ()):
        if (row["task"], row["temperature"]) == (_TASK, _TEMPERATURE):
            return row if row["gamma"] == record["gamma"] else {}
    return {}


def page(records: Sequence[Record], *, notes: str) -> str:
    """Return a Markdown page: memory, what a round moves, times, Table 2."""
    rows = summary(records)
    parts = [notes, "## Memory of one chip", _memory(records), "## What a round moves"]
    parts += [_moves(records), "## Times", _times(rows), "## The paper's Table 2, predicted"]
    return "\n\n".join([*parts, _table2(records)]) + "\n"


def _memory(records: Sequence[Record]) -> str:
    sizes = ("parameters", "caches", "temporaries", "peak", "of")
    return markdown(
        ["topology", "draft", "chips", *(f"{name}, GB" for name in sizes), "fits", "compiled"],
        (
            (
                record["topology"],
                _draft(record),
                record["chips"],
                *(_giga(memory.get(name)) for name in ("parameters", "caches", "temporaries")),
                _giga(memory.get("peak", memory.get("refused"))),
                _giga(memory["limit"]),
                {True: "yes", False: "no", None: ""}[memory["fits"]],
                _compiled(record),
            )
            for record in records
            for memory in [record["hbm_bytes_per_chip"]]
        ),
    )


def _moves(records: Sequence[Record]) -> str:
    return markdown(
        [
            *("topology", "draft", "layouts", "weight copies", "cache copies"),
            *("largest move, MB", "collectives", "their bytes, MB"),
        ],
        (
            (
                record["topology"],
                _draft(record),
                record["layouts"].replace("_", "-"),
                loop["weight_copies"],
                loop["cache_copies"],
                f"{loop['largest_move_bytes'] / 1e6:.2f}",
                loop["collective_count"],
                f"{loop['collective_bytes'] / 1e6:.2f}",
            )
            for record in records
            if (loop := record["loop"])
        ),
    )


def _times(rows: Sequence[Record]) -> str:
    return markdown(
        [
            *("topology", "draft", "step, ms", "verify, ms", "draft, ms", "c", "v"),
            *("c, bytes alone", "EnDe T=0"),
        ],
        (
            (
                row["topology"],
                row["draft"],
                *(
                    f"{1e3 * row[name]:.3f}"
                    for name in ("step_seconds", "verify_seconds", "draft_seconds")
                ),
                *(_number(row[name], 3) for name in ("c", "v", "c_of_bytes_alone")),
                _number(row["predicted_speedup"], 2),
            )
            for row in rows
            if row["draft"] is not None and row["layouts"] == "automatic" and _may_run(row)
        ),
    )


def _table2(records: Sequence[Record]) -> str:
    """One line for each row of the paper's table, one column for each topology."""
    pairs = [
        record
        for record in records
        if record["draft"] is not None
        and record["layouts"] == "automatic"
        and _may_run(record["hbm_bytes_per_chip"])
    ]
    places = list(dict.fromkeys(record["topology"] for record in pairs))
    cells: dict[tuple[Any, ...], dict[str, Record]] = {}
    for record in pairs:
        for row in record["table2"]:
            key = tuple(row[name] for name in ("task", "draft", "temperature", "gamma", "alpha"))
            cells.setdefault(key, {})[record["topology"]] = row
    lines = []
    for key, by_place in cells.items():
        first = next(iter(by_place.values()))
        found = (by_place.get(place, {}).get("predicted_speedup") for place in places)
        lines.append(
            (*key, first["paper_exp"], first["paper_emp"], *(_number(x, 2) for x in found))
        )
    header = ["task", "draft", "T", "gamma", "alpha", "paper's EXP", "paper's EMP", *places]
    return markdown(header, lines)


def _draft(record: Record) -> str:
    return "none (plain)" if record["draft"] is None else f"{record['draft']}"


def _may_run(memory: Record) -> bool:
    """Whether it fits, or nobody knows yet."""
    return memory["fits"] is not False


def _compiled(record: Record) -> str:
    if not record["compiled"]:
        return "not yet"
    return f"{record.get('compile_seconds', 0):.0f} s" if record["loop"] else "refused"


def _giga(count: int | None) -> str:
    return "" if count is None else f"{count / 1e9:.2f}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
