"""What commands read besides models: a task's lines, and what an earlier command found."""

from __future__ import annotations

import argparse
import lzma
import sys
from pathlib import Path

from specdec_jax.cli.flags import read_json
from specdec_jax.errors import SpecdecError

DATA = "lines, or SOURCE TAB REFERENCE lines in a file named .tsv or .tsv.xz"


def task_flag(flags: argparse.ArgumentParser) -> None:
    """Add the flag that names a task."""
    flags.add_argument(
        "--task",
        default="ende",
        help="whose prefix stands before each line: ende, summarize (ende)",
    )


def read_columns(path: Path) -> tuple[list[str], list[str] | None]:
    """Read a file of lines, or of pairs where its name ends in .tsv or .xz.

    Returns:
        Sources, and references (None for plain lines).

    Raises:
        SpecdecError: no such file, or one that does not hold what its name says.
    """
    from specdec_jax.files import read_lines

    if path.suffix not in (".tsv", ".xz"):
        return read_lines(path), None
    from specdec_jax.training.examples import read_pairs

    try:
        pairs = read_pairs(path)
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise SpecdecError(f"{path} cannot be read as text ({error}): copy it again.") from error
    return [source for source, _ in pairs], [reference for _, reference in pairs]


def public_name(name: str) -> str:
    """Return a model's name for a record: where its author keeps files is nobody's business."""
    first, plus, rest = name.partition("+")
    return f"{first}+{public_name(rest)}" if plus and first == "lookup" else Path(name).name


def take_tuned(arguments: argparse.Namespace) -> None:
    """Put the gamma of `--tuned FILE` into the arguments; say where it was found for another way.

    Raises:
        SpecdecError: the file is no record of `specdec tune`, or of other models.
    """
    if arguments.tuned is None:
        return
    from specdec_jax.bench import tune

    record = read_json(arguments.tuned)
    arguments.gamma = tune.gamma_of(record, str(arguments.tuned))
    for name in ("target", "draft"):
        here = public_name(getattr(arguments, name))
        there = record.get(name)
        if there != here:
            raise SpecdecError(
                f"{arguments.tuned} was tuned for the {name} {there}, and {here} is to be used: "
                f"give --{name}, or tune anew."
            )
    other = [
        f"{name} {record.get(name)}"
        for name in ("temperature", "top_k", "top_p", "rule", "batch_size")
        if record.get(name) != getattr(arguments, name)
    ]
    if other:
        print(
            f"gamma {arguments.gamma} was tuned at {', '.join(other)}; here another may be faster.",
            file=sys.stderr,
        )


def require_place(folder: Path | None) -> None:
    """Refuse a folder of results that cannot be made, before the work that is to fill it.

    Raises:
        SpecdecError: a file is in its place, or the folder around it is missing.
    """
    if folder is None or folder.is_dir():
        return
    if folder.exists():
        raise SpecdecError(f"Cannot write into {folder}, which is a file: give a folder.")
    if not folder.parent.is_dir():
        raise SpecdecError(f"Cannot make {folder}, since there is no folder {folder.parent}.")
