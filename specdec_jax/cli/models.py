"""`specdec inspect`, `convert` and `train`: checkpoints."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from specdec_jax.cli.flags import OK, add


def add_commands(commands) -> None:
    """Add the parsers of this module's commands."""
    for add_command in (_inspect, _convert, _train):
        add_command(commands)


def _inspect(commands) -> None:
    summary = "Say what a checkpoint is, from its headers alone."
    flags = add(commands, "inspect", _run_inspect, summary)
    flags.add_argument("path", help="folder, or shipped name")
    flags.add_argument("--json", action="store_true", help="as JSON")


def _run_inspect(arguments: argparse.Namespace) -> int:
    from specdec_jax.checkpoints import inspect

    found = inspect.inspect(arguments.path)
    print(json.dumps(found, indent=2) if arguments.json else inspect.render(found))
    return OK


def _convert(commands) -> None:
    summary = "Write a checkpoint in another format."
    flags = add(commands, "convert", _run_convert, summary)
    flags.add_argument("source", help="folder, or shipped name")
    flags.add_argument("destination", type=Path, help="folder to be written")
    flags.add_argument("--format", required=True, help="specdec, t5x, orbax or hf")
    flags.add_argument("--dtype", help="of the parameters (default: as they are)")


def _run_convert(arguments: argparse.Namespace) -> int:
    from specdec_jax.checkpoints.convert import convert

    convert(arguments.source, arguments.destination, format=arguments.format, dtype=arguments.dtype)
    print(arguments.destination)
    return OK


def _train(commands) -> None:
    summary = "Train the shipped pair anew from a folder of corpora; resumes where it stopped."
    flags = add(commands, "train", _run_train, summary)
    flags.add_argument("--data", type=Path, required=True, help="from scripts/build_data.sh")
    flags.add_argument("--run", type=Path, required=True, help="keeps stages and checkpoints")
    flags.add_argument("--out", type=Path, required=True, help="gets ende_target and ende_draft")
    flags.add_argument("--seed", type=int, default=0)


def _run_train(arguments: argparse.Namespace) -> int:
    from specdec_jax.training.pair import Run, train_pair
    from specdec_jax.training.ship import ship

    run_of = Run(arguments.data, arguments.run)
    ship(run_of, train_pair(run_of, seed=arguments.seed), arguments.out)
    return OK
