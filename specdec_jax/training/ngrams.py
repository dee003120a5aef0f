"""Counting n-grams: from texts, best the target's own outputs, to an `NGramDraft`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from specdec_jax import text
from specdec_jax.drafts import Continuations, NGramDraft, ngram_file
from specdec_jax.errors import SpecdecError


def count_ngrams(
    texts: Iterable[Sequence[int]], vocab_size: int, *, order: int = 2, keep: int = 16
) -> NGramDraft:
    """Count n-grams and smooth them.

    Witten and Bell's weights: a context seen n times with d different continuations leaves d of
    n + d parts to the context that is one token shorter. The unigram has one added to every count,
    so that no token is impossible. Continuations that are not kept are left to the shorter context
    as well.

    Args:
        texts: ids of each text, end token included, start token left out.
        vocab_size: V.
        order: n; 1 counts single tokens, 2 pairs, ..
        keep: K, continuations kept of each context.

    Raises:
        SpecdecError: for no text, an id outside the vocabulary, an order below 1, or one whose
            contexts do not fit into 31 bits (order 3 does up to 46,340 ids).
    """
    if order < 1 or keep < 1:
        raise SpecdecError(f"order is {order} and keep {keep}, but both must be at least 1.")
    if vocab_size ** (order - 1) >= 1 << 31:
        raise SpecdecError(
            f"Contexts of {order - 1} tokens of {vocab_size} ids do not fit into 31 bits: "
            "lower the order."
        )
    # Every text begins with the start token, as often as the longest context is long.
    start = np.zeros(order - 1, np.int64)
    rows = [np.concatenate([start, np.asarray(text, np.int64)]) for text in texts]
    if not rows or not any(len(row) > order - 1 for row in rows):
        raise SpecdecError("There is no text to count n-grams in: give at least one token.")
    low, high = min(row.min(initial=0) for row in rows), max(row.max(initial=0) for row in rows)
    if low < 0 or high >= vocab_size:
        raise SpecdecError(
            f"The texts hold ids {low} .. {high}, but the vocabulary has 0 .. {vocab_size - 1}: "
            "encode them with this vocabulary."
        )
    tokens = np.concatenate([row[order - 1 :] for row in rows])
    unigram = np.bincount(tokens, minlength=vocab_size) + 1.0
    levels = []
    for width in range(1, order):
        codes = np.concatenate([_codes(row, width, order, vocab_size) for row in rows])
        levels.append(_level(codes, tokens, vocab_size, keep))
    return NGramDraft(jnp.asarray(unigram / unigram.sum(), jnp.float32), tuple(levels))


def save(
    path: str | os.PathLike[str],
    draft: NGramDraft,
    vocabulary: text.AnyVocabulary,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write tables for `specdec_jax.generate.load_draft`, whole or not at all.

    Args:
        path: the file.
        draft: from `count_ngrams`.
        vocabulary: whose ids were counted; the file is good for no other.
        notes: texts to be kept with them.

    Raises:
        SpecdecError: when the folder is missing or the disk is full.
    """
    ngram_file.write(path, draft, vocabulary=text.fingerprint(vocabulary), notes=notes)


def _codes(row: np.ndarray, width: int, order: int, vocab_size: int) -> np.ndarray:
    """Return the code of the `width` tokens before each counted token of a text."""
    count = len(row) - (order - 1)
    code = np.zeros(count, np.int64)
    for back in range(width, 0, -1):
        code = code * vocab_size + row[order - 1 - back :][:count]
    return code


def _level(codes: np.ndarray, tokens: np.ndarray, vocab_size: int, keep: int) -> Continuations:
    pairs, counts = np.unique(codes * vocab_size + tokens, return_counts=True)
    context, token = np.divmod(pairs, vocab_size)
    contexts, first, types = np.unique(context, return_index=True, return_counts=True)
    row = np.repeat(np.arange(len(contexts)), types)
    seen = np.bincount(row, weights=counts)
    # Within a context the most frequent first, and of equals the lowest id.
    order = np.lexsort((token, -counts, row))
    rank = np.arange(len(order)) - first[row]
    kept = rank < keep
    place = row[kept], rank[kept]
    ids = np.zeros((len(contexts), keep), np.int32)
    probs = np.zeros((len(contexts), keep), np.float32)
    ids[place] = token[order][kept]
    probs[place] = (counts[order] / (seen + types)[row])[kept]
    return Continuations(
        contexts=jnp.asarray(contexts, jnp.int32),
        tokens=jnp.asarray(ids),
        probs=jnp.asarray(probs),
        rest=jnp.asarray(1.0 - probs.sum(axis=1), jnp.float32),
    )
