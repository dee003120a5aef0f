"""`specdec generate` and `specdec trace`: text in, text out."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from specdec_jax.cli.flags import OK, add, decoding_flags, model_flags, pair_of, settings_of
from specdec_jax.errors import SpecdecError


def add_commands(commands) -> None:
    """Add the parsers of this module's commands."""
    for add_command in (_generate, _trace):
        add_command(commands)


def _generate(commands) -> None:
    summary = "Decode lines of text; one line in, one line out."
    flags = add(commands, "generate", _run_generate, summary)
    flags.add_argument("text", nargs="*", help="lines; without any, standard input is read")
    flags.add_argument("--input", type=Path, help="a UTF-8 file, one source a line")
    flags.add_argument("--output", type=Path, help="write here, whole or not at all")
    flags.add_argument("--json", action="store_true", help="one JSON object a line")
    flags.add_argument("--task", choices=("translate", "summarize"), default="translate")
    flags.add_argument("--prefix", help="put before each line instead of the task's prefix")
    flags.add_argument("--baseline", action="store_true", help="the target alone, without draft")
    flags.add_argument("--truncate", action="store_true", help="cut lines that are too long")
    flags.add_argument("--lenience", type=float, default=1.0, help="below 1: LOSSY (1)")
    model_flags(flags)
    decoding_flags(flags)


def _run_generate(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from specdec_jax import text
    from specdec_jax.files import read_lines, require_folder, split_lines, write_text
    from specdec_jax.generate import Finish, generate

    require_folder(arguments.output)
    if arguments.input and arguments.text:
        raise SpecdecError("There are lines on the command line and --input: give one of them.")
    if arguments.input:
        lines = read_lines(arguments.input)
    elif arguments.text:
        lines = arguments.text
    else:
        lines = split_lines(sys.stdin.buffer.read(), "standard input")
    task = {"translate": "ende", "summarize": "summarize"}[arguments.task]
    prefix = text.prefix(task) if arguments.prefix is None else arguments.prefix
    plain = arguments.baseline or arguments.gamma == 0
    settings = settings_of(arguments, lenience=arguments.lenience)
    if plain:
        settings = settings_of(arguments, gamma=0)
    if settings.lenience < 1:
        print("LOSSY: lenience is below 1, outputs are not the target's.", file=sys.stderr)
    results = generate(
        pair_of(arguments, plain=plain), lines, settings, prefix=prefix, truncate=arguments.truncate
    )
    written, bad = [], 0
    # A bar only where somebody watches and there is something to wait for.
    quiet = len(lines) < 8 or not sys.stderr.isatty()
    for result in tqdm(results, total=len(lines), desc="decoding", disable=quiet):
        bad += result.finish is Finish.NOT_FINITE
        # A model may write a line break, and one line in is one line out.
        shown = " ".join(result.text.splitlines())
        if arguments.json:
            shown = json.dumps(
                {**result.as_dict(), "lossy": settings.lenience < 1}, ensure_ascii=False
            )
        written.append(shown)
        if arguments.output is None:
            print(shown, flush=True)
    if bad:
        raise SpecdecError(
            f"{bad} of {len(lines)} lines ended because {Finish.NOT_FINITE}: "
            "check the checkpoint's weights (specdec inspect), or its dtype."
        )
    if arguments.output is not None:
        write_text(arguments.output, "".join(line + "\n" for line in written))
    return OK


def _trace(commands) -> None:
    summary = "Show, round by round, what the draft guessed and the target accepted."
    flags = add(commands, "trace", _run_trace, summary)
    flags.add_argument("text", help="the line to decode")
    flags.add_argument("--json", type=Path, help="write a record for `specdec theory --trace`")
    model_flags(flags)
    decoding_flags(flags)


def _run_trace(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench.trace import render, trace
    from specdec_jax.files import require_folder, write_json

    require_folder(arguments.json)
    records = trace(pair_of(arguments), arguments.text, settings_of(arguments, batch_size=1))
    print(render(records[0], colour=sys.stdout.isatty()))
    if arguments.json:
        write_json(arguments.json, records)
    return OK
