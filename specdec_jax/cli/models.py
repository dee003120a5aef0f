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
    summary = "Train the shipped models anew from a folder of corpora; resumes where it stopped."
    flags = add(commands, "train", _run_train, summary)
    flags.add_argument("--data", type=Path, required=True, help="from scripts/build_data.sh")
    flags.add_argument("--run", type=Path, required=True, help="keeps stages and checkpoints")
    flags.add_argument("--out", type=Path, required=True, help="gets a folder for each model")
    flags.add_argument("--curves", type=Path, help="folder for logs and learning curves")
    flags.add_argument("--task", choices=("ende", "synopsis"), action="append", help="(both)")
    flags.add_argument("--seed", type=int, default=0)


def _run_train(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench.figures import save
    from specdec_jax.bench.training_curves import curves
    from specdec_jax.training import pair, recipe, ship

    run_of = pair.Run(arguments.data, arguments.run)
    for task in [recipe.TASKS[name] for name in arguments.task or recipe.TASKS]:
        target = pair.train_target(run_of, task, seed=arguments.seed)
        drafts = pair.train_drafts(run_of, task, target, seed=arguments.seed)
        ship.ship(run_of, task, target, drafts, arguments.out)
        if arguments.curves:
            logs = ship.keep_logs(run_of, task, arguments.curves)
            title = f"Training of the {task.name} models"
            save(curves(logs, title=title), arguments.curves / task.name)
    return OK
