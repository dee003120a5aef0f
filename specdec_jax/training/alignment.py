"""Guided alignment: a word-translation table tells one attention head where to look.

A model of a few million parameters that sees a few million tokens learns the target language long
before it learns to read the source. A table counted from the same pairs (IBM Model 1 with a prior
for the diagonal, Brown et al. 1993 and Dyer et al. 2013) knows in a minute which source token a
target token comes from; teaching that to one cross-attention head opens the way for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from specdec_jax.sampling.types import Array, Float, Int

DIAGONAL = 4.0
"""Sharpness of the prior exp(-DIAGONAL * |relative source position - relative target position|)."""


def translation_table(
    examples: Sequence[tuple[list[int], list[int]]], vocab_size: int, *, iterations: int = 6
) -> Float[np.ndarray, "V V"]:
    """Estimate t(target id | source id) by expectation maximisation.

    Args:
        examples: (source ids, target ids) pairs.
        vocab_size: V; the table is dense, so this is for vocabularies of a few thousand pieces.
        iterations: of the EM.

    Returns:
        float32, rows (source ids) that were seen sum to one.
    """
    cells, prior, first = _cells(examples, vocab_size)
    widths = np.diff(first, append=len(cells))
    table = np.ones(vocab_size * vocab_size, np.float32)
    for _ in range(iterations):
        joint = table[cells] * prior
        share = joint / np.repeat(np.add.reduceat(joint, first), widths)
        counts = np.bincount(cells, share, table.size).reshape(vocab_size, vocab_size)
        total = counts.sum(1, keepdims=True)
        table = (counts / np.maximum(total, 1e-12)).astype(np.float32).ravel()
    return table.reshape(vocab_size, vocab_size)


def _cells(
    examples: Sequence[tuple[list[int], list[int]]], vocab_size: int
) -> tuple[Int[np.ndarray, " C"], Float[np.ndarray, " C"], Int[np.ndarray, " N"]]:
    """Lay all pairs of a source and a target token end to end, those of a target token together.

    Returns:
        Each pair's entry in the flat table, its prior, and where each target token's pairs begin.
    """
    cells, priors, widths = [], [], []
    for source, target in examples:
        s, t = np.asarray(source), np.asarray(target)
        cells.append((s[None, :] * vocab_size + t[:, None]).ravel())
        priors.append(_diagonal(len(s), len(t)).T.ravel())
        widths += [len(s)] * len(t)
    return np.concatenate(cells), np.concatenate(priors), np.cumsum([0, *widths[:-1]])


def _diagonal(source: int, target: int) -> Float[np.ndarray, "S N"]:
    i = (np.arange(source) + 0.5) / source
    j = (np.arange(target) + 0.5) / target
    return np.exp(-DIAGONAL * np.abs(i[:, None] - j[None, :])).astype(np.float32)


def posterior(
    table: Float[Array, "V V"], source: Int[Array, "B S"], target: Int[Array, "B N"]
) -> Float[Array, "B N S"]:
    """Return, for each target token, the distribution over the source token it comes from.

    Rows of target padding, and of tokens that the table has never seen with this source, follow
    the diagonal alone.
    """
    seen = (source > 0).astype(jnp.float32)
    lengths = [
        jnp.maximum(jnp.sum(ids > 0, axis=1), 1).astype(jnp.float32) for ids in (source, target)
    ]
    i = (jnp.arange(source.shape[1], dtype=jnp.float32) + 0.5) / lengths[0][:, None]
    j = (jnp.arange(target.shape[1], dtype=jnp.float32) + 0.5) / lengths[1][:, None]
    prior = jnp.exp(-DIAGONAL * jnp.abs(i[:, None, :] - j[:, :, None])) * seen[:, None, :]
    joint = (table[source[:, None, :], target[:, :, None]] + 1e-6) * prior
    return joint / jnp.maximum(jnp.sum(joint, -1, keepdims=True), 1e-20)


def guidance(
    weights: Float[Array, "B N S"], goal: Float[Array, "B N S"], target: Int[Array, "B N"]
) -> Float[Array, ""]:
    """Return the summed cross-entropy of a head's attention to the alignment, padding left out."""
    loss = -jnp.sum(goal * jnp.log(weights + 1e-6), axis=-1)
    return jnp.sum(jnp.where(target > 0, loss, 0.0))


def load_or_count(
    path: Path, examples: Sequence[tuple[list[int], list[int]]], vocab_size: int
) -> Float[np.ndarray, "V V"]:
    """Return the table kept at `path` (.npy), counting and keeping it first where there is none."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, translation_table(examples, vocab_size).astype(np.float16))
    return np.load(path).astype(np.float32)
