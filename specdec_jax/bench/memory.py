"""What a decode holds in memory and what it costs to compile, from the program itself."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.bench.timing import guessing_model
from specdec_jax.decoding import LanguageModel
from specdec_jax.decoding.loop import buffer_length
from specdec_jax.generate import Pair, Settings, program


class Memory(NamedTuple):
    """Bytes of one device's memory."""

    arguments: int
    """Parameters, source, request."""
    outputs: int
    aliased: int
    """Of the outputs, what takes an argument's place."""
    temporaries: int
    """Caches of the loop and activations."""
    code: int
    peak: int
    """The most in use at a time, arguments and code included."""


def memory_of(found: Any) -> Memory:
    """Return what `jax.stages.Compiled.memory_analysis` says of one device."""
    live = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    # Some back ends know no peak; then all at once is the bound.
    peak = getattr(found, "peak_memory_in_bytes", 0) or live + found.temp_size_in_bytes
    return Memory(
        arguments=found.argument_size_in_bytes,
        outputs=found.output_size_in_bytes,
        aliased=found.alias_size_in_bytes,
        temporaries=found.temp_size_in_bytes,
        code=found.generated_code_size_in_bytes,
        peak=peak + found.generated_code_size_in_bytes,
    )


def bytes_of(tree: Any) -> int:
    """Return the bytes of all arrays of a tree, which may be shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def caches(model: LanguageModel, source: np.ndarray, length: int) -> int:
    """Return the bytes of a model's state: keys and values of all slots and of the source."""
    state = jax.eval_shape(lambda m, s: m.start(s, length), model, jnp.asarray(source))
    return bytes_of(state)


def compiled(pair: Pair, source: np.ndarray, settings: Settings) -> dict[str, Any]:
    """Compile the decode of one batch, which `generate.decode` then finds compiled.

    Args:
        pair: the models.
        source: int32 [B, S].
        settings: how; gamma 0 is plain decoding.

    Returns:
        `compile_seconds`, tracing included (a program compiled before costs nothing), and in bytes
        `weights` and `caches` of the models that run, the `peak` of the compiled program, and
        `peak_over_both`, its ratio to weights and caches together.
    """
    rows = len(source)
    function, arguments = program(
        pair,
        source,
        settings,
        numbers=np.arange(rows),
        limits=np.full(rows, settings.max_tokens),
    )
    begun = time.perf_counter()
    analysis = function.lower(*arguments).compile().memory_analysis()
    took = time.perf_counter() - begun
    models = [pair.target]
    if settings.gamma and pair.draft is not None:
        guesser = guessing_model(pair.draft)
        models += [] if guesser is None else [guesser]
    length = buffer_length(1, settings.max_tokens, settings.gamma)
    weights = sum(bytes_of(model) for model in models)
    kept = sum(caches(model, source, length) for model in models)
    peak = memory_of(analysis).peak
    return {
        "compile_seconds": took,
        "weights": weights,
        "caches": kept,
        "peak": peak,
        "peak_over_both": peak / (weights + kept),
    }
