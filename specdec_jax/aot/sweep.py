"""Many programs, one record each; what is there already is not compiled again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from specdec_jax.aot import report, serving
from specdec_jax.aot.analysis import Case, Record, of_shapes, run
from specdec_jax.aot.topology import TOPOLOGIES, require_libtpu, topology
from specdec_jax.errors import SpecdecError
from specdec_jax.files import write_json, write_text
from specdec_jax.t5 import preset

SUMMARY, PAGE, RECORDS, SERVED = "summary.json", "README.md", "records", "serving.json"
SERVING = """\
## Serving on many chips, on paper

One replica of T5-XXL with a small draft, batch by batch, alpha = {alpha} (the paper's
English-German at temperature 0), sources of 512 tokens and outputs of 128. A row is one request;
"best gamma" has the most tokens a second. Replicas share nothing, so a pod has as many tokens a
second as its chips times the last column. Times are the bytes, operations and latencies above,
without what chips wait for each other; every row is taken to be at work, whereas a batch of this
project ends with its slowest row. `serving.json` has these rows, and those that do not fit."""
ALPHA = 0.75
NOTES = """\
# T5-XXL on TPUs, compiled ahead of time

Written by `specdec aot --out results/tpu_aot`. No TPU was used. Where the table says so, the whole
decode (both encoders, the cross-attention projections and the loop, `speculative` or
`autoregressive`) was compiled by TPU's own compiler for topologies that it knows by name, and
memory, copies and collectives were read from the executable; all else is computed from the shapes.
**Nothing here is a measured time.** `summary.json` holds one row a program, `records/` one file
each with the versions and the command. The same command compiles what is marked "not yet".

Assumed: T5 1.1, bfloat16 parameters and activations, float32 logits, rejection rule, parameters
split over all chips by `specdec_jax/t5/partitioning.py` (mesh 1 x chips), layouts chosen by the
compiler, batch, source length and most tokens as in the records (1, 512 and 128 unless said).

- *Memory* is the compiler's: arguments, temporaries (the caches are among them), code. "parameters"
  and "caches" are computed from the shapes, and all that there is of what was not compiled yet.
  "of" is the chip's nominal HBM; a program may use a few percent less of it.
- A *weight copy* is an instruction of a round that only moves, transposes or converts an array of
  the size of one chip's part of a matrix within HBM. *Collectives* are counted a round (inner loops
  and branches once), with the bytes of their results on one chip.
- *Step, verify, draft* are bytes of weights and caches of one chip over its HBM bandwidth, plus 16
  microseconds a layer. That latency is the one that gives the paper's c (0.02, 0.04, 0.11) on one
  TPU v4; that other generations have the same is a guess. What chips wait for each other is left
  out, so on several chips times are lower bounds, and c too: a small draft's layers exchange sums
  as often as the target's. "c, bytes alone" leaves the latency out as well. v is 1 by this account,
  since even gamma + 1 tokens take less arithmetic than reading. What does not fit is left out.
- The compiler estimates cycles for each instruction; `compiler_cycles` in the records adds those of
  a round up. No cost is taken from them: by them a call of eight tokens takes 0.18 to 0.55 of one
  of a single token, so products of one row must be priced in another way.
- *Table 2* is E[tokens] / (gamma c + v) with the paper's alpha and gamma and our c and v."""


def sweep(
    cases: Sequence[Case],
    folder: Path,
    say: Callable[[str], None],
    *,
    shapes_only: bool = False,
) -> list[Record]:
    """Compile what was not compiled yet, and rewrite summary and page after each.

    Args:
        cases: in the order in which they are compiled.
        folder: exists; records are kept in its folder `records`.
        say: takes a line for who waits.
        shapes_only: compile nothing; records of what was not compiled hold what shapes alone say.

    Returns:
        All records of the folder.

    Raises:
        SpecdecError: when libtpu is missing and something is to be compiled.
    """
    kept = folder / RECORDS
    kept.mkdir(exist_ok=True)
    missing = [case for case in cases if not _is_compiled(_file(kept, case))]
    if missing and not shapes_only:
        require_libtpu()
    for number, case in enumerate(missing, 1):
        say(f"[{number}/{len(missing)}] {case.name}")
        made = of_shapes(case) if shapes_only else run(case, say)
        # Another sweep of the same folder may have been faster.
        if not (shapes_only and _is_compiled(_file(kept, case))):
            write_json(_file(kept, case), made)
        write(folder)
    return write(folder)


def _is_compiled(file: Path) -> bool:
    return file.is_file() and _read(file)["compiled"]


def write(folder: Path) -> list[Record]:
    """Write summary, page and serving model into a folder, and return its records."""
    records = [_read(path) for path in sorted((folder / RECORDS).glob("*.json"))]
    write_json(folder / SUMMARY, report.summary(records))
    target, draft = preset("xxl"), preset("small")
    rows = [
        row
        for place in TOPOLOGIES
        for row in serving.serving(topology(place), target, draft, alpha=ALPHA)
    ]
    write_json(folder / SERVED, serving.as_records(rows))
    more = f"{SERVING.format(alpha=ALPHA)}\n\n{serving.table(rows)}\n"
    write_text(folder / PAGE, f"{report.page(records, notes=NOTES)}\n{more}")
    return records


def _file(kept: Path, case: Case) -> Path:
    return kept / f"{case.name}.json"


def _read(path: Path) -> Record:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SpecdecError(
            f"{path} is not a JSON record ({error}): remove it, and it is made anew."
        ) from error
