"""The whole decode as a program for a TPU: shapes in, an executable's text and memory out.

Nothing of a model's size is ever allocated: parameters are shapes, from `jax.eval_shape` to the
compiler.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from specdec_jax.bench.memory import Memory, memory_of
from specdec_jax.decoding import LanguageModel, Options, autoregressive, request, speculative
from specdec_jax.drafts import ModelDraft
from specdec_jax.sampling.types import Array, Float, Int
from specdec_jax.t5 import MeshedT5, T5Config, Transformer, t5
from specdec_jax.t5.partitioning import DATA, parameter_specs

DTYPE = jnp.dtype("bfloat16")
TARGET, DRAFT = "target", "draft"
"""Name scopes of the two models' calls in a round."""


@dataclasses.dataclass(frozen=True)
class Decode:
    """What is decoded.

    Attributes:
        target: sizes.
        draft: sizes; None is plain decoding.
        options: of the loop; gamma 0 where there is no draft.
        batch: B.
        source_length: S.
        automatic_layouts: whether the compiler chooses how parameters lie in memory; otherwise
            they are row-major.
    """

    target: T5Config
    draft: T5Config | None
    options: Options
    batch: int = 1
    source_length: int = 512
    automatic_layouts: bool = True


class Program(NamedTuple):
    """What the compiler made."""

    text: str
    memory: Memory


class OutOfMemory(NamedTuple):
    """What the compiler refused, in bytes of one chip; 0 where it does not say."""

    used: int
    limit: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Scoped:
    """A model whose calls in a round carry a name, by which they are found in the program."""

    model: LanguageModel
    name: str = dataclasses.field(metadata={"static": True})

    @property
    def vocab_size(self) -> int:
        """V of the model."""
        return self.model.vocab_size

    def start(self, source: Int[Array, "B S"], length: int) -> Any:
        """Read the source."""
        return self.model.start(source, length)

    def extend(
        self, state: Any, tokens: Int[Array, "B N"], position: Int[Array, " B"]
    ) -> tuple[Float[Array, "B N V"], Any]:
        """Read tokens under the name."""
        with jax.named_scope(self.name):
            return self.model.extend(state, tokens, position)


def parameters(config: T5Config) -> Any:
    """Return the shapes of a T5's parameters, in bfloat16."""
    ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    made = jax.eval_shape(Transformer(config).init, jax.random.key(0), ids, ids)["params"]
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, DTYPE), made)


def model(config: T5Config, mesh: Mesh) -> MeshedT5:
    """Return a T5 on a mesh whose parameters are shapes, computing in bfloat16."""
    config = dataclasses.replace(config, dtype=DTYPE)
    return MeshedT5(t5(parameters(config), config), mesh)


def formats(config: T5Config, mesh: Mesh, *, automatic: bool) -> Any:
    """Return where each parameter lies: its sharding, and the compiler's layout or row-major."""

    def place(spec: P) -> Any:
        sharding = NamedSharding(mesh, spec)
        return Format(Layout.AUTO, sharding) if automatic else sharding

    specs = parameter_specs(config, mesh)
    return jax.tree.map(place, specs, is_leaf=lambda x: isinstance(x, P))


def compile_decode(what: Decode, mesh: Mesh) -> Program | OutOfMemory:
    """Compile `speculative`, or `autoregressive` where there is no draft, for the mesh's devices.

    This takes minutes for the largest models.
    """
    source = jax.ShapeDtypeStruct((what.batch, what.source_length), jnp.int32)
    # The one thing that is made: some numbers for each row.
    asked = request(what.batch, key=jax.random.key(0), max_tokens=what.options.max_tokens)
    given, tree = jax.tree.flatten(asked)
    given = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in given]

    def placed(config: T5Config, name: str) -> tuple[Any, Any]:
        whole = model(config, mesh)
        where = formats(config, mesh, automatic=what.automatic_layouts)
        laid = dataclasses.replace(whole.model, params=where)
        return Scoped(whole, name), Scoped(dataclasses.replace(whole, model=laid), name)

    target, laid = placed(what.target, TARGET)
    models: list[Any] = [target]
    where: list[Any] = [laid]
    if what.draft is not None:
        draft, laid = placed(what.draft, DRAFT)
        models.append(ModelDraft(draft))
        where.append(ModelDraft(laid))

    def run(models, source, given):
        decode = speculative if what.draft is not None else autoregressive
        return decode(*models, source, jax.tree.unflatten(tree, given), what.options)

    rows = NamedSharding(mesh, P(DATA))
    jitted = jax.jit(run, in_shardings=(where, rows, [rows] * len(given)))
    return compiled_or_refused(jitted.lower(models, source, given).compile)


def compiled_or_refused(compile: Callable[[], jax.stages.Compiled]) -> Program | OutOfMemory:
    """Compile, and tell a program that does not fit from one that is wrong."""
    try:
        compiled = compile()
    except jax.errors.JaxRuntimeError as error:
        refused = out_of_memory(str(error))
        if refused is None:
            raise
        return refused
    text, found = compiled.as_text(), compiled.memory_analysis()
    assert text is not None
    return Program(text, memory_of(found))


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def out_of_memory(message: str) -> OutOfMemory | None:
    """Read the compiler's refusal; None where the message is of something else.

    Example:
        >>> out_of_memory("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. "
        ...     "Used 2.50G of 2.00G hbm.")
        OutOfMemory(used=2684354560, limit=2147483648)
    """
    if "RESOURCE_EXHAUSTED" not in message:
        return None
    sizes = re.search(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm", message)
    if sizes is None:
        return OutOfMemory(0, 0)
    used, used_unit, limit, limit_unit = sizes.groups()
    return OutOfMemory(int(float(used) * _UNITS[used_unit]), int(float(limit) * _UNITS[limit_unit]))
