"""T5X's own decoding beside ours: the same parameters and sentences, in turns, in one process.

    python -m specdec_jax.t5x_plugin.side_by_side --shape base --json record.json

T5X's `temperature_sample` runs through its `EncoderDecoderModel` on our network in T5X's layout,
which is the network that its checkpoints are for. At temperature 0 all outputs are compared token
for token; sampled ones differ, and seconds per token are compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import seqio
from t5x import decoding, models
from tqdm import tqdm

from specdec_jax import checkpoints
from specdec_jax.bench.compare import rows_of, sources
from specdec_jax.bench.demo import sentences
from specdec_jax.bench.record import provenance
from specdec_jax.bench.timing import Spread, in_turns
from specdec_jax.errors import told
from specdec_jax.files import read_lines, require_folder, write_json
from specdec_jax.generate import Pair, Settings, decode, load_pair
from specdec_jax.t5 import T5, preset
from specdec_jax.t5.expand import expand
from specdec_jax.t5x_plugin.network import Transformer
from specdec_jax.text import prefix

Decoder = Callable[[np.ndarray], Any]
"""Token ids [B, at most max_tokens] of a batch of sources [B, S], 0 is padding."""


def stock_decoder(model: T5, settings: Settings) -> Decoder:
    """Return T5X's decoding of a batch of sources, compiled once for each shape."""
    vocabulary = seqio.PassThroughVocabulary(model.config.vocab_size, eos_id=1)
    stock = models.EncoderDecoderModel(
        Transformer(model.config),
        vocabulary,
        vocabulary,
        None,  # pyright: ignore[reportArgumentType]
        decode_fn=decoding.temperature_sample,
    )

    @jax.jit
    def predict(params: Any, source: jax.Array) -> jax.Array:
        room = jnp.zeros((source.shape[0], settings.max_tokens), jnp.int32)
        batch = {"encoder_input_tokens": source, "decoder_input_tokens": room}
        options = {"temperature": settings.temperature, "eos_id": 1, "topk": 0}
        return stock.predict_batch_with_aux(
            params, batch, rng=jax.random.PRNGKey(settings.seed), decoder_params=options
        )[0]

    params = jax.tree.map(jnp.asarray, model.params)
    return lambda source: predict(params, jnp.asarray(source))


def measure(
    pair: Pair,
    others: Mapping[str, Decoder],
    lines: Sequence[str],
    settings: Settings,
    *,
    prefix: str,
    repeats: int,
    progress: bool = True,
) -> dict[str, Any]:
    """Decode lines with T5X and others, plainly and speculatively, in turns.

    Args:
        pair: ours, decoded plainly and speculatively.
        others: ``t5x``, against which all are held, and whoever else.
        lines: sources without prefix.
        settings: of the speculative run.
        prefix: put before each line.
        repeats: times that each batch is decoded each way.
        progress: whether to show a bar.

    Returns:
        Seconds (sums over the batches of medians) and tokens by way. `over_t5x` are ratios of
        seconds per token, for where the way samples, outputs differ in length. `identical` counts
        the sentences whose output is our plain decoding's, for each way.
    """
    plain = dataclasses.replace(settings, gamma=0)
    names = [*others, "plain", "speculative"]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    tokens: dict[str, list[int]] = {name: [] for name in names}
    identical = dict.fromkeys(names, 0)
    warm = set()
    batches = sources(pair, lines, prefix, settings.batch_size)
    for index, batch in enumerate(
        tqdm(batches, desc="in turns", leave=False, disable=not progress)
    ):
        rows = rows_of(index, len(batch), len(lines), settings.max_tokens)
        calls: dict[str, Callable[[], Any]] = {
            name: functools.partial(other, batch) for name, other in others.items()
        }
        for name, way in (("plain", plain), ("speculative", settings)):
            calls[name] = functools.partial(decode, pair, batch, way, **rows)
        timed = in_turns(calls, repeats=repeats, warmup=int(batch.shape not in warm))
        warm.add(batch.shape)
        found = {
            name: _padded(done if name in others else done.tokens, settings.max_tokens)
            for name, done in timed.last.items()
        }
        for name, each in timed.seconds.items():
            seconds[name].append(float(np.median(each)))
            tokens[name].append(int(np.count_nonzero(found[name][rows["limits"] > 0])))
            identical[name] += sum(
                np.array_equal(found[name][row], found["plain"][row])
                for row in np.flatnonzero(rows["limits"])
            )
    per_token = {name: sum(seconds[name]) / sum(tokens[name]) for name in names}
    ratios = {
        name: [
            (t / n) / (own / m)
            for t, n, own, m in zip(
                seconds["t5x"], tokens["t5x"], seconds[name], tokens[name], strict=True
            )
        ]
        for name in names
    }
    return {
        "target_shape": pair.target_shape,
        "draft_shape": pair.draft_shape,
        "sentences": len(lines),
        "gamma": settings.gamma,
        "batch": settings.batch_size,
        "temperature": settings.temperature,
        "tokens": {name: sum(each) for name, each in tokens.items()},
        "identical": identical,
        "seconds": {name: sum(each) for name, each in seconds.items()},
        "over_t5x": {name: per_token["t5x"] / each for name, each in per_token.items()},
        "over_t5x_by_batch": {
            name: dataclasses.asdict(Spread.of(each)) for name, each in ratios.items()
        },
        "timed": "encoders and all steps, after compilation and warm-up; text conversion left out",
    }


def _padded(tokens: Any, length: int) -> np.ndarray:
    found = np.asarray(tokens)[:, :length]
    return np.pad(found, ((0, 0), (0, length - found.shape[1])))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a measurement."""
    parser.add_argument("--target", default="ende_target", help="shipped name or path")
    parser.add_argument("--draft", default="ende_draft", help="shipped name or path")
    parser.add_argument("--task", default="ende", help="its prefix stands before every line")
    parser.add_argument("--shape", default="base", help="enlarge the target: own, base, large")
    parser.add_argument("--input", type=Path, help="lines to decode (the shipped sentences)")
    parser.add_argument("--lines", type=int, default=24, help="of those (24)")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--gamma", type=int, default=7)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max_tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, required=True)


def compared(flags: argparse.Namespace, others: Callable[[T5, Settings], Mapping[str, Decoder]]):
    """Measure, print and write the record that the flags ask for.

    Args:
        flags: of `add_flags`.
        others: makes the other ways from the target (token-major, enlarged) and the settings.

    Returns:
        0, or 1 where a greedy output of T5X or of ours differs.
    """
    require_folder(flags.json)
    shipped = [source for source, _ in sentences(flags.task)]
    lines = read_lines(flags.input) if flags.input else shipped
    settings = Settings(
        gamma=flags.gamma,
        batch_size=flags.batch_size,
        max_tokens=flags.max_tokens,
        temperature=flags.temperature,
    )
    shape = None if flags.shape == "own" else flags.shape
    pair = load_pair(flags.target, flags.draft, shape=shape)
    small = checkpoints.load(flags.target).model
    target = expand(small, preset(shape)) if shape else small
    found = measure(
        pair,
        others(target, settings),
        lines[: flags.lines],
        settings,
        prefix=prefix(flags.task),
        repeats=flags.repeats,
    )
    asked = {name: getattr(flags, name) for name in ("task", "shape")}
    asked |= {name: Path(getattr(flags, name)).name for name in ("target", "draft")}
    write_json(flags.json, {**asked, **found, **provenance(0)})
    print(f"{'':<14} {'over T5X':>9} {'identical':>10}")
    for name, ratio in found["over_t5x"].items():
        print(f"{name:<14} {ratio:>8.2f}x {found['identical'][name]:>6}/{found['sentences']}")
    exact = ("t5x", "plain", "speculative") if settings.temperature == 0 else ()
    return int(any(found["identical"][name] < found["sentences"] for name in exact))


@told
def main() -> int:
    """Hold our decoding against T5X's; status 1 where a greedy output differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_flags(parser)
    return compared(
        parser.parse_args(),
        lambda target, settings: {"t5x": stock_decoder(target, settings)},
    )


if __name__ == "__main__":
    sys.exit(main())
