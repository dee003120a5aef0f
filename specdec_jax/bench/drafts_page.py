"""What is known of the drafts on one machine, joined from its records into a page and a list.

    python -m specdec_jax.bench.drafts_page results/cpu

reads `drafts/*/alphas.json` (`specdec alphas`; of folders that end in `_variants`, drafts that were
trained in different ways), `drafts/*/tuned.json` (`specdec tune`) and `drafts/*/X_block.json`
beside `X.json` (`specdec bench --json`, with the block and the rejection rule), and writes
`drafts.json` and `drafts.md`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec_jax.bench import alphas
from specdec_jax.bench.tables import markdown
from specdec_jax.errors import SpecdecError, told
from specdec_jax.files import write_json, write_text

Record = Mapping[str, Any]
COLUMNS = ("task", "draft", "temperature", "lenience", "rule", "alpha", "alpha_se", "tokens")
HEAD = """\
# Drafts

Written by `python -m specdec_jax.bench.drafts_page`; `drafts.json` has a row for each alpha,
`drafts/` the records with their commands. Ratios were measured in turns in one process on a shared
machine; alphas are exact sums over the vocabulary behind prefixes that the target wrote."""
VARIANTS = "_variants"


def write(folder: Path) -> Path:
    """Join a folder's records; returns the page's path.

    Raises:
        SpecdecError: where there are none.
    """
    found = {path.parent.name: _read(path) for path in sorted(folder.glob("drafts/*/alphas.json"))}
    if not found:
        raise SpecdecError(
            f"There are no records drafts/*/alphas.json in {folder}: make some with "
            "`specdec alphas --out`."
        )
    shipped = _rows(found, variants=False)
    trained = _rows(found, variants=True)
    parts = [HEAD, "## Shipped and counted drafts", alphas.render(shipped)]
    if trained:
        parts += ["## One draft, trained in different ways", alphas.render(trained)]
    tuned = [_read(path) for path in sorted(folder.glob("drafts/*/tuned.json"))]
    if tuned:
        parts += ["## A gamma chosen before each round", _adapting(tuned)]
    blocks = list(_blocks(folder))
    if blocks:
        parts += ["## The block rule", _block_table(blocks)]
    write_json(
        folder / "drafts.json", [{name: row[name] for name in COLUMNS} for row in shipped + trained]
    )
    write_text(folder / "drafts.md", "\n\n".join(part.strip() for part in parts) + "\n")
    return folder / "drafts.md"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _rows(found: Mapping[str, Record], *, variants: bool) -> list[dict[str, Any]]:
    chosen = [each for name, each in found.items() if name.endswith(VARIANTS) is variants]
    return [row for record in chosen for row in record["rows"]]


def _adapting(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        found = record["adapting"]
        ratio, runs = found["adaptive_over_fixed"], found["tokens_per_run"]
        plain = found["seconds"]["plain"] / found["seconds"]["adaptive"]
        rows.append(
            (
                *(record["task"], record["draft"], f"{record['temperature']:g}"),
                *(found["gamma"], " ".join(map(str, found["gammas"]))),
                f"{runs['fixed']:.2f}" if "fixed" in runs else "1.00",
                f"{runs['adaptive']:.2f}",
                f"{plain:.2f}",
                f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})",
            )
        )
    header = [
        *("task", "draft", "T", "best fixed gamma", "chosen among", "tokens/run, fixed"),
        *("adaptive", "adaptive over plain", "adaptive over fixed (quartiles)"),
    ]
    return (
        "Whole decodes, encoders included; where the best fixed gamma is 0, the last column holds "
        "the adaptive way against plain decoding, which is what a useless draft costs.\n\n"
        + markdown(header, rows)
    )


def _blocks(folder: Path) -> Iterator[tuple[Record, Record]]:
    """Pairs of records that differ in the rule: rejection, block."""
    for path in sorted(folder.glob("drafts/*/*_block.json")):
        other = path.with_name(path.name.removesuffix("_block.json") + ".json")
        if other.is_file():
            yield _read(other), _read(path)


def _block_table(pairs: Sequence[tuple[Record, Record]]) -> str:
    rows = [
        (
            *(block["task"], block["draft"], f"{block['temperature']:g}", block["gamma"]),
            block["sentences"],
            *(f"{each['tokens_per_run']:.3f}" for each in (rejection, block)),
            f"{block['tokens_per_run'] / rejection['tokens_per_run']:.3f}",
        )
        for rejection, block in pairs
    ]
    names = ["task", "draft", "T", "gamma", "lines", "tokens/run, rejection", "block", "ratio"]
    return markdown(names, rows)


@told
def main() -> int:
    """Write the page of the folder that is named."""
    print(write(Path(sys.argv[1] if len(sys.argv) > 1 else "results/cpu")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
