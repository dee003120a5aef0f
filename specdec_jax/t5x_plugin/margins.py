"""How near a tie the target was where two greedy decodes of one source part.

A block of gamma + 1 tokens is another matrix product than one token, and rounds otherwise. In
bfloat16 that may turn a near-tie of the two largest logits round; a row that differs where they are
far apart is a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.checkpoints import load
from specdec_jax.errors import SpecdecError
from specdec_jax.t5.network import Transformer
from specdec_jax.text import EOS_ID, Vocabulary


def first_difference(plain: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the index of the first token that differs, None for equal rows."""
    for index, (a, b) in enumerate(zip(plain, other, strict=False)):
        if a != b:
            return index
    return None if len(plain) == len(other) else min(len(plain), len(other))


def margins(
    target: str,
    dtype: str,
    sources: Sequence[str],
    plain: Sequence[Sequence[int]],
    other: Sequence[Sequence[int]],
    length: int,
) -> list[dict[str, Any]]:
    """Return, for each pair of decodes that differ, where they part and the target's logits there.

    The logits are computed in float32 from parameters rounded to `dtype`, with the tokens before
    given: a value that neither of the two runs has computed, and both approximate.

    Args:
        target: a checkpoint with a vocabulary, or a shipped model's name.
        dtype: of the parameters in both runs.
        sources: texts, prefix included.
        plain: ids that the target chose alone.
        other: ids that were chosen with a draft.
        length: most ids of a source, end token included.

    Returns:
        For each pair: its index (`row`), the `position` of the first token that differs, both
        tokens (None where a row has ended), the two largest logits' difference (`margin`), and that
        of the two tokens' logits (`between`; None where one is missing).

    Raises:
        SpecdecError: the target has no vocabulary of pieces.
    """
    pairs = enumerate(zip(plain, other, strict=True))
    compared = [(row, first_difference(*pair)) for row, pair in pairs]
    parted = [(row, index) for row, index in compared if index is not None]
    if not parted:
        return []
    loaded = load(target, dtype=dtype)
    if loaded.vocabulary_path is None:
        raise SpecdecError(
            f"{target} has no vocabulary of pieces, which its sources are read with: give a folder "
            "in our own format, or a shipped model's name."
        )
    vocabulary = Vocabulary(loaded.vocabulary_path)
    model = loaded.model
    params = jax.tree.map(lambda x: x.astype(jnp.float32), model.params)
    encoded = np.zeros((len(parted), length), np.int32)
    given = np.zeros((len(parted), 1 + max(index for _, index in parted)), np.int32)
    for line, (row, index) in enumerate(parted):
        ids = [*vocabulary.encode(sources[row])[: length - 1], EOS_ID]
        encoded[line, : len(ids)] = ids
        given[line, 1 : index + 1] = plain[row][:index]
    full = jax.jit(Transformer(model.config).apply)({"params": params}, encoded, given)
    found = []
    for line, (row, index) in enumerate(parted):
        logits = np.asarray(full[line, index])
        second, first = np.sort(logits)[-2:]
        tokens = [ids[index] if index < len(ids) else None for ids in (plain[row], other[row])]
        between = None if None in tokens else float(abs(logits[tokens[0]] - logits[tokens[1]]))
        found.append(
            {
                "row": row,
                "position": index,
                "plain_token": tokens[0],
                "speculative_token": tokens[1],
                "margin": float(first - second),
                "between": between,
            }
        )
    return found
