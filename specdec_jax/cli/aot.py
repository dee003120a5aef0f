"""`specdec aot`: compile the whole loop for TPUs that are not at hand."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from specdec_jax.cli.flags import OK, add, require_positive
from specdec_jax.errors import SpecdecError


def add_commands(commands) -> None:
    """Add the parsers of this module's commands."""
    summary = "Compile the whole loop for TPUs, without one: memory, copies, times to expect."
    flags = add(commands, "aot", _run_aot, summary)
    flags.add_argument(
        "--topology", nargs="+", default=["v4:2x2x1"], help="v4:2x2x1, v5e:2x4, ... (v4:2x2x1)"
    )
    flags.add_argument("--target", default="xxl", help="a preset: small, base, ..., xxl (xxl)")
    flags.add_argument(
        "--draft", nargs="+", default=["small"], help="presets; none is plain decoding (small)"
    )
    flags.add_argument("--gamma", type=int, default=7, help="guesses a round (7)")
    flags.add_argument("--batch_size", type=int, default=1, help="rows decoded together (1)")
    flags.add_argument("--source_length", type=int, default=512, help="tokens of a source (512)")
    flags.add_argument("--max_tokens", type=int, default=128, help="of an output (128)")
    flags.add_argument(
        "--row_major", action="store_true", help="do not let the compiler choose layouts"
    )
    flags.add_argument(
        "--shapes_only", action="store_true", help="compile nothing: bytes and times; no libtpu"
    )
    flags.add_argument("--json", type=Path, help="write the record, of one program, here")
    flags.add_argument(
        "--out", type=Path, help="folder for the records of many, a summary and a page; resumes"
    )


def _run_aot(arguments: argparse.Namespace) -> int:
    from specdec_jax.aot import report
    from specdec_jax.aot.analysis import Case, of_shapes, run
    from specdec_jax.aot.sweep import sweep
    from specdec_jax.aot.topology import require_libtpu, topology
    from specdec_jax.files import require_folder, write_json

    require_folder(arguments.json)
    require_positive(arguments, "gamma", "batch_size", "source_length", "max_tokens")
    cases = [
        Case(
            where=topology(place),
            target=arguments.target,
            draft=None if draft == "none" else draft,
            gamma=arguments.gamma,
            batch=arguments.batch_size,
            source_length=arguments.source_length,
            max_tokens=arguments.max_tokens,
            automatic_layouts=not arguments.row_major,
        )
        for draft in arguments.draft
        for place in arguments.topology
    ]
    for case in cases:
        case.decode()  # an unknown preset is told before the first of many is compiled
    if arguments.out is not None:
        if not arguments.out.is_dir():
            raise SpecdecError(f"There is no folder {arguments.out} to write to: make it.")
        sweep(cases, arguments.out, _say, shapes_only=arguments.shapes_only)
        return OK
    if len(cases) != 1:
        raise SpecdecError(
            f"These flags name {len(cases)} programs, and without --out one is compiled: "
            "give one topology and one draft, or --out and a folder."
        )
    if arguments.shapes_only:
        record = of_shapes(cases[0])
    else:
        require_libtpu()
        record = run(cases[0], _say)
    print(report.page([record], notes=f"# {cases[0].name}"))
    if arguments.json is not None:
        write_json(arguments.json, record)
    return OK


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
