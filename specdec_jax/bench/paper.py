"""Writes the paper's theory as files: tables in JSON, figures, and a page with all of it.

    table1.json  table4.json  table5.json  figure3.json  README.md
    figure2, figure3, figure4 and, from traces, figure1, figure5: .svg and .png

Everything follows from the package and the traces, so a second run writes the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec_jax.bench import paper_tables
from specdec_jax.bench.paper_tables import Rows
from specdec_jax.errors import SpecdecError

_PAGE = """\
# The paper's theory, recomputed

Tables and figures of *Fast Inference from Transformers via Speculative Decoding*
(Leviathan, Kalman, Matias; arXiv:2211.17192v2) from `specdec_jax.theory`, each number beside the
printed one. `specdec theory --out results/paper` writes this folder; the JSON files hold the same
rows unrounded.

## Table 1: operations and speed at c = c_hat = 0

Theorems 3.11 and 3.8. All six rows agree to the two decimals that are printed.

{table1}

## Table 4: expected gains

EXP is Theorem 3.8 at the printed alpha, gamma and c. The range is what the rounding of the printed
inputs leaves open: alpha within 0.005, c within 0.005. EMP is the paper's measurement.

{table4}

- Where the printed EXP is not the rounded value of the printed inputs, it lies in the range: the
  authors' inputs had more digits than they print.
- Four measurements lie above E[tokens] of Eq. (1), the gain of a draft of no cost at that gamma,
  and two of them above 1/(1 - alpha), its gain at any gamma: alpha and c alone cannot explain them.
  The paper names two causes: betas that are not i.i.d., and a speculative implementation optimised
  to another degree than the baseline. Over a baseline optimised as well, expect EXP.
- The gammas used are near the best of Theorem 3.8, and not always at it.
- Section 3.3 says that c was always below 0.05; the table lists 0.11 for T5-large.

## Table 5: lenience

The paper prints the alphas. The gains are Theorem 3.8 at the best gamma, or at the stated one, with
c = 0.015 for the small draft (section A.5; Table 4 has 0.02) and Table 4's 0.04 for the base draft.
An n-gram table costs nothing, so no gamma is best, and its gain is the limit 1/(1 - alpha).

{table5}

- At temperature 1 the first three gains stated for the small draft exceed what the printed alpha
  and c give at any gamma; the fourth is printed without a decimal and agrees. No gamma is stated.
- At temperature 0, where gamma is stated as 8, all four agree.
- At temperature 0 the printed rule accepts a token if p(x) <= l max(p), which at l = 1 would accept
  every token and make alpha 1. Here a token is accepted if p(x) >= l max(p).

## Figure 3: the optimal gamma

Agrees with the plotted steps at every alpha below; figure3.json has all alphas of two decimals.

{figure3}

![optimal gamma](figure3.svg)

## Figures 2 and 4

![expected tokens](figure2.svg)

![speed and operations](figure4.svg)

## Numbers in the text

{statements}

The bigram's 1.25 is this value rounded; it was computed, not timed. The oracle's 60% is the top of
a range: with the drafts' cost counted, an oracle gains 21 to 53% at these costs.
"""

_TRACES = """
## Figures 1 and 5, from recorded runs

Target {target}, draft {draft}.
{count} Figure 5 lays the same
run's calls end to end, beside those of other gammas and of plain decoding, each call as long as its
kind took in the median. `specdec trace LINE --shape base --json trace.json` records such runs,
`specdec theory --out results/paper --trace trace.json` draws them.

![tokens](figure1.svg)

![calls](figure5.svg)
"""


def write(
    out_dir: str | Path, trace: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
) -> list[Path]:
    """Writes the tables, the figures and the page into a folder.

    Args:
        out_dir: the folder; made where it is missing, its files of these names replaced.
        trace: one trace record or several of one source (see `trace_figures`). Figure 1 shows the
            one of the greatest gamma, Figure 5 all; without traces neither is drawn.

    Returns:
        The files written.

    Raises:
        SpecdecError: where matplotlib is missing, or a record is no trace.
    """
    try:
        from specdec_jax.bench import figures, trace_figures
    except ModuleNotFoundError as error:
        raise SpecdecError(
            f"{error.name} is not installed and the figures need it: "
            "pip install 'specdec-jax[figures]'."
        ) from error

    drawn = {
        "figure2": figures.expected_tokens_figure(),
        "figure3": figures.optimal_gamma_figure(),
        "figure4": figures.speed_and_operations_figure(),
    }
    page = readme()
    if trace is not None:
        records = [trace] if isinstance(trace, Mapping) else list(trace)
        # Figure 5 first: it checks every record.
        drawn["figure5"] = trace_figures.call_figure(records)
        shown = max(records, key=lambda record: record["gamma"])
        drawn["figure1"] = trace_figures.token_figure(shown)
        runs, tokens = len(shown["rounds"]), trace_figures.tokens_of(shown)
        count = f"Figure 1 shows {tokens} tokens in {runs} runs of the target."
        page += _TRACES.format(target=shown["target"], draft=shown["draft"], count=count)

    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in ("table1", "table4", "table5", "figure3"):
        path = folder / f"{name}.json"
        path.write_text(_json(getattr(paper_tables, name)()), encoding="utf-8")
        written.append(path)
    for name, figure in drawn.items():
        written += figures.save(figure, folder / name)
    path = folder / "README.md"
    path.write_text(page, encoding="utf-8")
    return [*written, path]


def readme() -> str:
    """The page without its traces: every table in Markdown, and what explains a difference."""
    shown = (0.5, 0.6, 0.7, 0.8, 0.9)
    steps: dict[float, list[int]] = {}
    for row in paper_tables.figure3():
        if row["alpha"] in shown:
            steps.setdefault(row["c"], []).append(row["gamma"])
    return _PAGE.format(
        table1=_markdown(
            paper_tables.table1(),
            {
                "alpha": "{alpha}",
                "gamma": "{gamma}",
                "operations": "{operations:.2f}",
                "paper's operations": "{paper_operations:.2f}",
                "speed": "{speed:.2f}",
                "paper's speed": "{paper_speed:.2f}",
            },
        ),
        table4=_markdown(
            [{**row, "remark": _remark4(row)} for row in paper_tables.table4()],
            {
                "task": "{task}",
                "draft": "{draft}",
                "T": "{temperature}",
                "gamma": "{gamma}",
                "alpha": "{alpha:.2f}",
                "c": "{c:.2f}",
                "EXP": "{exp:.2f}",
                "range": "{low:.2f} to {high:.2f}",
                "paper's EXP": "{paper_exp:.1f}",
                "E[tokens]": "{expected_tokens:.2f}",
                "1/(1 - alpha)": "{limit:.2f}",
                "best gamma": "{best_gamma}",
                "paper's EMP": "{paper_emp:.1f}",
                "remark": "{remark}",
            },
        ),
        table5=_markdown(
            [{**row, **_words5(row)} for row in paper_tables.table5()],
            {
                "draft": "{draft}",
                "T": "{temperature}",
                "lenience": "{lenience}",
                "paper's alpha": "{alpha:.2f}",
                "c": "{c}",
                "gamma": "{gamma}",
                "gain": "{speed:.2f}",
                "range": "{low:.2f} to {high:.2f}",
                "paper's gain": "{paper_speed}",
                "remark": "{remark}",
            },
        ),
        figure3=_markdown(
            [{"c": c, "gamma": gammas} for c, gammas in steps.items()],
            {"c": "{c}"} | {f"alpha {alpha}": f"{{gamma[{i}]}}" for i, alpha in enumerate(shown)},
        ),
        statements=_markdown(
            paper_tables.statements(),
            {"statement": "{statement}", "ours": "{ours:.3f}", "paper": "{paper}"},
        ),
    )


def _remark4(row: dict[str, Any]) -> str:
    remarks = []
    if f"{row['exp']:.1f}" != f"{row['paper_exp']:.1f}":
        remarks.append("EXP in the range" if row["agrees"] else "EXP out of the range")
    if row["paper_emp"] > row["limit"]:
        remarks.append("EMP above 1/(1 - alpha)")
    elif row["paper_emp"] > row["expected_tokens"]:
        remarks.append("EMP above E[tokens]")
    return "; ".join(remarks)


def _words5(row: dict[str, Any]) -> dict[str, str]:
    return {
        "gamma": str(row["gamma"] or "any"),
        "paper_speed": str(row["paper_speed"] or ""),
        "remark": "above the range" if row["agrees"] is False else "",
    }


def _markdown(rows: Rows, columns: Mapping[str, str]) -> str:
    """A table of the rows; each column is a heading and a format of a row's keys."""
    lines = [list(columns), ["---"] * len(columns)]
    lines += [[cell.format_map(row) for cell in columns.values()] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("  ", " ") for cells in lines)


def _json(rows: Rows) -> str:
    """One row per line, so that a change of one number is a change of one line."""
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]\n"
