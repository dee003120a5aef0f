"""A target's own outputs for many lines, in batches of lines of like length."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from specdec_jax import text
from specdec_jax.decoding import Finish, require_finite
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Pair, Settings, decode

SORTED = 8
"""Batches of lines that are sorted together, at most."""
BUCKETS = tuple(b for b in text.BUCKETS if b > 32)
"""Fewer than `generate` has: a compilation takes as long as many batches do."""


class Outputs(NamedTuple):
    """One batch; rows that only fill it have length 0."""

    lines: np.ndarray
    """int [B], which line each row is of."""
    source: np.ndarray
    """int32 [B, S], 0 is padding."""
    tokens: np.ndarray
    """int32 [B, L], end token included, 0 after it."""
    lengths: np.ndarray
    """int32 [B]."""


def outputs(
    pair: Pair,
    lines: Sequence[str],
    settings: Settings,
    *,
    prefix: str,
    tokens: int | None = None,
    progress: bool = True,
) -> Iterator[Outputs]:
    """Decode lines with the target alone.

    Args:
        pair: whose target speaks; its draft is left alone.
        lines: sources without prefix; those longer than the longest bucket are cut.
        settings: how; gamma plays no part. A line's sample is its own, whatever its batch.
        prefix: put before each line.
        tokens: draw the lines in random order (by the seed), and end as soon as they have given
            this many tokens, end tokens included; all lines in their order when left out.
        progress: whether to show a bar.

    Raises:
        SpecdecError: for no lines, fewer tokens than were asked for, or logits that are not finite.
    """
    if not lines:
        raise SpecdecError("There are no lines to decode: give at least one.")
    size = settings.batch_size
    plain = dataclasses.replace(settings, gamma=0, lenience=1.0, record=False)
    order = np.arange(len(lines))
    if tokens is not None:
        order = np.random.default_rng(settings.seed).permutation(order)
    found = 0
    bar = tqdm(total=tokens, desc="tokens of the target", disable=not progress, leave=False)
    with bar:
        done = 0
        while done < len(order) and (tokens is None or found < tokens):
            batches = SORTED
            if tokens is not None:
                # As many lines as may be missing, and not half of lines that were sorted: the
                # short ones come first.
                each = found / done if done else tokens
                batches = min(SORTED, math.ceil((tokens - found) / each / size))
            part = sorted(order[done : done + batches * size], key=lambda i: len(lines[i]))
            done += len(part)
            for first in range(0, len(part), size):
                batch = _decode(pair, lines, np.array(part[first : first + size]), plain, prefix)
                found += int(batch.lengths.sum())
                bar.update(int(batch.lengths.sum()))
                yield batch
    if tokens is not None and found < tokens:
        raise SpecdecError(
            f"The {len(lines)} lines gave {found} tokens of the target, but {tokens} were asked "
            "for: give more lines, or ask for fewer tokens."
        )


def _decode(
    pair: Pair, lines: Sequence[str], which: np.ndarray, settings: Settings, prefix: str
) -> Outputs:
    """Decode one batch, filled up with rows that have nothing to do."""
    empty = settings.batch_size - len(which)
    filled = [f"{prefix}{lines[i]}" for i in which.tolist()] + [""] * empty
    source, _ = text.encode_batch(pair.vocabulary, filled, buckets=BUCKETS, truncate=True)
    decoded = decode(
        pair,
        source,
        settings,
        numbers=np.pad(which, (0, empty)),
        limits=np.pad(np.full(len(which), settings.max_tokens), (0, empty)),
    )
    bad = int((np.asarray(decoded.finish) == Finish.NOT_FINITE).sum())
    require_finite(bad, len(which))
    return Outputs(
        np.pad(which, (0, empty)), source, np.asarray(decoded.tokens), np.asarray(decoded.lengths)
    )


def ratio(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float | None]:
    """Return a mean over all counted things, and its standard error; None for one line.

    The error is that of lines drawn at random: what is counted within one depends on the rest.

    Args:
        sums: of each line, float [N].
        counts: how many things each sum is of, [N]; lines without any are left out.
    """
    there = counts > 0
    sums, counts = sums[there], counts[there]
    mean = sums.sum() / counts.sum()
    if len(counts) < 2:
        return float(mean), None
    spread = ((sums - mean * counts) ** 2).sum() * len(counts) / (len(counts) - 1)
    return float(mean), float(np.sqrt(spread) / counts.sum())
