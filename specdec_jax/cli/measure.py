"""`specdec demo`, `bench`, `steps`, `theory` and `predict`: what speculation gains."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from specdec_jax.cli.flags import (
    OK,
    add,
    decoding_flags,
    model_flags,
    pair_of,
    read_json,
    require_positive,
    settings_of,
)


def add_commands(commands) -> None:
    """Add the parsers of this module's commands."""
    for add_command in (_demo, _bench, _steps, _theory, _predict):
        add_command(commands)


def _demo(commands) -> None:
    summary = "Translate real sentences plainly and speculatively, side by side."
    flags = add(commands, "demo", _run_demo, summary)
    flags.add_argument("--sentences", type=int, default=12, help="how many of the 24 shipped (12)")
    flags.add_argument("--repeats", type=int, default=1, help="decodes of each, each way (1)")
    flags.add_argument("--json", type=Path, help="write the summary here as a record")
    model_flags(flags, shape="base")
    decoding_flags(flags, max_tokens=64)


def _run_demo(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import demo
    from specdec_jax.files import require_folder, write_json

    require_folder(arguments.json)
    require_positive(arguments, "sentences", "repeats", "gamma")
    record = demo.run(
        pair_of(arguments),
        settings_of(arguments, record=True),
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
    flags = add(commands, "bench", _run_bench, summary)
    flags.add_argument("--input", type=Path, help="lines to decode (default: the demo's)")
    flags.add_argument("--lines", type=int, default=24, help="how many of them (24)")
    flags.add_argument("--repeats", type=int, default=3, help="decodes of each, each way (3)")
    flags.add_argument("--json", type=Path, required=True, help="the record's file")
    model_flags(flags, shape="base")
    decoding_flags(flags, max_tokens=64)


def _run_bench(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import compare, demo, record
    from specdec_jax.files import read_lines, require_folder, write_json
    from specdec_jax.text import prefix

    require_folder(arguments.json)
    require_positive(arguments, "lines", "repeats", "gamma")
    lines = read_lines(arguments.input) if arguments.input else [s for s, _ in demo.sentences()]
    lines, way = lines[: arguments.lines], settings_of(arguments)
    pair, words = pair_of(arguments), prefix("ende")
    results = list(compare.compare(pair, lines, way, prefix=words, repeats=arguments.repeats))
    costs = compare.costs_for(pair, lines, way, prefix=words, repeats=2 * arguments.repeats + 1)
    summary = compare.summarise(pair, results, way, costs)
    print(demo.render(summary))
    write_json(arguments.json, {**summary, **record.provenance(way.seed)})
    return OK


def _steps(commands) -> None:
    summary = "Measure a decoder call of 1, 4 and 8 tokens at a T5's shape, in both layouts."
    flags = add(commands, "steps", _run_steps, summary)
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
    flags = add(commands, "theory", _run_theory, summary)
    flags.add_argument("--out", type=Path, required=True, help="folder for tables and figures")
    flags.add_argument("--trace", type=Path, help="a record of `specdec trace`, for Figures 1, 5")


def _run_theory(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import paper

    trace = None if arguments.trace is None else read_json(arguments.trace)
    for path in paper.write(arguments.out, trace=trace):
        print(path)
    return OK


def _predict(commands) -> None:
    summary = "Predict the best gamma and the speedup from alpha, c and v."
    flags = add(commands, "predict", _run_predict, summary)
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

    given = predict.from_record(read_json(arguments.record)) if arguments.record else {}
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
