"""Pairs of texts as batches of a few static shapes, in an order that a step number determines.

A run that was killed resumes at step n with exactly the batches that it would have seen, since
`Batches` is a function from the step to a batch and keeps no state.
"""

from __future__ import annotations

import dataclasses
import functools
import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from specdec_jax.errors import SpecdecError

LENGTHS = (16, 32, 48, 80, 128)
"""Padded lengths; each is one compilation of the training step."""


class Batch(NamedTuple):
    """One batch. int32; 0 is padding."""

    source: Any
    """[B, S]; numpy outside of a compiled function, traced inside."""
    target: Any
    """[B, N], with the end token; the decoder's input is this shifted right behind a 0."""


class Encoder(Protocol):
    """What turns text into ids: `specdec_jax.text.Vocabulary`, or a test's double."""

    eos_id: int

    def encode(self, text: str) -> list[int]:
        """Return ids without the end token."""
        ...


def read_pairs(path: Path | str) -> list[tuple[str, str]]:
    """Read `source TAB target` lines, plain or xz-compressed.

    Raises:
        SpecdecError: for a missing file or a line without exactly one tab.
    """
    path = Path(path)
    if not path.is_file():
        raise SpecdecError(f"No training text at {path}; scripts/build_data.sh makes it.")
    opener = lzma.open if path.suffix == ".xz" else open
    pairs = []
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 2:
                raise SpecdecError(
                    f"Line {number} of {path} has {len(fields)} fields; "
                    "each line needs a source, one tab and a target."
                )
            pairs.append((fields[0], fields[1]))
    return pairs


def encode_pairs(
    pairs: Iterable[tuple[str, str]], vocabulary: Encoder, prefix: str
) -> list[tuple[list[int], list[int]]]:
    """Turn texts into ids, each with the end token, the source behind T5's task prefix."""
    end = vocabulary.eos_id
    return [
        ([*vocabulary.encode(prefix + source), end], [*vocabulary.encode(target), end])
        for source, target in pairs
    ]


@dataclasses.dataclass(frozen=True)
class Batches:
    """Encoded pairs, grouped by length and shuffled anew in every epoch.

    Attributes:
        examples: (source ids, target ids) pairs; those beyond the last length are left out.
        tokens: padded target tokens of a batch, so rows = tokens // length.
        seed: of the shuffles.
        lengths: padded lengths, source and target alike.
    """

    examples: Sequence[tuple[list[int], list[int]]]
    tokens: int = 1024
    seed: int = 0
    lengths: tuple[int, ...] = LENGTHS

    @functools.cached_property
    def _groups(self) -> list[tuple[int, np.ndarray]]:
        longest = np.array([max(len(s), len(t)) for s, t in self.examples])
        which = np.searchsorted(self.lengths, longest)
        groups = [(n, np.flatnonzero(which == i)) for i, n in enumerate(self.lengths)]
        return [(n, members) for n, members in groups if len(members)]

    @functools.cached_property
    def per_epoch(self) -> int:
        """Batches in an epoch."""
        return sum(-(-len(members) // self._rows(n)) for n, members in self._groups)

    def _rows(self, length: int) -> int:
        return max(1, self.tokens // length)

    @functools.lru_cache(maxsize=2)  # noqa: B019  (frozen, and one instance lives for the run)
    def _order(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        rng = np.random.default_rng((self.seed, epoch))
        plan = []
        for length, members in self._groups:
            rows = self._rows(length)
            shuffled = rng.permutation(members)
            # The last batch of a group is filled from its front: one shape per length.
            shuffled = np.resize(shuffled, -(-len(shuffled) // rows) * rows)
            plan += [(length, part) for part in shuffled.reshape(-1, rows)]
        return [plan[i] for i in rng.permutation(len(plan))]

    def __call__(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.per_epoch)
        length, members = self._order(epoch)[index]
        return pad([self.examples[i] for i in members], length)

    def __hash__(self):
        return id(self)


def pad(examples: Sequence[tuple[list[int], list[int]]], length: int) -> Batch:
    """Lay examples out as one padded batch."""
    source = np.zeros((len(examples), length), np.int32)
    target = np.zeros((len(examples), length), np.int32)
    for row, (s, t) in enumerate(examples):
        source[row, : len(s)] = s
        target[row, : len(t)] = t
    return Batch(source, target)


@dataclasses.dataclass(frozen=True)
class CopyBatches:
    """Sequences of random ids to be copied, which teach cross-attention to look at its source.

    A small model that starts on text alone becomes a language model of the target side and never
    learns to read the source; a few hundred steps of this first make the difference.

    Attributes:
        ids: ids are drawn from [first, first + ids), growing to `vocab_size` over `widen` steps.
        vocab_size: V.
        widen: steps after which all ids are in play.
        rows: of a batch.
        length: longest sequence, and the padded length.
        first: lowest id, above the special ones.
        seed: of the draws.
    """

    ids: int
    vocab_size: int
    widen: int
    rows: int = 48
    length: int = 16
    first: int = 3
    seed: int = 0

    def __call__(self, step: int) -> Batch:
        """Return the batch of a step."""
        rng = np.random.default_rng((self.seed, step))
        share = min(1.0, step / max(1, self.widen))
        limit = int(self.ids + share * (self.vocab_size - self.first - self.ids))
        lengths = rng.integers(self.length // 2, self.length, self.rows)
        examples = []
        for n in lengths:
            ids = [*(self.first + rng.integers(0, limit, n)).tolist(), 1]
            examples.append((ids, ids))
        return pad(examples, self.length)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Two streams in one: every `period`-th step comes from the second."""

    main: Batches
    other: CopyBatches | Batches
    period: int

    def __call__(self, step: int) -> Batch:
        """Return the batch of a step."""
        turn, phase = divmod(step, self.period)
        if phase == self.period - 1:
            return self.other(turn)
        return self.main(turn * (self.period - 1) + phase)
