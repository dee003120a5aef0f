"""Flags and readers that several commands share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specdec_jax.errors import SpecdecError

Command = Callable[[argparse.Namespace], int]
OK, INTERRUPTED = 0, 130


def add(commands, name: str, command: Command, summary: str) -> argparse.ArgumentParser:
    """Add a command, and return its parser."""
    added = commands.add_parser(name, help=summary, description=summary)
    added.set_defaults(command=command)
    return added


def target_flag(flags: argparse.ArgumentParser) -> None:
    """Add the flag that names the target."""
    flags.add_argument("--target", default="ende_target", help="path or shipped name of the target")


def model_flags(flags: argparse.ArgumentParser, shape: str | None = None) -> None:
    """Add the flags that name the models; `shape` is the default of --shape."""
    target_flag(flags)
    # Beside an enlarged target any draft costs nothing: the one that is right most often.
    draft = "ende_draft" if shape is None else "ende_draft_large"
    flags.add_argument(
        "--draft",
        default=draft,
        help="path or shipped name of the draft; a file of `specdec count`, uniform, lookup "
        f"(copies from the source and the text so far), or lookup+NAME ({draft})",
    )
    flags.add_argument(
        "--shape",
        default=shape,
        help="enlarge the target to this T5's sizes (small, base, large), at unchanged outputs; "
        f"'own' leaves it (default: {shape or 'own'})",
    )
    flags.add_argument(
        "--mesh", help="split over several devices: DATAxMODEL, 4x2 say (default: one device)"
    )


def decoding_flags(
    flags: argparse.ArgumentParser, *, gamma: int | None = 7, max_tokens: int = 128
) -> None:
    """Add the flags of `Settings`; without a default of gamma, that is none."""
    if gamma is not None:
        flags.add_argument("--gamma", type=int, default=gamma, help=f"guesses a round ({gamma})")
    flags.add_argument("--temperature", type=float, default=0.0, help="0 is argmax (0)")
    flags.add_argument("--top_k", type=int, default=0, help="0 is off (0)")
    flags.add_argument("--top_p", type=float, default=1.0, help="1 is off (1)")
    same = "of the draft alone (the target's)"
    flags.add_argument("--draft_temperature", type=float, help=same)
    flags.add_argument("--draft_top_k", type=int, help=same)
    flags.add_argument("--draft_top_p", type=float, help=same)
    flags.add_argument(
        "--rule", default="rejection", help="rejection, block or coupled (rejection)"
    )
    flags.add_argument(
        "--max_tokens", type=int, default=max_tokens, help=f"of an output ({max_tokens})"
    )
    flags.add_argument("--batch_size", type=int, default=1, help="lines decoded together (1)")
    flags.add_argument("--seed", type=int, default=0, help="of all samples (0)")


def adaptive_flag(flags: argparse.ArgumentParser) -> None:
    """Add the flag that leaves gamma to each batch."""
    flags.add_argument(
        "--adaptive",
        type=Path,
        metavar="RECORD",
        help="choose before each round among 0, 1, 3, 7 guesses, up to --gamma, by alpha, c and v "
        "of this record of `specdec tune` or `specdec bench`",
    )


def host_flags(flags: argparse.ArgumentParser) -> None:
    """Add the flags that join this process to others, each on a host of its own."""
    flags.add_argument(
        "--coordinator",
        help="HOST:PORT of process 0, of a job of several processes over one --mesh; auto on Cloud "
        "TPU and under Slurm, Open MPI and Kubernetes",
    )
    flags.add_argument("--num_processes", type=int, help="how many there are (not with auto)")
    flags.add_argument("--process_id", type=int, help="this one's, from 0 (not with auto)")


def settings_of(arguments: argparse.Namespace, **changes):
    """Return the `Settings` that the flags say, with some changed."""
    from specdec_jax.generate import Settings

    names = (
        *("gamma", "temperature", "top_k", "top_p", "rule", "max_tokens", "batch_size", "seed"),
        *("draft_temperature", "draft_top_k", "draft_top_p"),
    )
    given = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    if getattr(arguments, "adaptive", None) is not None:
        given |= _adaptive(arguments.adaptive, arguments.gamma)
    return Settings(**given | changes)


def _adaptive(path: Path, gamma: int) -> dict[str, Any]:
    """Return the settings that choose gamma by a record's costs."""
    from specdec_jax.bench.adapting import choices

    record = read_json(path)
    c, v = (record.get(name) if isinstance(record, dict) else None for name in ("c", "v"))
    if isinstance(v, int | float) and isinstance(record.get("gamma"), int):
        v = {record["gamma"] + 1: v}
    if c is None or not isinstance(v, dict):
        raise SpecdecError(
            f"{path} does not say what a round costs (c, and v of known lengths): give a record "
            "of `specdec tune` or `specdec bench`."
        )
    v = {int(tokens): float(cost) for tokens, cost in v.items()}
    return {"gammas": choices(gamma), "c": float(c), "v": v, "alpha": record.get("alpha")}


def pair_of(arguments: argparse.Namespace, *, plain: bool = False):
    """Load the models that the flags name."""
    from specdec_jax.generate import load_pair
    from specdec_jax.t5 import make_mesh

    shape = None if arguments.shape in (None, "own") else arguments.shape
    mesh = None if arguments.mesh is None else make_mesh(*_mesh_sizes(arguments.mesh))
    return load_pair(arguments.target, None if plain else arguments.draft, shape=shape, mesh=mesh)


def _mesh_sizes(written: str) -> tuple[int, int]:
    data, cross, model = written.partition("x")
    if not (cross and data.isdecimal() and model.isdecimal()):
        raise SpecdecError(f"--mesh is {written!r}, but must be DATAxMODEL, 4x2 say.")
    return int(data), int(model)


def require_positive(arguments: argparse.Namespace, *names: str) -> None:
    """Raises `SpecdecError` where one of these flags is below 1."""
    for name in names:
        if getattr(arguments, name) < 1:
            raise SpecdecError(f"--{name} is {getattr(arguments, name)}, but must be at least 1.")


def read_json(path: Path):
    """Read a record.

    Raises:
        SpecdecError: there is none, or it is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecdecError(
            f"There is no record at {path}; give the file of an earlier run."
        ) from None
    except (OSError, ValueError) as error:
        raise SpecdecError(f"{path} is not a JSON record ({error}); give another file.") from error
