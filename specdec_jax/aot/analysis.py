"""From a decode and a topology to a record: memory, what a round moves, and what it takes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

from jax.sharding import AbstractMesh, Mesh

from specdec_jax.aot import hlo, roofline
from specdec_jax.aot.program import (
    DRAFT,
    DTYPE,
    TARGET,
    Decode,
    OutOfMemory,
    Program,
    compile_decode,
)
from specdec_jax.aot.topology import LAYER_SECONDS, Topology, make_mesh
from specdec_jax.bench.record import provenance
from specdec_jax.decoding import Options
from specdec_jax.decoding.loop import buffer_length
from specdec_jax.t5 import T5Config, preset
from specdec_jax.t5.partitioning import DATA, MODEL

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """One program: a pair, or a target alone, on a topology.

    Attributes:
        where: chips.
        target: name of a preset, as `xxl`.
        draft: likewise; None is plain decoding.
        gamma: guesses of a round.
        batch: B.
        source_length: S, tokens of a source.
        max_tokens: L, room for generated tokens.
        automatic_layouts: whether the compiler chooses the parameters' layouts.
    """

    where: Topology
    target: str
    draft: str | None
    gamma: int
    batch: int = 1
    source_length: int = 512
    max_tokens: int = 128
    automatic_layouts: bool = True

    @property
    def name(self) -> str:
        """Return a name for files, as `v5e_2x2_xxl_small_gamma7`."""
        end = "plain" if self.draft is None else f"{self.draft}_gamma{self.gamma}"
        place = self.where.name.replace(":", "_")
        name = f"{place}_{self.target}_{end}" + ("" if self.automatic_layouts else "_row_major")
        for short, field in (("b", "batch"), ("s", "source_length"), ("l", "max_tokens")):
            if getattr(self, field) != getattr(Case, field):
                name += f"_{short}{getattr(self, field)}"
        return name

    def decode(self) -> Decode:
        """Return what is to be compiled.

        Raises:
            SpecdecError: for an unknown preset, or sizes below 1.
        """
        plain = self.draft is None
        return Decode(
            target=preset(self.target),
            draft=None if self.draft is None else preset(self.draft),
            options=Options(max_tokens=self.max_tokens, gamma=0 if plain else self.gamma),
            batch=self.batch,
            source_length=self.source_length,
            automatic_layouts=self.automatic_layouts,
        )


def run(case: Case, say: Callable[[str], None]) -> Record:
    """Compile a case and return its record.

    Args:
        case: what and where.
        say: takes a line for who waits.

    Raises:
        SpecdecError: when libtpu is missing, or a preset is unknown.
    """
    what = case.decode()
    mesh = make_mesh(case.where)
    say(f"{case.name}: compiling (minutes)")
    begun = time.perf_counter()
    program = compile_decode(what, mesh)
    took = time.perf_counter() - begun
    found = record(case, what, mesh, program)
    found["compile_seconds"] = round(took, 1)
    if isinstance(program, Program):
        say(f"{case.name}: compiled in {took:.0f} s, {program.memory.peak / 1e9:.2f} GB a chip")
    else:
        say(f"{case.name}: refused in {took:.0f} s, for it does not fit")
    versions = {"libtpu": metadata.version("libtpu")}
    origin = provenance(0)
    return found | origin | {"versions": origin["versions"] | versions}


def of_shapes(case: Case) -> Record:
    """Return what needs no compiler: bytes of parameters and caches, times, predictions."""
    mesh = AbstractMesh((1, case.where.chips), (DATA, MODEL))
    return record(case, case.decode(), mesh, None) | provenance(0)


def record(
    case: Case, what: Decode, mesh: Mesh | AbstractMesh, program: Program | OutOfMemory | None
) -> Record:
    """Return all that is known of a program, or of one that was not compiled (None)."""
    limit = case.where.chip.memory
    length = buffer_length(1, what.options.max_tokens, what.options.gamma)
    models = [what.target] + ([] if what.draft is None else [what.draft])
    slots = length + what.source_length
    leaves = [leaf for config in models for leaf in roofline.leaves(config, mesh)]
    weights = DTYPE.itemsize * sum(leaf.elements for leaf in leaves)
    caches = sum(
        roofline.cache_bytes(config, mesh, batch=what.batch, slots=slots) for config in models
    )
    found: Record = {
        "topology": case.where.name,
        "chips": case.where.chips,
        "target": case.target,
        "draft": case.draft,
        "gamma": what.options.gamma,
        "batch": what.batch,
        "source_length": what.source_length,
        "max_tokens": what.options.max_tokens,
        "dtype": DTYPE.name,
        "layouts": "automatic" if what.automatic_layouts else "row_major",
    }
    found["compiled"] = program is not None
    if isinstance(program, Program):
        memory = program.memory._asdict()
        fits = memory["peak"] <= limit
        found["loop"] = loop(program.text, models, mesh, what, length)
    elif program is None:
        # Activations and what the compiler keeps beside come on top: what has no room is known.
        memory, found["loop"] = {}, None
        fits = None if weights + caches <= limit else False
    else:
        memory = {"refused": program.used or None, "usable": program.limit or None}
        fits, found["loop"] = False, None
    found["hbm_bytes_per_chip"] = {
        "limit": limit,
        "fits": fits,
        "parameters": weights,
        "caches": caches,
        **memory,
    }
    return found | times(case, what, mesh)


def loop(
    text: str, models: list[T5Config], mesh: Mesh | AbstractMesh, what: Decode, length: int
) -> Record:
    """Return what a round does, from the program's text."""
    module = hlo.parse(text)
    body = hlo.loop_of(module)
    leaves = [leaf for config in models for leaf in roofline.leaves(config, mesh)]
    weights = {leaf.elements for leaf in leaves if leaf.is_matrix}
    caches = {
        (what.batch, roofline.heads(config, mesh), slots, config.head_dim)
        for config in models
        for slots in (length, what.source_length)
    }
    moved = [shape for _, shape in hlo.moves(module, body)]
    # A cache may have as many elements as a matrix, but has four dimensions.
    of_caches = [shape for shape in moved if shape.dims in caches]
    of_weights = [s for s in moved if s.elements in weights and s.dims not in caches]
    sent = hlo.collectives(module, body)
    return {
        "weight_copies": len(of_weights),
        "weight_copy_bytes": sum(shape.bytes for shape in of_weights),
        "cache_copies": len(of_caches),
        "largest_move_bytes": moved[0].bytes if moved else 0,
        "widened_weight_bytes": sum(shape.bytes for shape in hlo.widened(body, weights)),
        "collectives": sent,
        "collective_count": sum(kind["count"] for kind in sent.values()),
        "collective_bytes": sum(kind["bytes"] for kind in sent.values()),
        "compiler_cycles": hlo.cycles(module, body, (TARGET, DRAFT)),
    }


def times(case: Case, what: Decode, mesh: Mesh | AbstractMesh) -> Record:
    """Return the least times of the calls, and what they predict; without a draft the step's."""
    length = buffer_length(1, what.options.max_tokens, what.options.gamma)

    def call(config: T5Config, tokens: int) -> roofline.Call:
        return roofline.call(
            config,
            mesh,
            tokens=tokens,
            batch=what.batch,
            source_length=what.source_length,
            length=length,
        )

    def costs(gamma: int, layer_seconds: float = LAYER_SECONDS) -> roofline.Costs:
        assert what.draft is not None
        calls = (call(what.target, 1), call(what.target, gamma + 1), call(what.draft, 1))
        return roofline.Costs(
            *(roofline.seconds(each, case.where, layer_seconds=layer_seconds) for each in calls)
        )

    step = call(what.target, 1)
    found: Record = {
        "assumed": {
            "bandwidth": case.where.chip.bandwidth,
            "flops": case.where.chip.flops,
            "layer_seconds": LAYER_SECONDS,
        },
        "step_bytes": step._asdict() | {"seconds": roofline.seconds(step, case.where)},
    }
    if what.draft is None:
        return found
    with_latency, without = costs(what.options.gamma), costs(what.options.gamma, 0.0)
    return found | {
        "draft_bytes": call(what.draft, 1)._asdict(),
        "verify_bytes": call(what.target, what.options.gamma + 1)._asdict(),
        "costs": with_latency._asdict() | {"c": with_latency.c, "v": with_latency.v},
        "costs_of_bytes_alone": without._asdict() | {"c": without.c, "v": without.v},
        "table2": list(roofline.table2(case.draft or "", costs)),
    }
