"""What speculation gains: demo, bench, tune, alphas, steps, theory and predict."""

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
    target_flag,
)
from specdec_jax.cli.inputs import DATA, public_name, read_columns, require_place, task_flag
from specdec_jax.errors import SpecdecError


def add_commands(commands) -> None:
    """Add the parsers of this module's commands."""
    for add_command in (_demo, _bench, _tune, _alphas, _steps, _theory, _predict):
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
    flags.add_argument(
        "experiment",
        nargs="?",
        type=Path,
        help="a YAML file of cases, each with a record of its own in --out; a run that was stopped "
        "goes on where it was (other flags than --out are left alone)",
    )
    flags.add_argument("--out", type=Path, help="folder of an experiment's records and figures")
    flags.add_argument("--json", type=Path, help="the record's file, without an experiment")
    flags.add_argument("--lenience", type=float, default=1.0, help="below 1: LOSSY (1)")
    task_flag(flags)
    model_flags(flags, shape="base")
    decoding_flags(flags, max_tokens=64)


def _run_bench(arguments: argparse.Namespace) -> int:
    if arguments.experiment is not None:
        return _run_experiment(arguments)
    if arguments.json is None:
        raise SpecdecError("one of these is required: --json FILE, or an experiment and --out.")
    from specdec_jax.bench import alphas, compare, demo, record
    from specdec_jax.files import read_lines, require_folder, write_json
    from specdec_jax.text import prefix

    require_folder(arguments.json)
    require_positive(arguments, "lines", "repeats", "gamma")
    shipped = [source for source, _ in demo.sentences(arguments.task)]
    lines = read_lines(arguments.input) if arguments.input else shipped
    lines, way = lines[: arguments.lines], settings_of(arguments, lenience=arguments.lenience)
    words = prefix(arguments.task)
    pair = pair_of(arguments)
    results, summary = compare.measure(pair, lines, way, prefix=words, repeats=arguments.repeats)
    if way.lenience < 1:
        made = [line for result in results for line in result.speculative]
        distance = alphas.total_variation(pair, made, way, prefix=words)
        summary |= {"total_variation": distance}
    print(demo.render(summary))
    names = {"target": public_name(arguments.target), "draft": public_name(arguments.draft)}
    about = {"task": arguments.task, **names}
    write_json(arguments.json, {**about, **summary, **record.provenance(way.seed)})
    return OK


def _run_experiment(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import experiment, summary

    if arguments.out is None:
        raise SpecdecError(f"{arguments.experiment} has many records: give --out FOLDER for them.")
    cases = experiment.read_cases(arguments.experiment)
    require_place(arguments.out)
    experiment.run(cases, arguments.out)
    print(summary.write(arguments.out))
    return OK


def _tune(commands) -> None:
    summary = "Find the best gamma for a pair on this device, and whether to speculate at all."
    flags = add(commands, "tune", _run_tune, summary)
    flags.add_argument("--data", type=Path, help=f"{DATA} (default: the demo's)")
    flags.add_argument("--lines", type=int, default=24, help="how many of them (24)")
    flags.add_argument("--gammas", type=int, nargs="+", help="those to be timed (1 3 5 7 11 15)")
    flags.add_argument("--repeats", type=int, default=5, help="of each measurement (5)")
    flags.add_argument(
        "--out",
        type=Path,
        help="folder for tuned.json (specdec generate --tuned) and tuned.gin (T5X)",
    )
    task_flag(flags)
    model_flags(flags)
    decoding_flags(flags, gamma=None, max_tokens=64)


def _run_tune(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import demo, record, tune
    from specdec_jax.files import write_json, write_text
    from specdec_jax.text import prefix

    require_place(arguments.out)
    require_positive(arguments, "lines", "repeats")
    words, way = prefix(arguments.task), settings_of(arguments)
    shipped = [source for source, _ in demo.sentences(arguments.task)]
    lines = read_columns(arguments.data)[0] if arguments.data else shipped
    found = {
        "target": public_name(arguments.target),
        "draft": public_name(arguments.draft),
        "task": arguments.task,
    } | tune.tune(
        pair_of(arguments),
        lines[: arguments.lines],
        way,
        prefix=words,
        gammas=arguments.gammas or tune.GAMMAS,
        repeats=arguments.repeats,
    )
    print(tune.render(found))
    if arguments.out:
        arguments.out.mkdir(exist_ok=True)
        write_json(arguments.out / "tuned.json", {**found, **record.provenance(way.seed)})
        # T5X's draft is a model.
        if found["draft_is_model"]:
            write_text(arguments.out / "tuned.gin", tune.gin(found))
    return OK


def _alphas(commands) -> None:
    summary = "Measure how much of several drafts a target accepts, exactly and with lenience."
    flags = add(commands, "alphas", _run_alphas, summary)
    flags.add_argument("--data", type=Path, required=True, help=DATA)
    flags.add_argument("--drafts", nargs="+", required=True, help="each as --draft of generate")
    flags.add_argument("--tokens", type=int, default=10_000, help="of the target, at least (10000)")
    flags.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0], help="(0 1)")
    flags.add_argument(
        "--leniences", type=float, nargs="+", default=[1.0, 0.5, 0.3, 0.1], help="(1 .5 .3 .1)"
    )
    flags.add_argument("--top_k", type=int, default=0, help="of both; 0 is off (0)")
    flags.add_argument("--top_p", type=float, default=1.0, help="of both; 1 is off (1)")
    flags.add_argument("--max_tokens", type=int, default=128, help="of an output (128)")
    flags.add_argument("--batch_size", type=int, default=64, help="lines decoded together (64)")
    flags.add_argument("--seed", type=int, default=0, help="of lines and samples (0)")
    flags.add_argument("--out", type=Path, required=True, help="folder for alphas.json, alphas.md")
    target_flag(flags)
    task_flag(flags)


def _run_alphas(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench import alphas, record
    from specdec_jax.files import write_json, write_text
    from specdec_jax.generate import Settings, load_draft, load_pair
    from specdec_jax.text import prefix

    require_place(arguments.out)
    require_positive(arguments, "tokens")
    words = prefix(arguments.task)
    way = Settings(
        **{n: getattr(arguments, n) for n in ("top_k", "top_p", "max_tokens", "batch_size", "seed")}
    )
    lines, _ = read_columns(arguments.data)
    pair = load_pair(arguments.target, None)
    drafts, sizes = {}, {}
    for name in arguments.drafts:
        shown = public_name(name)
        drafts[shown], sizes[shown] = load_draft(name, pair.vocabulary)
    rows = alphas.alphas(
        pair,
        drafts,
        lines,
        way,
        task=arguments.task,
        prefix=words,
        temperatures=arguments.temperatures,
        leniences=arguments.leniences,
        tokens=arguments.tokens,
    )
    table = alphas.render(rows)
    print(table, end="")
    arguments.out.mkdir(exist_ok=True)
    about = {
        "target": public_name(arguments.target),
        "target_shape": pair.target_shape,
        "draft_shapes": sizes,
    }
    settings = {n: getattr(way, n) for n in ("top_k", "top_p", "max_tokens", "batch_size")}
    whole = {"rows": rows, **about, **settings, **record.provenance(way.seed)}
    write_json(arguments.out / "alphas.json", whole)
    write_text(arguments.out / "alphas.md", table)
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
