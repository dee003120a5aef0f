"""Collects the records of scripts/jobs/experiments.sh beside the paper's numbers.

`python scripts/jobs/table.py OUT` writes OUT/table.md and prints it.
"""

import json
import re
import sys
from pathlib import Path

EXPERIMENTS = Path(__file__).resolve().parents[2] / "gin_configs/experiments"
PAPER = re.compile(r"speedup of ([\d.]+)X over T5X's own loop at alpha ([\d.]+) and gamma (\d+)")
HEAD = ("experiment", "gamma", "speedup", "paper's", "tokens a target run", "rows", "identical")


def row(gin: Path, out: Path) -> list[str]:
    """Return the cells of one experiment; a dash is for what was not measured."""
    words = re.sub(r"\s*\n#\s*", " ", gin.read_text(encoding="utf-8"))
    told = PAPER.search(words)
    if told is None:
        raise SystemExit(f"error: {gin} does not say what it reproduces")
    path = out / f"{gin.stem}.json"
    if not path.is_file():
        return [gin.stem, told[3], "-", f"{told[1]}X", "-", "-", "-"]
    found = json.loads(path.read_text(encoding="utf-8"))
    speedup = "-"
    if found["seconds_plain"] and found["seconds_speculative"]:
        speedup = f"{found['seconds_plain'] / found['seconds_speculative']:.2f}X"
    tokens = f"{found['tokens_per_run']:.2f}"
    rows, identical = str(found["rows"]), str(found["identical"])
    return [gin.stem, told[3], speedup, f"{told[1]}X", tokens, rows, identical]


def table(out: Path) -> str:
    """Return the table of all experiments, in Markdown."""
    lines = [HEAD, ["---"] * len(HEAD)]
    lines += [row(gin, out) for gin in sorted(EXPERIMENTS.glob("table2_*.gin"))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        raise SystemExit("error: give the folder that scripts/jobs/experiments.sh wrote to")
    made = table(Path(sys.argv[1]))
    (Path(sys.argv[1]) / "table.md").write_text(made, encoding="utf-8")
    print(made, end="")
