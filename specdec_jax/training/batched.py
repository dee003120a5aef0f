"""Encoded sources decoded in batches of one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from specdec_jax.decoding import Decoded, Options, request
from specdec_jax.sampling import sampling
from specdec_jax.sampling.types import Int, Key

Decode = Callable[[Any, Any, Options], Decoded]
"""(source, request, options) -> decoded, as `autoregressive` with its target given."""


def decoded(
    decode: Decode,
    sources: Sequence[Sequence[int]],
    limits: Sequence[int] | Int[np.ndarray, " E"],
    options: Options,
    *,
    order: Int[np.ndarray, " N"],
    rows: int,
    width: int,
    key: Key[jax.Array, ""],
    temperature: float = 0.0,
) -> Iterator[tuple[Int[np.ndarray, " R"], Decoded]]:
    """Decode sources a batch at a time; the last one is filled with rows that have nothing to do.

    Args:
        decode: see `Decode`.
        sources: ids; a source longer than `width` is cut and ends with the end token all the same.
        limits: most tokens of each source's output.
        options: of the loop.
        order: which sources, in the order in which they fill the batches: a batch ends with its
            longest output, so those of like length belong together.
        rows: of a batch.
        width: padded length of the sources.
        key: of the samples.
        temperature: of target and draft.

    Yields:
        Which sources a batch is of, and its arrays on the host.
    """
    for start in range(0, len(order), rows):
        part = order[start : start + rows]
        source = np.zeros((rows, width), np.int32)
        room = np.zeros(rows, np.int32)
        for row, i in enumerate(part):
            ids = sources[i]
            ids = ids if len(ids) <= width else [*ids[: width - 1], options.eos_id]
            source[row, : len(ids)] = ids
            room[row] = limits[i]
        asked = request(
            rows,
            key=jax.random.fold_in(key, start),
            max_tokens=options.max_tokens,
            limits=room,
            settings=sampling(rows, temperature=temperature),
        )
        yield part, jax.device_get(decode(source, asked, options))
