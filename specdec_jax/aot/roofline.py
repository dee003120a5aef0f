"""What a decoder call takes at least: the bytes that it reads, over the bandwidth, and a latency.

At batch 1 a call of a few tokens does some 2 operations for each byte that it reads, of which a TPU
could do hundreds, so reading decides. Beside it stands a time for each layer that no size explains
(`topology.LAYER_SECONDS`); for small drafts it is most of their time.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P

from specdec_jax import theory
from specdec_jax.aot.program import DTYPE, parameters
from specdec_jax.aot.topology import LAYER_SECONDS, Topology
from specdec_jax.bench import paper_tables
from specdec_jax.t5 import T5Config
from specdec_jax.t5.partitioning import MODEL, parameter_specs

_WIDTH = DTYPE.itemsize


class Leaf(NamedTuple):
    """One parameter, as one chip holds it."""

    path: tuple[str, ...]
    """Its names in the tree; `layers_0` for the like of all layers."""
    elements: int

    @property
    def is_matrix(self) -> bool:
        """Whether it is a matrix that the network multiplies with or looks tokens up in."""
        return self.path[-1] in {"kernel", "embedding"}


@functools.cache
def leaves(config: T5Config, mesh: Mesh | AbstractMesh) -> tuple[Leaf, ...]:
    """Return every parameter of a T5, of one chip's size."""
    # The layers of a stack are alike: one of each is enough to know them all.
    depth = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
    single = dataclasses.replace(config, num_encoder_layers=1, num_decoder_layers=1)
    specs = parameter_specs(single, mesh)
    flat = jax.tree_util.tree_leaves_with_path(specs, is_leaf=lambda x: isinstance(x, P))
    shapes = jax.tree.leaves(parameters(single))
    found = []
    for (path, spec), shape in zip(flat, shapes, strict=True):
        parts = math.prod(mesh.shape[axis] for axis in spec if axis is not None)
        names = tuple(str(key.key) for key in path)
        leaf = Leaf(names, math.prod(shape.shape) // parts)
        found += [leaf] * (depth[names[0]] if "layers_0" in names else 1)
    return tuple(found)


def read_by_a_step(config: T5Config, leaf: Leaf) -> bool:
    """Return whether each decoder call reads the whole parameter.

    It does not read the encoder's, the keys and values of cross-attention, which are projected
    once, the embedding but for a row for each token (unless it gives the logits), nor the relative
    bias, which is laid out once.
    """
    if leaf.path[0] == "token_embedder":
        return config.logits_via_embedding
    once = {"rel_embedding"}
    if "encoder_decoder_attention" in leaf.path:
        once |= {"key", "value"}
    return leaf.path[0] == "decoder" and not once & set(leaf.path)


class Call(NamedTuple):
    """A decoder call, on one chip."""

    weight_bytes: int
    cache_bytes: int
    """Keys and values of self- and cross-attention, whole: also slots that are masked."""
    flops: int
    layers: int

    @property
    def bytes(self) -> int:
        """All that it reads."""
        return self.weight_bytes + self.cache_bytes


def call(
    config: T5Config,
    mesh: Mesh | AbstractMesh,
    *,
    tokens: int,
    batch: int,
    source_length: int,
    length: int,
) -> Call:
    """Return what `extend` of some tokens reads and computes.

    Args:
        config: sizes.
        mesh: 1 x chips.
        tokens: N, of each row.
        batch: B.
        source_length: S.
        length: T, slots of the cache.
    """
    whole = [leaf for leaf in leaves(config, mesh) if read_by_a_step(config, leaf)]
    matrices = sum(leaf.elements for leaf in whole if leaf.is_matrix)
    return Call(
        weight_bytes=_WIDTH * sum(leaf.elements for leaf in whole),
        cache_bytes=cache_bytes(config, mesh, batch=batch, slots=length + source_length),
        # Attention adds 4 N T H K for each layer, a thousandth of it.
        flops=2 * batch * tokens * matrices,
        layers=config.num_decoder_layers,
    )


def cache_bytes(config: T5Config, mesh: Mesh | AbstractMesh, *, batch: int, slots: int) -> int:
    """Return the bytes of keys and values of so many slots, in all layers, on one chip."""
    each = 2 * batch * heads(config, mesh) * slots * config.head_dim
    return _WIDTH * config.num_decoder_layers * each


def heads(config: T5Config, mesh: Mesh | AbstractMesh) -> int:
    """Return the heads of one chip: all where the chips do not divide them."""
    chips = mesh.shape[MODEL]
    return config.num_heads // (chips if config.num_heads % chips == 0 else 1)


def seconds(call: Call, where: Topology, *, layer_seconds: float = LAYER_SECONDS) -> float:
    """Return what the call takes at least: reading or computing, and a time for each layer."""
    busy = max(call.bytes / where.chip.bandwidth, call.flops / where.chip.flops)
    return busy + call.layers * layer_seconds


class Costs(NamedTuple):
    """A target, a draft and gamma on a topology; seconds."""

    step_seconds: float
    """Target, one token."""
    verify_seconds: float
    """Target, gamma + 1 tokens."""
    draft_seconds: float
    """Draft, one token."""

    @property
    def c(self) -> float:
        """Definition 3.7."""
        return float(theory.cost_ratio(self.draft_seconds, target=self.step_seconds))

    @property
    def v(self) -> float:
        """The verifying call over the step."""
        return float(theory.cost_ratio(self.verify_seconds, target=self.step_seconds))


def table2(draft: str, costs_at: Any) -> Iterator[dict[str, Any]]:
    """Predict the paper's Table 2 for one draft, from the paper's alphas.

    Args:
        draft: small, base or large.
        costs_at: gamma -> `Costs`.

    Yields:
        Rows with the task, the paper's gamma, alpha, EXP and EMP, and the speedup predicted.
    """
    for row in paper_tables.table4():
        if row["draft"] == draft:
            costs = costs_at(row["gamma"])
            gain = theory.walltime_improvement(
                row["alpha"], gamma=row["gamma"], c=costs.c, v=costs.v
            )
            kept = ("task", "draft", "temperature", "gamma", "alpha", "paper_exp", "paper_emp")
            yield {key: row[key] for key in kept} | {
                "c": costs.c,
                "v": costs.v,
                "predicted_speedup": float(gain),
            }
