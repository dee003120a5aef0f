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
from specdec_jax.sampling.types import Int

Shapes = tuple[tuple[int, int], ...]

SHAPES: Shapes = ((12, 16), (20, 24), (32, 40), (48, 64), (72, 96), (104, 136))
"""Padded lengths of source and target; each pair is one compilation of the training step."""


class Batch(NamedTuple):
    """One batch. int32; 0 is padding."""

    source: Any
    """[B, S]; numpy outside of a compiled function, traced inside."""
    target: Any
    """[B, N], with the end token; the decoder's input is this shifted right behind a 0."""
    states: Any = None
    """[B, N, D], what a teacher's last layer makes of each position; see `distil.states`."""


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
    pairs: Iterable[tuple[str, str]],
    vocabulary: Encoder,
    prefix: str,
    *,
    longest: int | None = None,
) -> list[tuple[list[int], list[int]]]:
    """Turn texts into ids, each with the end token, the source behind T5's task prefix.

    A source of more than `longest` tokens is cut, and ends with the end token all the same.
    """
    end = vocabulary.eos_id
    cut = None if longest is None else longest - 1
    return [
        ([*vocabulary.encode(prefix + source)[:cut], end], [*vocabulary.encode(target), end])
        for source, target in pairs
    ]


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """Encoded pairs, grouped by length and shuffled anew in every epoch.

    Attributes:
        examples: (source ids, target ids) pairs; those that no shape holds are left out.
        tokens: padded tokens of a batch, source and target together.
        seed: of the shuffles.
        shapes: padded (source, target) lengths, rising; an example goes into the first that holds
            it.
        states: of each example, [N, D], when a teacher has seen them.

    Raises:
        SpecdecError: at the first use, when no example fits.
    """

    examples: Sequence[tuple[list[int], list[int]]]
    tokens: int = 2048
    seed: int = 0
    shapes: Shapes = SHAPES
    states: Sequence[np.ndarray] | None = None

    @functools.cached_property
    def _groups(self) -> list[tuple[tuple[int, int], np.ndarray]]:
        which = group(self.examples, self.shapes)
        groups = [(shape, np.flatnonzero(which == i)) for i, shape in enumerate(self.shapes)]
        groups = [(shape, members) for shape, members in groups if len(members)]
        if not groups:
            raise SpecdecError(
                f"None of the {len(self.examples)} examples fits into {self.shapes[-1]} tokens "
                "(source, target): give shorter texts or larger shapes."
            )
        return groups

    @functools.cached_property
    def per_epoch(self) -> int:
        """Batches in an epoch."""
        return sum(-(-len(members) // self._rows(shape)) for shape, members in self._groups)

    def _rows(self, shape: tuple[int, int]) -> int:
        return max(1, self.tokens // sum(shape))

    @functools.lru_cache(maxsize=2)  # noqa: B019  (frozen, and few instances live for the run)
    def _order(self, epoch: int) -> list[tuple[tuple[int, int], np.ndarray]]:
        rng = np.random.default_rng((self.seed, epoch))
        plan = []
        for shape, members in self._groups:
            rows = self._rows(shape)
            shuffled = rng.permutation(members)
            # The last batch of a group is filled from its front: one shape per group.
            shuffled = np.resize(shuffled, -(-len(shuffled) // rows) * rows)
            plan += [(shape, part) for part in shuffled.reshape(-1, rows)]
        return [plan[i] for i in rng.permutation(len(plan))]

    def __call__(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.per_epoch)
        shape, members = self._order(epoch)[index]
        batch = pad([self.examples[i] for i in members], shape)
        if self.states is None:
            return batch
        wide = np.zeros((*batch.target.shape, self.states[0].shape[1]), self.states[0].dtype)
        for row, i in enumerate(members):
            wide[row, : len(self.states[i])] = self.states[i]
        return batch._replace(states=wide)


def group(
    examples: Sequence[tuple[list[int], list[int]]], shapes: Shapes = SHAPES
) -> Int[np.ndarray, " E"]:
    """Return the number of the first shape that holds each example; len(shapes) where none does."""
    sizes = np.array([(len(s), len(t)) for s, t in examples]).reshape(-1, 2)
    fits = np.all(sizes[:, None, :] <= np.asarray(shapes), axis=-1)
    return np.where(fits.any(1), fits.argmax(1), len(shapes))


def held(
    examples: Sequence[tuple[list[int], list[int]]], shapes: Shapes = SHAPES
) -> list[tuple[list[int], list[int]]]:
    """Return the examples that a shape holds."""
    which = group(examples, shapes)
    return [example for example, i in zip(examples, which, strict=True) if i < len(shapes)]


def pad(examples: Sequence[tuple[list[int], list[int]]], shape: tuple[int, int]) -> Batch:
    """Lay examples out as one batch of a padded (source, target) shape."""
    source = np.zeros((len(examples), shape[0]), np.int32)
    target = np.zeros((len(examples), shape[1]), np.int32)
    for row, (s, t) in enumerate(examples):
        source[row, : len(s)] = s
        target[row, : len(t)] = t
    return Batch(source, target)
