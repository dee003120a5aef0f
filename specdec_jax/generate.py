"""The front door: lines of text in, lines of text out, and how they came about."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from specdec_jax import text
from specdec_jax.decoding import (
    Decoded,
    Finish,
    autoregressive,
    request,
    speculative,
)
from specdec_jax.decoding import require_finite as require_finite
from specdec_jax.errors import SpecdecError
from specdec_jax.pairs import Pair as Pair
from specdec_jax.pairs import load_draft as load_draft
from specdec_jax.pairs import load_pair as load_pair
from specdec_jax.settings import Settings as Settings
from specdec_jax.t5 import shard_rows

_CHECKED = 1024  # lines that are encoded together to be measured


@dataclasses.dataclass(frozen=True)
class Line:
    """One line's output."""

    source: str
    text: str
    tokens: list[int]
    """End token included."""
    scores: list[float]
    """log p of each token under the target."""
    finish: Finish
    target_runs: int
    drafted: int
    tested: int
    accepted: int
    rounds: list[tuple[list[int], int, int]] | None
    """(guesses, how many were accepted, the extra token or 0) of each round, when recorded."""

    def as_dict(self) -> dict[str, object]:
        """Return the line for a JSON record."""
        return {
            "source": self.source,
            "text": self.text,
            "tokens": self.tokens,
            "scores": [round(s, 6) for s in self.scores],
            "finish": self.finish.name.lower(),
            "target_runs": self.target_runs,
            "drafted": self.drafted,
            "tested": self.tested,
            "accepted": self.accepted,
        }


def decode(
    pair: Pair, source: np.ndarray, settings: Settings, *, numbers: np.ndarray, limits: np.ndarray
) -> Decoded:
    """Decode one padded batch of sources.

    Args:
        pair: the models.
        source: int32 [B, S].
        settings: how.
        numbers: [B], a number for each line, from which its key is made: a line's samples do not
            depend on the batch that it happens to be in. (With `gammas` another batch may choose
            others: the same law, and with the coupled rule or greedy the same tokens.)
        limits: [B], most tokens of each line; 0 for rows that only fill the batch.
    """
    function, arguments = program(pair, source, settings, numbers=numbers, limits=limits)
    decoded = function(*arguments)
    return decoded if pair.mesh is None else _gathered(decoded, len(source), pair.mesh)


def program(
    pair: Pair, source: np.ndarray, settings: Settings, *, numbers: np.ndarray, limits: np.ndarray
) -> tuple[Any, tuple[Any, ...]]:
    """Return the jitted function that decodes a batch, and its arguments; see `decode`.

    Raises:
        SpecdecError: for guesses without a draft.
    """
    if settings.gamma and pair.draft is None:
        raise SpecdecError(f"gamma is {settings.gamma}, but there is no draft: name one, or set 0.")
    options = settings.options(pair.vocabulary.eos_id)
    if pair.mesh is not None:
        # Rows that have nothing to do, until the mesh divides them.
        extra = (0, -len(source) % pair.mesh.shape["data"])
        source, numbers, limits = (
            np.pad(source, (extra, (0, 0))),
            np.pad(numbers, extra),
            np.pad(limits, extra),
        )
    seed = jax.random.key(settings.seed, impl="threefry2x32")
    keys = jax.vmap(jax.random.fold_in, (None, 0))(seed, numbers)
    asked = request(
        len(source),
        key=keys,
        max_tokens=settings.max_tokens,
        limits=limits,
        settings=settings.sampling(len(source)),
        draft_settings=settings.draft_sampling(len(source)),
    )
    tokens = jnp.asarray(source)
    if pair.mesh is not None:
        tokens, asked = shard_rows((tokens, asked), pair.mesh)
    # Costs are the whole batch's, and not split with its rows.
    asked = asked._replace(pace=settings.pace())
    if settings.gamma:
        return speculative, (pair.target, pair.draft, tokens, asked, options)
    return autoregressive, (pair.target, tokens, asked, options)


@functools.partial(jax.jit, static_argnames=("rows", "mesh"))
def _gathered(decoded: Decoded, rows: int, mesh: Mesh) -> Decoded:
    """Return the rows that were asked for, whole on every device: a host sees only its own ones."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x[:rows], everywhere), decoded)


def generate(
    pair: Pair,
    lines: Sequence[str],
    settings: Settings | None = None,
    *,
    prefix: str | None = None,
    truncate: bool = False,
    first: int = 0,
) -> Iterator[Line]:
    """Decode lines in order, a batch at a time; one line in, one line out.

    Args:
        pair: from `load_pair`.
        lines: sources without prefix.
        settings: how to decode; `Settings()` when left out.
        prefix: put before each line; T5's for translation into German when left out.
        truncate: cut lines that are longer than the longest bucket instead of refusing them.
        first: how many lines to leave out, whole batches of them; the others' results are what
            they are without it.

    Yields:
        One result for each line, as soon as its batch is done.

    Raises:
        SpecdecError: before anything is decoded, for a line that is too long or not Unicode, or a
            `first` amid a batch.
    """
    settings = Settings() if settings is None else settings
    prefix = text.prefix("ende") if prefix is None else prefix
    for number, line in enumerate(lines, 1):
        text.require_unicode(line, number)
    encode = functools.partial(text.encode_batch, pair.vocabulary)
    if not truncate:
        # All of them, so that a bad one fails early; not at once, since there may be millions.
        for start in range(0, len(lines), _CHECKED):
            checked = lines[start : start + _CHECKED]
            encode([prefix + line for line in checked], first=start + 1)
    size = settings.batch_size
    if first % size and first != len(lines):
        raise SpecdecError(
            f"The first {first} lines are no whole batches of {size}: leave out a multiple of that."
        )
    for start in range(first, len(lines), size):
        part = lines[start : start + size]
        filled = [prefix + line for line in part] + [""] * (size - len(part))
        source = encode(filled, truncate=True)[0]
        decoded = decode(
            pair,
            source,
            settings,
            numbers=np.arange(start, start + size),
            # A batch that is not full is filled with rows that have nothing to do, since another
            # batch size would be another compilation.
            limits=np.where(np.arange(size) < len(part), settings.max_tokens, 0),
        )
        yield from unpack(decoded, part, pair.vocabulary)


def unpack(decoded: Decoded, lines: Sequence[str], vocabulary: text.AnyVocabulary) -> list[Line]:
    """Turn arrays into one `Line` for each line of text."""
    host: Decoded = jax.device_get(decoded)
    found = []
    for row, source in enumerate(lines):
        count = int(host.lengths[row])
        ids = [int(t) for t in host.tokens[row, :count]]
        rounds = None
        if host.rounds is not None:
            rounds = [
                (
                    host.rounds.drafted[row, r, : host.rounds.gammas[row, r]].tolist(),
                    int(host.rounds.accepted[row, r]),
                    int(host.rounds.extra[row, r]),
                )
                for r in range(int(host.counters.target_runs[row]))
            ]
        found.append(
            Line(
                source=source,
                text=vocabulary.decode(ids),
                tokens=ids,
                scores=[float(s) for s in host.scores[row, :count]],
                finish=Finish(int(host.finish[row])),
                target_runs=int(host.counters.target_runs[row]),
                drafted=int(host.counters.drafted[row]),
                tested=int(host.counters.tested[row].sum()),
                accepted=int(host.counters.accepted[row].sum()),
                rounds=rounds,
            )
        )
    return found
