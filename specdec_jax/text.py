"""Text to token ids and back: vocabularies, T5's task prefixes, batches of a few fixed lengths.

Every vocabulary here has T5's special ids (0 pads, 1 ends, 2 is unknown) and no start token: T5's
decoder starts from the pad id.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, SupportsInt, overload

import numpy as np
import numpy.typing as npt
import sentencepiece

from specdec_jax.errors import SpecdecError

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2

BUCKETS = (32, 64, 128, 256, 512)
"""Lengths that a batch is padded to: each is one compilation, and wastes at most half of a row."""

_TRANSLATE = "translate English to German: "
_SUMMARIZE = "summarize: "
PREFIXES = {
    "ende": _TRANSLATE,
    "descriptions_ende": _TRANSLATE,
    "debian_ende": _TRANSLATE,
    "summarize": _SUMMARIZE,
    "debian_synopsis": _SUMMARIZE,
}
"""T5's own prefixes (arXiv:1910.10683, appendix D), under the tasks' and the corpora's names."""


def prefix(task: str) -> str:
    """The words that tell a T5 model its task; they stand before every source.

    Raises:
        SpecdecError: the task has no prefix here.

    >>> prefix("ende") + "good morning"
    'translate English to German: good morning'
    """
    if task not in PREFIXES:
        raise SpecdecError(f"no prefix for the task {task!r}: choose one of {', '.join(PREFIXES)}.")
    return PREFIXES[task]


class Vocabulary:
    """The pieces of a sentencepiece model file.

    Attributes:
        path: the file.
        size: number of pieces V; a network's vocabulary may be larger, by padding.

    Raises:
        SpecdecError: no such file, not a sentencepiece model, or other special ids than T5's.
    """

    pad_id = PAD_ID
    eos_id = EOS_ID
    unk_id = UNK_ID

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        if not self.path.is_file():
            raise SpecdecError(
                f"no vocabulary file at {self.path}: give the path of a sentencepiece model "
                "(T5 names it spiece.model or sentencepiece.model)."
            )
        self._pieces = sentencepiece.SentencePieceProcessor()
        try:
            self._pieces.Load(str(self.path))
        except (RuntimeError, OSError) as error:
            raise SpecdecError(
                f"{self.path} is not a sentencepiece model ({error}): give the binary .model "
                "file, not the .vocab list beside it."
            ) from error
        special = (self._pieces.pad_id(), self._pieces.eos_id(), self._pieces.unk_id())
        if special != (PAD_ID, EOS_ID, UNK_ID):
            raise SpecdecError(
                f"{self.path} has pad, end and unknown ids {special}, T5 has "
                f"{(PAD_ID, EOS_ID, UNK_ID)}: give the vocabulary of a T5 model."
            )
        self.size = self._pieces.GetPieceSize()

    def encode(self, text: str) -> list[int]:
        """Ids of the text, without an end id; special pieces spelt in it are plain text."""
        return self._pieces.EncodeAsIds(text)

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Text of the ids before the first end id; a pad has no text.

        An id of a network's vocabulary padding has no piece and reads as the unknown one.
        """
        known = [i if 0 <= i < self.size else UNK_ID for i in _before_end(ids)]
        return self._pieces.DecodeIds(known)

    def piece(self, token_id: int) -> str:
        """The piece of an id as the model spells it: the meta space ▁ stands for a space."""
        return self._pieces.IdToPiece(token_id)


class ByteVocabulary:
    """ByT5's vocabulary (arXiv:2105.13626): a byte of UTF-8 is its value + 3; no file."""

    pad_id = PAD_ID
    eos_id = EOS_ID
    unk_id = UNK_ID
    size = 259

    def encode(self, text: str) -> list[int]:
        """Ids of the text's UTF-8 bytes, without an end id."""
        return [byte + 3 for byte in text.encode()]

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Text of the ids before the first end id.

        What is no byte is skipped: ids 0 to 2, ids of a network's vocabulary padding, and bytes
        that are not UTF-8, which a model may well generate.
        """
        return bytes(i - 3 for i in _before_end(ids) if 3 <= i < self.size).decode(errors="ignore")

    def piece(self, token_id: int) -> str:
        """The special piece's name, or the byte in the form `<0x41>`."""
        if token_id < 3:
            return ("<pad>", "</s>", "<unk>")[token_id]
        return f"<0x{token_id - 3:02X}>"


AnyVocabulary = Vocabulary | ByteVocabulary


def _before_end(ids: Iterable[SupportsInt]) -> list[int]:
    return list(itertools.takewhile(lambda i: i != EOS_ID, map(int, ids)))


def same_vocabulary(target: AnyVocabulary, draft: AnyVocabulary) -> None:
    """Checks that an id is the same piece to target and draft; verification rests on it.

    Raises:
        SpecdecError: they differ in size or in a piece.
    """
    remedy = "use a draft that was trained with the target's vocabulary."
    if target.size != draft.size:
        raise SpecdecError(
            f"the target's vocabulary has {target.size} pieces, the draft's {draft.size}: {remedy}"
        )
    for i in range(target.size):
        if target.piece(i) != draft.piece(i):
            raise SpecdecError(
                f"id {i} is {target.piece(i)!r} in the target's vocabulary and "
                f"{draft.piece(i)!r} in the draft's: {remedy}"
            )


def fingerprint(vocabulary: AnyVocabulary) -> str:
    """SHA-256 of all pieces in order: equal where `same_vocabulary` finds no difference."""
    digest = hashlib.sha256()
    for i in range(vocabulary.size):
        digest.update(vocabulary.piece(i).encode() + b"\0")
    return digest.hexdigest()


@overload
def encode_batch(
    vocabulary: AnyVocabulary,
    lines: Sequence[str],
    *,
    buckets: Sequence[int] = ...,
    first: int = ...,
    truncate: Literal[False] = ...,
) -> npt.NDArray[np.int32]: ...
@overload
def encode_batch(
    vocabulary: AnyVocabulary,
    lines: Sequence[str],
    *,
    buckets: Sequence[int] = ...,
    first: int = ...,
    truncate: Literal[True],
) -> tuple[npt.NDArray[np.int32], int]: ...
def encode_batch(
    vocabulary: AnyVocabulary,
    lines: Sequence[str],
    *,
    buckets: Sequence[int] = BUCKETS,
    first: int = 1,
    truncate: bool = False,
) -> npt.NDArray[np.int32] | tuple[npt.NDArray[np.int32], int]:
    """Ids of B lines, each closed by the end id and padded to a common length S.

    Args:
        vocabulary: its `encode` is applied to each line as it stands; add the prefix before.
        lines: one source each. An empty line is the end id alone: one line in, one line out.
        buckets: the lengths allowed, end id included; S is the smallest that fits every line.
        first: the number of the first line, for messages.
        truncate: cut a line that fits no bucket, keeping the end id, instead of raising.

    Returns:
        int32 [B, S]; with `truncate`, that and the number of lines that were cut.

    Raises:
        SpecdecError: a line fits no bucket and `truncate` is false.
    """
    longest = max(buckets)
    rows = [vocabulary.encode(line) for line in lines]
    cut = 0
    for number, row in enumerate(rows, start=first):
        if len(row) < longest:
            continue
        if not truncate:
            raise SpecdecError(
                f"line {number} has {len(row) + 1} tokens with its end, the longest bucket "
                f"{longest}: split the line, allow truncation, or give a longer bucket."
            )
        del row[longest - 1 :]
        cut += 1
    length = max((len(row) + 1 for row in rows), default=1)
    batch = np.full((len(rows), min(b for b in buckets if b >= length)), PAD_ID, np.int32)
    for ids, row in zip(batch, rows, strict=True):
        ids[: len(row)] = row
        ids[len(row)] = EOS_ID
    return (batch, cut) if truncate else batch


def require_unicode(line: str, number: int) -> None:
    """Refuse a line with lone surrogates, as which Python keeps a command line's foreign bytes.

    Raises:
        SpecdecError: with the line's number.
    """
    try:
        line.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SpecdecError(
            f"Line {number} is not Unicode (character {error.start}): give it in UTF-8."
        ) from error
