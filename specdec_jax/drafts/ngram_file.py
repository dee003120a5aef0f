"""n-gram tables in one file: safetensors, which hold no code, with a note of their vocabulary.

The array `unigram` [V], and of each level N the arrays `N/contexts` [C] (sorted codes, see
`context_code`), `N/kept` [C] (continuations of each), `N/tokens` and `N/probs` (those of all
contexts, one after the other), `N/rest` [C]. Ids and numbers up to 65,535 take two bytes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from specdec_jax.drafts.ngram import Continuations, NGramDraft
from specdec_jax.errors import SpecdecError
from specdec_jax.files import write_bytes

FORMAT = "specdec n-grams 1"
_PARTS = ("contexts", "kept", "tokens", "probs", "rest")


@dataclasses.dataclass(frozen=True)
class Tables:
    """What a file holds.

    Attributes:
        draft: the tables.
        vocabulary: fingerprint of the vocabulary whose ids were counted.
        notes: what the writer wanted to be remembered.
    """

    draft: NGramDraft
    vocabulary: str
    notes: Mapping[str, str]


def write(
    path: str | os.PathLike[str],
    draft: NGramDraft,
    *,
    vocabulary: str,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write tables, whole or not at all.

    Args:
        path: the file.
        draft: the tables.
        vocabulary: fingerprint of the vocabulary that its ids are of.
        notes: texts to be given back by `read`.

    Raises:
        SpecdecError: when the folder is missing or the disk is full.
    """
    arrays = {"unigram": np.asarray(draft.unigram, np.float32)}
    for number, level in enumerate(draft.levels, 1):
        probs = np.asarray(level.probs, np.float32)
        used = probs > 0
        parts = (
            np.asarray(level.contexts, np.int32),
            _narrow(used.sum(axis=1)),
            _narrow(np.asarray(level.tokens)[used]),
            probs[used],
            np.asarray(level.rest, np.float32),
        )
        arrays |= {f"{number}/{name}": part for name, part in zip(_PARTS, parts, strict=True)}
    about = {"format": FORMAT, "vocabulary": vocabulary}
    write_bytes(Path(path), safetensors.numpy.save(arrays, {**(notes or {}), **about}))


def _narrow(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(np.uint16 if numbers.max(initial=0) < 1 << 16 else np.int32)


def read(path: str | os.PathLike[str]) -> Tables:
    """Read tables.

    Raises:
        SpecdecError: the file holds something else, is cut short, or what it holds are no
            probabilities.
    """
    try:
        with safetensors.safe_open(os.fspath(path), framework="numpy") as file:
            about = dict(file.metadata() or {})
            if about.get("format") != FORMAT:
                raise SpecdecError(_foreign(path, about.get("format", "safetensors of other kind")))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise SpecdecError(_foreign(path, error)) from error
    del about["format"]
    vocabulary = about.pop("vocabulary", "")
    numbers = range(1, 1 + len(arrays) // len(_PARTS))
    if arrays.keys() != {"unigram", *(f"{n}/{part}" for n in numbers for part in _PARTS)}:
        raise SpecdecError(_damaged(path, f"it has other arrays than {len(numbers) + 1}-grams"))
    unigram = arrays["unigram"]
    if unigram.ndim != 1 or not (unigram > 0).all() or abs(unigram.sum() - 1) > 1e-3:
        raise SpecdecError(_damaged(path, "the unigram is no distribution over all ids"))
    levels = []
    for number in numbers:
        parts = [arrays[f"{number}/{part}"] for part in _PARTS]
        levels.append(_level(path, number, len(unigram), *parts))
    draft = NGramDraft(jnp.asarray(unigram, jnp.float32), tuple(levels))
    return Tables(draft, vocabulary, about)


def _level(
    path: str | os.PathLike[str],
    number: int,
    vocab_size: int,
    contexts: np.ndarray,
    kept: np.ndarray,
    tokens: np.ndarray,
    probs: np.ndarray,
    rest: np.ndarray,
) -> Continuations:
    """Lay one level out, unless it could not have been counted."""
    kept = kept.astype(np.int64)
    count = len(contexts)
    sound = (
        all(part.ndim == 1 for part in (contexts, kept, tokens, probs, rest))
        and len(kept) == len(rest) == count > 0
        and len(tokens) == len(probs) == kept.sum()
        and kept.min() > 0
        and bool((np.diff(contexts.astype(np.int64)) > 0).all())
        and 0 <= contexts[0] <= contexts[-1] < vocab_size**number
        and 0 <= tokens.min() <= tokens.max() < vocab_size
        and bool((probs > 0).all())
        and bool((rest >= 0).all())
    )
    if not sound:
        raise SpecdecError(_damaged(path, f"level {number} is no table of {vocab_size} ids"))
    row = np.repeat(np.arange(count), kept)
    place = row, np.arange(len(row)) - np.repeat(np.cumsum(kept) - kept, kept)
    ids = np.zeros((count, kept.max()), np.int32)
    shares = np.zeros(ids.shape, np.float32)
    ids[place], shares[place] = tokens, probs
    if np.abs(shares.sum(axis=1) + rest - 1).max() > 1e-3:
        raise SpecdecError(
            _damaged(path, f"level {number} has probabilities that are not 1 in all")
        )
    return Continuations(
        contexts=jnp.asarray(contexts, jnp.int32),
        tokens=jnp.asarray(ids),
        probs=jnp.asarray(shares),
        rest=jnp.asarray(rest, jnp.float32),
    )


def _foreign(path: str | os.PathLike[str], found: object) -> str:
    found = " ".join(str(found).split())
    return (
        f"{path} is no file of n-grams ({found}): give one that `specdec count` wrote, or the "
        "folder of a checkpoint."
    )


def _damaged(path: str | os.PathLike[str], what: str) -> str:
    return f"{path} is damaged: {what}; copy it again, or count anew with `specdec count`."
