"""What a decoder call of N tokens costs, in both layouts: the v of a T5's shape on this device."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specdec_jax.bench.timing import Spread, in_turns
from specdec_jax.t5 import T5, Transformer, prepare, preset, t5

CALLS = 12
"""Calls in one timed program, so that neither dispatch nor the clock is measured."""


def random_model(shape: str, *, seed: int = 0) -> T5:
    """Return a T5 of a preset's shape with random weights, token-major: cost needs no training."""
    config = preset(shape)
    tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    init = functools.partial(Transformer(config).init, jax.random.key(0))
    shapes = jax.eval_shape(init, tokens, tokens)["params"]
    # One block of noise, repeated: drawing a billion numbers would take longer than the benchmark.
    noise = np.random.default_rng(seed).standard_normal(1 << 20, dtype=np.float32) * 0.02
    return t5(jax.tree.map(lambda leaf: jnp.asarray(np.resize(noise, leaf.shape)), shapes), config)


def step_times(
    shape: str,
    *,
    widths: Sequence[int] = (1, 4, 8),
    batch: int = 1,
    source_length: int = 32,
    length: int = 64,
    repeats: int = 5,
    seed: int = 0,
) -> dict[str, Any]:
    """Time `extend` with N tokens in both layouts, all in turns.

    Returns:
        `milliseconds[layout][N]` (a `Spread`'s fields), `v[layout][N]` (medians over that of one
        token), `one_token_feature_over_token`, the ratio of the layouts at one token,
        `weight_bytes_read` by a call, `bandwidth` (see `read_bandwidth`), and
        `share_of_bandwidth[layout]`, the time in which the weights could be read over that of a
        one-token call: 1 is the limit.
    """
    plain = random_model(shape, seed=seed)
    models = {"token_major": plain, "feature_major": prepare(plain, platform="cpu")}
    source = jnp.full((batch, source_length), 5, jnp.int32)

    calls: dict[str, Callable[[], Any]] = {}
    for layout, model in models.items():
        for width in widths:
            calls[f"{layout} {width}"] = functools.partial(
                _run, model, source, jnp.full((batch, width), 5, jnp.int32), length
            )
    start = jax.jit(lambda model: model.start(source, length))
    calls |= {f"{layout} 0": functools.partial(start, model) for layout, model in models.items()}
    times = in_turns(calls, repeats=repeats).seconds

    def cost(layout: str, width: int) -> np.ndarray:
        # Each program also encodes, which is timed alone and taken off.
        whole, start = np.array(times[f"{layout} {width}"]), np.array(times[f"{layout} 0"])
        return 1e3 * (whole - np.median(start)) / CALLS

    medians = {
        layout: {str(n): float(np.median(cost(layout, n))) for n in widths} for layout in models
    }
    return {
        "shape": plain.config.describe(),
        "batch": batch,
        "milliseconds": {
            layout: {str(n): vars(Spread.of(cost(layout, n).tolist())) for n in widths}
            for layout in models
        },
        "v": {
            layout: {n: value / each[str(widths[0])] for n, value in each.items()}
            for layout, each in medians.items()
        },
        "one_token_feature_over_token": medians["feature_major"][str(widths[0])]
        / medians["token_major"][str(widths[0])],
        "weight_bytes_read": 4 * plain.config.decoder_step_weights,
        "bandwidth": (bandwidth := read_bandwidth()),
        # Of the time that one token takes, what reading the weights would take at the least.
        "share_of_bandwidth": {
            layout: 4e3 * plain.config.decoder_step_weights / bandwidth / each[str(widths[0])]
            for layout, each in medians.items()
        },
    }


def read_bandwidth(size: int = 1 << 30, *, repeats: int = 7) -> float:
    """Return how many bytes a second all cores together read from memory, the best of several.

    Args:
        size: bytes; many times what caches hold.
        repeats: readings.
    """
    cores = os.cpu_count() or 1
    parts = np.array_split(np.ones(size // 4, np.float32), cores)
    took = []
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(repeats):
            began = time.perf_counter()
            # A product with itself reads each number once, and lets other threads run meanwhile.
            list(pool.map(lambda part: np.dot(part, part), parts))
            took.append(time.perf_counter() - began)
    return size / min(took)


@functools.partial(jax.jit, static_argnames="length")
def _run(model: T5, source: jax.Array, tokens: jax.Array, length: int) -> jax.Array:
    """Encode, then call `extend` at slots 0, 1, .. each time with what the last call chose."""

    def body(slot, carry):
        state, tokens = carry
        position = jnp.full(tokens.shape[:1], slot, jnp.int32)
        logits, state = model.extend(state, tokens, position)
        return state, jnp.argmax(logits, axis=-1).astype(jnp.int32)

    _, tokens = lax.fori_loop(0, CALLS, body, (model.start(source, length), tokens))
    return tokens
