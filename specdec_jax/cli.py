"""The command line: `specdec COMMAND ...`, or `python -m specdec_jax COMMAND ...`.

Each command imports its rooms when it runs, so that `--help` and `theory` need no network code.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from absl import app, logging
from absl.flags import argparse_flags

from specdec_jax.errors import SpecdecError

Command = Callable[[argparse.Namespace], int]
OK, USAGE, INTERRUPTED = 0, 2, 130


def run() -> None:
    """Entry point: parse with absl's flags beside ours, run the command, exit with its status."""
    app.run(main, flags_parser=lambda argv: parser().parse_args(argv[1:]))


def main(arguments: argparse.Namespace) -> None:
    """Run the command and turn the user's mistakes into one sentence and a status."""
    logging.set_verbosity(
        logging.WARNING
    )  # JAX reports at INFO each back end that it does not find
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
        print("specdec: interrupted; a file of output is written at the end only.", file=sys.stderr)
        status = INTERRUPTED
    sys.exit(status)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse_flags.ArgumentParser(
        prog="specdec", description="Lossless speculative decoding for T5 in JAX."
    )
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (
        _generate,
        _trace,
        _demo,
        _bench,
        _steps,
        _theory,
        _predict,
        _inspect,
        _convert,
        _train,
    ):
        add(commands)
    return top


def _add(commands, name: str, command: Command, summary: str) -> argparse.ArgumentParser:
    added = commands.add_parser(name, help=summary, description=summary)
    added.set_defaults(command=command)
    return added


def _models(flags: argparse.ArgumentParser, shape: str | None = None) -> None:
    flags.add_argument("--target", default="ende_target", help="path or shipped name of the target")
    flags.add_argument(
        "--draft",
        default="ende_draft",
        help="path or shipped name of the draft; uniform, lookup (copies from the source and the "
        "text so far), or lookup+NAME",
    )
    flags.add_argument(
        "--shape",
        default=shape,
        help="enlarge the target to this T5's sizes (small, base, large), at unchanged outputs; "
        f"'own' leaves it (default: {shape or 'own'})",
    )


def _decoding(flags: argparse.ArgumentParser, *, gamma: int = 7, max_tokens: int = 128) -> None:
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


def _settings(arguments: argparse.Namespace, **changes):
    from specdec_jax.generate import Settings

    names = (
        *("gamma", "temperature", "top_k", "top_p", "rule", "max_tokens", "batch_size", "seed"),
        *("draft_temperature", "draft_top_k", "draft_top_p"),
    )
    return Settings(**{name: getattr(arguments, name) for name in names} | changes)


def _pair(arguments: argparse.Namespace, *, plain: bool = False):
    from specdec_jax.generate import load_pair

    shape = None if arguments.shape in (None, "own") else arguments.shape
    return load_pair(arguments.target, None if plain else arguments.draft, shape=shape)


def _require_positive(arguments: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(arguments, name) < 1:
            raise SpecdecError(f"--{name} is {getattr(arguments, name)}, but must be at least 1.")


def _generate(commands) -> None:
    summary = "Decode lines of text; one line in, one line out."
    flags = _add(commands, "generate", _run_generate, summary)
    flags.add_argument("text", nargs="*", help="lines; without any, standard input is read")
    flags.add_argument("--input", type=Path, help="a UTF-8 file, one source a line")
    flags.add_argument("--output", type=Path, help="write here, whole or not at all")
    flags.add_argument("--json", action="store_true", help="one JSON object a line")
    flags.add_argument("--task", choices=("translate", "summarize"), default="translate")
    flags.add_argument("--prefix", help="put before each line instead of the task's prefix")
    flags.add_argument("--baseline", action="store_true", help="the target alone, without draft")
    flags.add_argument("--truncate", action="store_true", help="cut lines that are too long")
    flags.add_argument("--lenience", type=float, default=1.0, help="below 1: LOSSY (1)")
    _models(flags)
    _decoding(flags)


def _run_generate(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from specdec_jax import text
    from specdec_jax.files import require_folder, write_text
    from specdec_jax.generate import Finish, generate, read_lines, split_lines

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
    settings = _settings(arguments, lenience=arguments.lenience)
    if plain:
        settings = _settings(arguments, gamma=0)
    if settings.lenience < 1:
        print("LOSSY: lenience is below 1, outputs are not the target's.", file=sys.stderr)
    results = generate(
        _pair(arguments, plain=plain), lines, settings, prefix=prefix, truncate=arguments.truncate
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
    flags = _add(commands, "trace", _run_trace, summary)
    flags.add_argument("text", help="the line to decode")
    flags.add_argument("--json", type=Path, help="write a record for `specdec theory --trace`")
    _models(flags)
    _decoding(flags)


def _run_trace(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench.trace import render, trace
    from specdec_jax.files import require_folder, write_json

    require_folder(arguments.json)
    records = trace(_pair(arguments), arguments.text, _settings(arguments, batch_size=1))
    print(render(records[0], colour=sys.stdout.isatty()))
    if arguments.json:
        write_json(arguments.json, records)
    return OK


def _demo(commands) -> None:
    summary = "Translate real sentences plainly and speculatively, side by side."
    flags = _add(commands, "demo", _run_demo, summary)
    flags.add_argument("--sentences", type=int, default=12, help="how many of the 24 shipped (12)")
    flags.add_argument("--repeats", type=int, default=1, help="decodes of each, each way (1)")
    flags.add_argument("--json", type=Path, help="write the summary here as a record")
    _models(flags, shape="base")
    _decoding(flags, max_tokens=64)


def _run_demo(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import demo
    from specdec_jax.files import require_folder, write_json

    require_folder(arguments.json)
    _require_positive(arguments, "sentences", "repeats", "gamma")
    record = demo.run(
        _pair(arguments),
        _settings(arguments, record=True),
        count=arguments.sentences,
        repeats=arguments.repeats,
        colour=sys.stdout.isatty(),
    )
    if arguments.json:
        write_json(arguments.json, record)
    exact = arguments.temperature > 0 or record["identical"] == record["sentences"]
    return OK if exact else 1


def _bench(commands) -> None:
    summary = "Measure alpha, c, v and the speedup of a pair, with a record."
    flags = _add(commands, "bench", _run_bench, summary)
    flags.add_argument("--input", type=Path, help="lines to decode (default: the demo's)")
    flags.add_argument("--lines", type=int, default=24, help="how many of them (24)")
    flags.add_argument("--repeats", type=int, default=3, help="decodes of each, each way (3)")
    flags.add_argument("--json", type=Path, required=True, help="the record's file")
    _models(flags, shape="base")
    _decoding(flags, max_tokens=64)


def _run_bench(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import compare, demo, record
    from specdec_jax.files import require_folder, write_json
    from specdec_jax.generate import read_lines
    from specdec_jax.text import prefix

    require_folder(arguments.json)
    _require_positive(arguments, "lines", "repeats", "gamma")
    lines = read_lines(arguments.input) if arguments.input else [s for s, _ in demo.sentences()]
    lines, way = lines[: arguments.lines], _settings(arguments)
    pair, words = _pair(arguments), prefix("ende")
    results = list(compare.compare(pair, lines, way, prefix=words, repeats=arguments.repeats))
    costs = compare.costs_for(pair, lines, way, prefix=words, repeats=2 * arguments.repeats + 1)
    summary = compare.summarise(pair, results, way, costs)
    print(demo.render(summary))
    write_json(arguments.json, {**summary, **record.provenance(way.seed)})
    return OK


def _steps(commands) -> None:
    summary = "Measure a decoder call of 1, 4 and 8 tokens at a T5's shape, in both layouts."
    flags = _add(commands, "steps", _run_steps, summary)
    flags.add_argument("--shape", default="base", help="a preset: small, base, large (base)")
    flags.add_argument("--batch_size", type=int, default=1, help="rows decoded together (1)")
    flags.add_argument("--repeats", type=int, default=5, help="of each measurement (5)")
    flags.add_argument("--json", type=Path, required=True, help="the record's file")


def _run_steps(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import record, steps
    from specdec_jax.files import write_json

    found = steps.step_times(arguments.shape, batch=arguments.batch_size, repeats=arguments.repeats)
    print(json.dumps(found, indent=2))
    write_json(arguments.json, {**found, **record.provenance(0)})
    return OK


def _theory(commands) -> None:
    summary = "Regenerate the paper's theoretical tables and figures."
    flags = _add(commands, "theory", _run_theory, summary)
    flags.add_argument("--out", type=Path, required=True, help="folder for tables and figures")
    flags.add_argument("--trace", type=Path, help="a record of `specdec trace`, for Figures 1, 5")


def _run_theory(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import paper

    trace = None if arguments.trace is None else _read_json(arguments.trace)
    for path in paper.write(arguments.out, trace=trace):
        print(path)
    return OK


def _predict(commands) -> None:
    summary = "Predict the best gamma and the speedup from alpha, c and v."
    flags = _add(commands, "predict", _run_predict, summary)
    flags.add_argument("--alpha", type=float, help="mean acceptance, 0 to 1")
    flags.add_argument("--c", type=float, help="draft step / target step")
    flags.add_argument("--v", type=float, help="verify / target step (1)")
    flags.add_argument("--record", type=Path, help="take them from a record of `specdec bench`")
    flags.add_argument("--target", help="checkpoint, to estimate c from weights")
    flags.add_argument("--draft", help="checkpoint, to estimate c from weights")
    flags.add_argument("--device", help="its device: tpu-v4, tpu-v5e, h100, ...")
    flags.add_argument("--json", type=Path, help="also write the prediction here")


def _run_predict(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import predict
    from specdec_jax.files import write_json

    given = predict.from_record(_read_json(arguments.record)) if arguments.record else {}
    given |= {k: v for k in ("alpha", "c", "v") if (v := getattr(arguments, k)) is not None}
    if arguments.target or arguments.draft:
        given["costs"] = predict.costs_of_checkpoints(
            arguments.target, arguments.draft, arguments.device
        )
    prediction = predict.report(**given)
    print(predict.render(prediction))
    if arguments.json:
        write_json(arguments.json, prediction)
    return OK


def _inspect(commands) -> None:
    summary = "Say what a checkpoint is, from its headers alone."
    flags = _add(commands, "inspect", _run_inspect, summary)
    flags.add_argument("path", help="folder, or shipped name")
    flags.add_argument("--json", action="store_true", help="as JSON")


def _run_inspect(arguments: argparse.Namespace) -> int:
    from specdec_jax.checkpoints import inspect

    found = inspect.inspect(arguments.path)
    print(json.dumps(found, indent=2) if arguments.json else inspect.render(found))
    return OK


def _convert(commands) -> None:
    summary = "Write a checkpoint in another format."
    flags = _add(commands, "convert", _run_convert, summary)
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
    flags = _add(commands, "train", _run_train, summary)
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


def _read_json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecdecError(
            f"There is no record at {path}; give the file of an earlier run."
        ) from None
    except (OSError, ValueError) as error:
        raise SpecdecError(f"{path} is not a JSON record ({error}); give another file.") from error
