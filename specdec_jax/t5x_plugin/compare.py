"""Compares what two runs of T5X's infer wrote: same tokens? how long did each take?

    python -m specdec_jax.t5x_plugin.compare PLAIN_DIR SPECULATIVE_DIR [--target T] [--json FILE]

Each folder holds the JSONL file of a run with `write_inferences_to_file.output_ids = True`, and its
log as `log`. Times are T5X's own, of every chunk but the first, which compiles. With a target, rows
of greedy runs that differ are listed with its logits there, see `margins`.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from specdec_jax.errors import SpecdecError, told
from specdec_jax.t5x_plugin.margins import margins

_CHUNK = re.compile(r"chunk completed in ([0-9.]+) seconds")


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the examples that a run wrote, in its order.

    Raises:
        SpecdecError: there is not exactly one file of them.
    """
    files = [p for p in folder.glob("*.jsonl-*") if p.suffix != ".COMPLETED"]
    if len(files) != 1:
        raise SpecdecError(
            f"{folder} has {len(files)} files *.jsonl-*, but a run writes one: give the output "
            "folder of one run of t5x.infer that ended well."
        )
    return [json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()]


def seconds(folder: Path) -> float | None:
    """Return the time of all chunks but the first; None where there are none."""
    log = (folder / "log").read_text(encoding="utf-8", errors="replace")
    times = [float(time) for time in _CHUNK.findall(log)][1:]
    return sum(times) if times else None


def macro(folder: Path, name: str) -> Any:
    """Return the value that a macro of the gin files had in a run.

    Raises:
        SpecdecError: the run did not use it.
    """
    config = (folder / "config.gin").read_text(encoding="utf-8")
    found = re.search(rf"^{name} = (.+)$", config, re.MULTILINE)
    if found is None:
        raise SpecdecError(
            f"{folder}/config.gin has no {name}: compare runs of gin_configs/runs of this project."
        )
    return ast.literal_eval(found[1])


def compare(plain: Path, speculative: Path, target: str | None = None) -> dict[str, Any]:
    """Return the number of rows, of identical ones, both times, and tokens for each target run.

    Args:
        plain: output folder of the baseline.
        speculative: output folder of the other run.
        target: given, rows of greedy runs that differ are listed under `differing`.

    Raises:
        SpecdecError: the runs are not of the same examples.
    """
    first, second = rows(plain), rows(speculative)
    if [row["inputs"] for row in first] != [row["inputs"] for row in second]:
        raise SpecdecError(
            f"{plain} has {len(first)} rows and {speculative} {len(second)}, of other inputs: "
            "compare two runs of one task and split."
        )
    tokens = [[row["prediction_tokens"] for row in run] for run in (first, second)]
    # A list for each row where all decodes were returned.
    runs = np.array([row["aux"]["target_runs"] for row in second])
    per_run = np.array([row["aux"]["mean_accepted_length"] for row in second])
    found = {
        "rows": len(first),
        "identical": sum(a == b for a, b in zip(*tokens, strict=True)),
        "seconds_plain": seconds(plain),
        "seconds_speculative": seconds(speculative),
        "tokens_per_run": float(np.sum(runs * per_run) / max(np.sum(runs), 1)),
    }
    if target is not None and macro(plain, "TEMPERATURE") == 0 and runs.ndim == 1:
        found["differing"] = margins(
            target,
            macro(plain, "DTYPE"),
            [row["inputs"]["inputs_pretokenized"] for row in first],
            *tokens,
            length=macro(plain, "TASK_FEATURE_LENGTHS")["inputs"],
        )
    return found


@told
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status, 1 where a row differs."""
    parser = argparse.ArgumentParser(
        prog="python -m specdec_jax.t5x_plugin.compare",
        description="Compare a plain and a speculative run of t5x.infer.",
    )
    parser.add_argument("plain", type=Path, help="output folder of the baseline")
    parser.add_argument("speculative", type=Path, help="output folder of the speculative run")
    parser.add_argument("--target", help="its checkpoint or name: list rows that differ")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args(arguments)
    found = compare(options.plain, options.speculative, options.target)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"identical {found['identical']}/{found['rows']}")
    for name in ("plain", "speculative"):
        time = found[f"seconds_{name}"]
        shown = "not measured (one chunk, which compiles)" if time is None else f"{time:.2f} s"
        print(f"{name:12} {shown}")
    print(f"{found['tokens_per_run']:.2f} tokens for each target run")
    for row in found.get("differing", ()):
        print(
            f"row {row['row']} differs from token {row['position']} on, where the target's two "
            f"largest logits are {row['margin']:.4f} apart"
        )
    return 0 if found["identical"] == found["rows"] else 1


if __name__ == "__main__":
    sys.exit(main())
