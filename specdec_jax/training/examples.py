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
from typing import Any, NamedTuple, Protocol, runtime_checkable

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


@runtime_checkable
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


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """Encoded pairs, grouped by length and shuffled anew in every epoch.

    Attributes:
        examples: (source ids, target ids) pairs; those beyond the last length are left out.
        tokens: padded target tokens of a batch, so rows = tokens // length.
        seed: of the shuffles.
        lengths: padded lengths, source and target alike.

    Raises:
        SpecdecError: at the first use, when no example fits.
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
        groups = [(n, members) for n, members in groups if len(members)]
        if not groups:
            raise SpecdecError(
                f"None of the {len(self.examples)} examples fits into {self.lengths[-1]} tokens: "
                "give shorter texts or larger lengths."
            )
        return groups

    @functools.cached_property
    def per_epoch(self) -> int:
        """Batches in an epoch."""
        return sum(-(-len(members) // self._rows(n)) for n, members in self._groups)

    def _rows(self, length: int) -> int:
        return max(1, self.tokens // length)

    @functools.lru_cache(maxsize=2)  # noqa: B019  (frozen, and few instances live for the run)
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


def pad(examples: Sequence[tuple[list[int], list[int]]], length: int) -> Batch:
    """Lay examples out as one padded batch."""
    source = np.zeros((len(examples), length), np.int32)
    target = np.zeros((len(examples), length), np.int32)
    for row, (s, t) in enumerate(examples):
        source[row, : len(s)] = s
        target[row, : len(t)] = t
    return Batch(source, target)
