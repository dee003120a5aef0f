"""The demonstration: real sentences, both ways of decoding, and the arithmetic of the gain."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import Any

from tqdm import tqdm

from specdec_jax import text
from specdec_jax.bench.compare import compare, costs_for, summarise
from specdec_jax.bench.record import provenance
from specdec_jax.generate import Line, Pair, Settings
from specdec_jax.text import AnyVocabulary

GREEN, RED, BLUE, PLAIN = "\033[32m", "\033[31;9m", "\033[1;34m", "\033[0m"


def sentences(task: str = "ende") -> list[tuple[str, str]]:
    """Return the shipped (source, reference) pairs of a task, from its test split.

    Args:
        task: a name that `specdec_jax.text.prefix` knows.
    """
    name = "demo_synopsis.tsv" if text.prefix(task) == text.prefix("summarize") else "demo_ende.tsv"
    content = resources.files("specdec_jax").joinpath("models", name).read_text("utf-8")
    rows = [line.split("\t") for line in content.splitlines()]
    return [(row[0], row[1]) for row in rows]


def trace_line(line: Line, vocabulary: AnyVocabulary, *, colour: bool) -> str:
    """Draw a line's rounds in the manner of the paper's Figure 1.

    Accepted guesses are green, the first rejected one of a round is red (struck through) and the
    target's own token blue; without colour they stand bare, in [-..-] and in {+..+}.
    """
    marks: dict[str, Callable[[str], str]] = {
        "accepted": lambda s: f"{GREEN}{s}{PLAIN}" if colour else s,
        "rejected": lambda s: f"{RED}{s}{PLAIN}" if colour else f"[-{s}-]",
        "own": lambda s: f"{BLUE}{s}{PLAIN}" if colour else f"{{+{s}+}}",
    }

    def piece(token: int) -> str:
        return vocabulary.piece(token).replace("▁", " ")

    parts = []
    for guesses, accepted, extra in line.rounds or []:
        parts += [marks["accepted"](piece(t)) for t in guesses[:accepted]]
        if extra:
            if accepted < len(guesses):
                parts.append(marks["rejected"](piece(guesses[accepted])))
            parts.append(marks["own"](piece(extra)))
    return "".join(parts).strip()


def run(
    pair: Pair,
    settings: Settings,
    *,
    count: int,
    repeats: int,
    colour: bool,
    out: Callable[[str], Any] = tqdm.write,
) -> dict[str, Any]:
    """Translate, print, and return the record.

    Args:
        pair: with a draft.
        settings: `record` has to be on for the traces.
        count: of sentences.
        repeats: times that each sentence is decoded each way.
        colour: whether the terminal has it.
        out: takes each line of the report; not `print`, which a progress bar would run into.
    """
    chosen = sentences()[:count]
    lines = [source for source, _ in chosen]
    prefix = text.prefix("ende")
    out(f"target  {pair.target_shape}")
    if pair.enlarged:
        out(
            "        a small trained model, rewritten with the shapes of a large T5: "
            "its cost is the large one's, its German the small one's"
        )
    out(f"draft   {pair.draft_shape}")
    out(f"gamma   {settings.gamma}, temperature {settings.temperature:g}")
    out("compiling, once for each length of source ...")
    results = []
    for result in compare(pair, lines, settings, prefix=prefix, repeats=repeats):
        results.append(result)
        for plain, spec in zip(result.plain, result.speculative, strict=True):
            same = (
                "identical to plain decoding"
                if plain.tokens == spec.tokens
                else (
                    "a sample of the same distribution" if settings.temperature > 0 else "DIFFERENT"
                )
            )
            out(f"\n  source  {spec.source}")
            out(f"  output  {spec.text}")
            if plain.tokens != spec.tokens:
                out(f"  plain   {plain.text}")
            out(f"  trace   {trace_line(spec, pair.vocabulary, colour=colour)}")
            out(
                f"          {same}; {len(spec.tokens)} tokens in {spec.target_runs} target runs, "
                f"{sum(result.seconds_plain) / repeats:.2f} s -> "
                f"{sum(result.seconds_speculative) / repeats:.2f} s"
            )
    out("\nmeasuring the cost of a step ...")
    costs = costs_for(pair, lines, settings, prefix=prefix, repeats=3)
    record = {**summarise(pair, results, settings, costs), **provenance(settings.seed)}
    out("")
    out(render(record))
    return record


def render(record: dict[str, Any]) -> str:
    """Return the summary as a table for the terminal."""
    ms = {name: 1e3 * spread["median"] for name, spread in record["step_seconds"].items()}
    same = f"{record['identical']}/{record['sentences']}"
    alpha = "none tested" if record["alpha"] is None else f"{record['alpha']:.3f}"
    rows = [
        ("sentences", f"{record['sentences']}"),
        ("tokens", f"{record['tokens']}"),
        ("identical outputs", same),
        ("alpha (accepted / tested)", alpha),
        ("tokens per target run", f"{record['tokens_per_run']:.2f}"),
        (
            "c (draft step / target step)",
            f"{record['c']:.3f}   {ms['draft_step']:.2f} ms / {ms['target_step']:.1f} ms",
        ),
        (
            f"v ({record['gamma'] + 1} tokens / 1 token)",
            f"{record['v']:.2f}    {ms['verify']:.1f} ms / {ms['target_step']:.1f} ms",
        ),
        ("seconds, plain", f"{record['seconds_plain']:.2f}"),
        ("seconds, speculative", f"{record['seconds_speculative']:.2f}"),
        ("speedup, measured", f"{record['speedup']:.2f}x   whole decodes, encoders included"),
        ("speedup, decoding alone", _times(record["speedup_decoding"], "encoders taken off")),
        (
            "speedup, predicted",
            _times(
                record["predicted_speedup"], "tokens per run / (gamma c + v), encoders left out"
            ),
        ),
    ]
    if record.get("lossy"):
        far = record.get("total_variation")
        told = "" if far is None else f", total variation from the target {far:.3f} a tested guess"
        rows.insert(0, ("LOSSY", f"lenience {record['lenience']:g}{told}"))
    return "\n".join(f"{name:<30} {value}" for name, value in rows)


def _times(factor: float | None, meaning: str) -> str:
    if factor is None:
        return "none: the costs drown in the noise of a busy machine"
    return f"{factor:.2f}x   {meaning}"
