"""The command line: `specdec COMMAND ...`, or `python -m specdec_jax COMMAND ...`.

Each command imports its rooms when it runs, so that `--help` and `theory` need no network code.
"""

from __future__ import annotations

import argparse
import os
import sys

from absl import app, logging
from absl.flags import argparse_flags

from specdec_jax.cli import aot, decode, drafts, measure, models
from specdec_jax.cli.flags import INTERRUPTED, OK
from specdec_jax.errors import USAGE, SpecdecError


def run() -> None:
    """Entry point: parse with absl's flags beside ours, run the command, exit with its status."""
    app.run(main, flags_parser=lambda argv: parser().parse_args(argv[1:]))


def main(arguments: argparse.Namespace) -> None:
    """Run the command and turn the user's mistakes into one sentence and a status."""
    # JAX reports at INFO each back end that it does not find.
    logging.set_verbosity(logging.WARNING)
    try:
        status = arguments.command(arguments)
        sys.stdout.flush()
    except SpecdecError as error:
        print(f"specdec: {error}", file=sys.stderr)
        status = USAGE
    except BrokenPipeError:
        # The reader (head, say) has gone. What is left in the buffer goes nowhere, or Python would
        # fail once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = OK
    except OSError as error:
        print(f"specdec: {error}.", file=sys.stderr)
        status = USAGE
    except KeyboardInterrupt:
        print(
            "specdec: interrupted; no file is half written, and `generate --resume` goes on.",
            file=sys.stderr,
        )
        status = INTERRUPTED
    sys.exit(status)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    # It sees the commands' own flags first, and would take --run for the start of one of absl's.
    top = argparse_flags.ArgumentParser(
        prog="specdec",
        description="Lossless speculative decoding for T5 in JAX.",
        allow_abbrev=False,
    )
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for room in (decode, measure, aot, drafts, models):
        room.add_commands(commands)
    return top
