"""Serving on many chips, on paper: which gamma at which batch, and what it does to throughput.

A replica is a target with its draft on a slice of a pod; replicas share nothing, so a thousand of
them are a thousand times one. Within one the batch decides: a call reads its weights once for all
rows, and as soon as batch times (gamma + 1) tokens take longer to multiply than the weights take to
read, guesses cost arithmetic that other rows could have used (Theorem 3.11 of arXiv:2211.17192
counts it), and speculation stops paying.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.sharding import AbstractMesh

from specdec_jax import theory
from specdec_jax.aot import roofline
from specdec_jax.aot.topology import Topology
from specdec_jax.bench.tables import markdown
from specdec_jax.decoding.loop import buffer_length
from specdec_jax.t5 import T5Config
from specdec_jax.t5.partitioning import DATA, MODEL

BATCHES = (1, 4, 16, 32, 64, 128, 256)
GAMMAS = range(16)


class Serving(NamedTuple):
    """One replica at one batch."""

    topology: str
    chips: int
    batch: int
    gamma: int
    """The one with the most tokens a second; 0 is plain decoding."""
    plain: float
    """Tokens a second of a row, without a draft."""
    speculative: float
    """Tokens a second of a row, with the draft and gamma."""
    hbm_bytes: int
    """Parameters and caches of one chip; activations come on top."""
    fits: bool

    @property
    def speedup(self) -> float:
        """Speculative over plain."""
        return self.speculative / self.plain

    @property
    def per_chip(self) -> float:
        """Tokens a second of all rows, for each chip."""
        return self.batch * self.speculative / self.chips


def serving(
    where: Topology,
    target: T5Config,
    draft: T5Config,
    *,
    alpha: float,
    batches: Sequence[int] = BATCHES,
    source_length: int = 512,
    max_tokens: int = 128,
) -> Iterator[Serving]:
    """Predict a replica at several batches.

    Every row is taken to be at work: a server would give an ended row's place to the next request,
    which this project does not do. Times are `roofline.seconds`: what chips wait for each other is
    left out. E[tokens] is equation (1).

    Args:
        where: the chips of one replica, all of them along the model's axis.
        target: sizes.
        draft: sizes.
        alpha: of the pair.
        batches: rows decoded together.
        source_length: S.
        max_tokens: L.
    """
    mesh = AbstractMesh((1, where.chips), (DATA, MODEL))
    weights = sum(
        leaf.elements for config in (target, draft) for leaf in roofline.leaves(config, mesh)
    )
    length = buffer_length(1, max_tokens, max(GAMMAS))

    for batch in batches:

        def seconds(config: T5Config, tokens: int, batch: int = batch):
            call = roofline.call(
                config,
                mesh,
                tokens=tokens,
                batch=batch,
                source_length=source_length,
                length=length,
            )
            return roofline.seconds(call, where)

        guess = seconds(draft, 1)
        rates = {
            gamma: float(theory.expected_tokens(alpha, gamma=gamma))
            / (seconds(target, gamma + 1) + gamma * guess)
            for gamma in GAMMAS
        }
        best = max(rates, key=lambda gamma: rates[gamma])
        held = roofline.DTYPE.itemsize * weights + sum(
            roofline.cache_bytes(config, mesh, batch=batch, slots=length + source_length)
            for config in (target, draft)
        )
        yield Serving(
            topology=where.name,
            chips=where.chips,
            batch=batch,
            gamma=best,
            plain=rates[0],
            speculative=rates[best],
            hbm_bytes=held,
            fits=held <= where.chip.memory,
        )


def table(rows: Sequence[Serving]) -> str:
    """Return replicas as a Markdown table; those that do not fit are left out."""
    header = [
        *("replica", "chips", "batch", "GB a chip", "best gamma", "tokens/s a row, plain"),
        *("with draft", "speedup", "tokens/s a chip"),
    ]
    return markdown(
        header,
        (
            (
                row.topology,
                row.chips,
                row.batch,
                f"{row.hbm_bytes / 1e9:.1f}",
                row.gamma,
                f"{row.plain:.0f}",
                f"{row.speculative:.0f}",
                f"{row.speedup:.2f}",
                f"{row.per_chip:,.0f}",
            )
            for row in rows
            if row.fits
        ),
    )


def as_records(rows: Sequence[Serving]) -> list[dict[str, Any]]:
    """Return replicas for a JSON record."""
    return [
        {**row._asdict(), "speedup": row.speedup, "tokens_per_second_per_chip": row.per_chip}
        for row in rows
    ]
