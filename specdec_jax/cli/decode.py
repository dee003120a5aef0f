"""`specdec generate` and `specdec trace`: text in, text out."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from specdec_jax.cli.flags import (
    OK,
    adaptive_flag,
    add,
    decoding_flags,
    host_flags,
    model_flags,
    pair_of,
    settings_of,
)
from specdec_jax.cli.inputs import take_tuned
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
    flags.add_argument(
        "--output", type=Path, help="write here, whole or not at all; grows in OUTPUT.partial"
    )
    flags.add_argument(
        "--resume", action="store_true", help="go on after the lines of OUTPUT.partial, if any"
    )
    flags.add_argument("--json", action="store_true", help="one JSON object a line")
    flags.add_argument("--task", choices=("translate", "summarize"), default="translate")
    flags.add_argument("--prefix", help="put before each line instead of the task's prefix")
    flags.add_argument("--baseline", action="store_true", help="the target alone, without draft")
    flags.add_argument("--truncate", action="store_true", help="cut lines that are too long")
    flags.add_argument("--lenience", type=float, default=1.0, help="below 1: LOSSY (1)")
    flags.add_argument("--tuned", type=Path, help="take gamma from a record of specdec tune")
    model_flags(flags)
    decoding_flags(flags)
    adaptive_flag(flags)
    host_flags(flags)


def _run_generate(arguments: argparse.Namespace) -> int:
    from specdec_jax import hosts, text
    from specdec_jax.files import require_folder

    require_folder(arguments.output)
    take_tuned(arguments)
    if arguments.resume and arguments.output is None:
        raise SpecdecError("--resume goes on with a file of output: name it with --output.")
    lines = _lines(arguments)
    if arguments.coordinator is not None:
        if arguments.mesh is None:
            raise SpecdecError("Several processes need a mesh of all their devices: give --mesh.")
        # First of all: settings make arrays, and arrays ask for devices.
        hosts.join(arguments.coordinator, arguments.num_processes, arguments.process_id)
    task = {"translate": "ende", "summarize": "summarize"}[arguments.task]
    prefix = text.prefix(task) if arguments.prefix is None else arguments.prefix
    plain = arguments.baseline or arguments.gamma == 0
    settings = settings_of(arguments, lenience=arguments.lenience)
    if plain:
        settings = settings_of(arguments, gamma=0)
    if settings.lenience < 1 and hosts.leads():
        print("LOSSY: lenience is below 1, outputs are not the target's.", file=sys.stderr)
    with hosts.together():
        job = _job(arguments, lines, settings, prefix, plain) if _needs_job(arguments) else {}
        with _sink(arguments, job, len(lines)) as sink:
            done = hosts.agree(sink.done, job)
            if done < len(lines) or not lines:
                _decode(arguments, lines, settings, prefix, plain, done, sink)
            sink.finish()
    return OK


def _lines(arguments: argparse.Namespace) -> list[str]:
    from specdec_jax.files import read_lines, split_lines

    if arguments.input and arguments.text:
        raise SpecdecError("There are lines on the command line and --input: give one of them.")
    if arguments.input:
        return read_lines(arguments.input)
    return arguments.text or split_lines(sys.stdin.buffer.read(), "standard input")


def _needs_job(arguments: argparse.Namespace) -> bool:
    return arguments.output is not None or arguments.coordinator is not None


def _job(arguments: argparse.Namespace, lines: list[str], settings, prefix: str, plain: bool):
    """Return what decides on the lines of the output, and nothing that does not, as the mesh."""
    from specdec_jax import checkpoints
    from specdec_jax.resume import lines_digest, path_digest

    def model(name: str) -> str:
        guess, plus, rest = name.partition("+")
        if guess in ("uniform", "lookup"):
            return guess + plus + (model(rest) if plus else "")
        # n-grams are a file, everything else a folder or a shipped name.
        path = Path(name) if Path(name).is_file() else checkpoints.locate(name)
        return f"{name} ({path_digest(path)})"

    return {
        "input": f"{len(lines)} lines ({lines_digest(lines)})",
        "target": model(arguments.target),
        "draft": None if plain else model(arguments.draft),
        "shape": arguments.shape or "own",
        "prefix": prefix,
        "truncate": arguments.truncate,
        "json": arguments.json,
        # In JSON's types, since a later run compares them with what this one wrote.
        **json.loads(json.dumps(dataclasses.asdict(settings))),
    }


def _sink(arguments: argparse.Namespace, job, total: int):
    """Return where the lines go: a file that grows, what is no file, or standard output."""
    from specdec_jax import hosts
    from specdec_jax.resume import Growing

    path = arguments.output
    if not hosts.leads():
        return _Sink()
    if path is None:
        return _Sink(lambda part: print(*part, sep="\n", flush=True))
    if path.exists() and not path.is_file():
        return _Whole(path)
    return Growing(path, job, total=total, batch=arguments.batch_size, resume=arguments.resume)


class _Sink(contextlib.AbstractContextManager):
    """Hands lines on, and keeps none."""

    done = 0

    def __init__(self, append: Callable[[list[str]], None] = lambda part: None):
        self.append = append

    def finish(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _Whole(_Sink):
    """Writes to a device or a pipe, at the end."""

    def __init__(self, path: Path):
        self._path, self._lines = path, []
        super().__init__(self._lines.extend)

    def finish(self) -> None:
        from specdec_jax.files import write_text

        write_text(self._path, "".join(line + "\n" for line in self._lines))


def _decode(
    arguments: argparse.Namespace, lines: list[str], settings, prefix: str, plain: bool, done, sink
) -> None:
    """Decode the lines after the first `done`, a batch at a time."""
    from tqdm import tqdm

    from specdec_jax import hosts
    from specdec_jax.generate import Finish, generate, require_finite

    pair = pair_of(arguments, plain=plain)
    results = iter(
        generate(pair, lines, settings, prefix=prefix, truncate=arguments.truncate, first=done)
    )
    # Where nobody watches, a line of a log each minute, and none for a short job.
    period = 0.1 if sys.stderr.isatty() else 60
    bad, tokens, began = 0, 0, time.monotonic()
    with tqdm(
        total=len(lines),
        initial=done,
        desc="decoding",
        unit="line",
        delay=0 if sys.stderr.isatty() else period,
        mininterval=period,
        disable=len(lines) < 8 or not hosts.leads(),
    ) as bar:
        while part := list(itertools.islice(results, settings.batch_size)):
            bad += sum(result.finish is Finish.NOT_FINITE for result in part)
            if not bad:
                sink.append([_shown(arguments, pair, settings, prefix, line) for line in part])
            tokens += sum(len(result.tokens) for result in part)
            bar.set_postfix_str(f"{tokens / (time.monotonic() - began):.0f} tokens/s", False)
            bar.update(len(part))
    require_finite(bad, len(lines))


def _shown(arguments: argparse.Namespace, pair, settings, prefix: str, line) -> str:
    lossy = settings.lenience < 1
    if arguments.json:
        record = {**line.as_dict(), "lossy": lossy}
        if lossy:
            from specdec_jax.bench.alphas import total_variation

            # One line is no batch that a mesh could divide.
            here = pair.mesh is None
            record["lenience"] = settings.lenience
            record["total_variation"] = (
                total_variation(pair, [line], settings, prefix=prefix) if here else None
            )
        return json.dumps(record, ensure_ascii=False)
    # A model may write a line break, and one line in is one line out.
    shown = " ".join(line.text.splitlines())
    return f"LOSSY\t{shown}" if lossy else shown


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
