"""T5X's own decoding beside ours: the same parameters and sentences, in turns, in one process.

    python -m specdec_jax.t5x_plugin.side_by_side --shape base --json record.json

T5X's `temperature_sample` runs through its `EncoderDecoderModel` on our network in T5X's layout,
which is the network that its checkpoints are for. Greedy, float32: all three outputs are compared
token for token.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import seqio
from t5x import decoding, models
from tqdm import tqdm

from specdec_jax import checkpoints
from specdec_jax.bench.compare import sources
from specdec_jax.bench.demo import sentences
from specdec_jax.bench.record import provenance
from specdec_jax.bench.timing import Spread, in_turns
from specdec_jax.errors import SpecdecError
from specdec_jax.files import require_folder, write_json
from specdec_jax.generate import Settings, decode, load_pair
from specdec_jax.t5 import T5, preset
from specdec_jax.t5.expand import expand
from specdec_jax.t5x_plugin.network import Transformer
from specdec_jax.text import prefix


def stock_decoder(model: T5, max_tokens: int) -> Callable[[np.ndarray], jax.Array]:
    """Return T5X's greedy decoding of a batch of sources, compiled once for each shape."""
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
        room = jnp.zeros((source.shape[0], max_tokens), jnp.int32)
        batch = {"encoder_input_tokens": source, "decoder_input_tokens": room}
        options = {"temperature": 0.0, "eos_id": 1}
        return stock.predict_batch_with_aux(params, batch, decoder_params=options)[0]

    params = jax.tree.map(jnp.asarray, model.params)
    return lambda source: predict(params, jnp.asarray(source))


def measure(
    shape: str | None, lines: Sequence[str], settings: Settings, *, repeats: int
) -> dict[str, Any]:
    """Decode lines with T5X, plainly and speculatively, in turns.

    Returns:
        Sums of medians over the batches and their ratios; `identical` counts the sentences of which
        all three outputs are the same.
    """
    pair = load_pair(shape=shape)
    small = checkpoints.load("ende_target").model
    stock = stock_decoder(expand(small, preset(shape)) if shape else small, settings.max_tokens)
    plain = dataclasses.replace(settings, gamma=0)
    seconds: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    warm, identical, tokens = set(), 0, 0
    batches = sources(pair, lines, prefix("ende"), settings.batch_size)
    for index, batch in enumerate(tqdm(batches, desc="three ways", leave=False)):
        numbers = np.arange(index * len(batch), (index + 1) * len(batch))
        limits = np.where(numbers < len(lines), settings.max_tokens, 0)
        ours = {
            name: functools.partial(decode, pair, batch, way, numbers=numbers, limits=limits)
            for name, way in (("plain", plain), ("speculative", settings))
        }
        calls = {"t5x": functools.partial(stock, batch), **ours}
        decoded: dict[str, Any] = {}

        def keep(name: str, calls=calls, decoded=decoded):
            decoded[name] = calls[name]()
            return decoded[name]

        kept = {name: functools.partial(keep, name) for name in calls}
        times = in_turns(kept, repeats=repeats, warmup=int(batch.shape not in warm))
        warm.add(batch.shape)
        median = {name: float(np.median(each)) for name, each in times.items()}
        for name, value in median.items():
            seconds.setdefault(name, []).append(value)
            ratios.setdefault(name, []).append(median["t5x"] / value)
        theirs = np.asarray(decoded["t5x"])
        found = [np.asarray(decoded[name].tokens) for name in ours]
        for row in np.flatnonzero(limits):
            identical += all(np.array_equal(theirs[row], each[row]) for each in found)
            tokens += int(np.count_nonzero(theirs[row]))
    total = {name: sum(each) for name, each in seconds.items()}
    return {
        "target_shape": pair.target_shape,
        "sentences": len(lines),
        "tokens": tokens,
        "identical": identical,
        "gamma": settings.gamma,
        "batch": settings.batch_size,
        "seconds": total,
        "plain_over_t5x": total["t5x"] / total["plain"],
        "speculative_over_t5x": total["t5x"] / total["speculative"],
        "speculative_over_plain": total["plain"] / total["speculative"],
        "over_t5x_by_batch": {
            name: dataclasses.asdict(Spread.of(each)) for name, each in ratios.items()
        },
        "timed": "encoders and all steps, after compilation and warm-up; text conversion left out",
    }


def main() -> int:
    """Measure, print and write the record; status 1 where an output differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", default="base", help="enlarge the target: small, base, large")
    parser.add_argument("--lines", type=int, default=24, help="of the shipped sentences (24)")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--gamma", type=int, default=7)
    parser.add_argument("--max_tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, required=True)
    flags = parser.parse_args()
    try:
        require_folder(flags.json)
        lines = [source for source, _ in sentences()][: flags.lines]
        settings = Settings(
            gamma=flags.gamma, batch_size=flags.batch_size, max_tokens=flags.max_tokens
        )
        shape = None if flags.shape == "own" else flags.shape
        found = measure(shape, lines, settings, repeats=flags.repeats)
        write_json(flags.json, {**found, **provenance(0)})
    except SpecdecError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in ("plain_over_t5x", "speculative_over_t5x", "speculative_over_plain"):
        print(f"{name:<24} {found[name]:.2f}x")
    print(f"{'identical':<24} {found['identical']}/{found['sentences']}")
    return int(found["identical"] < found["sentences"])


if __name__ == "__main__":
    sys.exit(main())
