"""Where a T5 lies on a mesh of devices: T5X's logical axes, and the mesh axes that split them.

The mesh has two axes, as T5X's has: rows of a batch are split over `data`, and heads, feed-forward
units and vocabulary over `model`. What a decode keeps from round to round is placed once and stays
where it is, so a round moves nothing but the sums that `model` asks for.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array, Float, Int
from specdec_jax.t5.cache import KeysValues, T5State
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.model import T5
from specdec_jax.t5.network import Transformer

DATA, MODEL = "data", "model"
RULES = {"vocab": MODEL, "heads": MODEL, "joined_kv": MODEL, "mlp": MODEL}
"""Logical axis of a parameter -> mesh axis; T5X's standard rules. Other axes stay whole."""

Tree = TypeVar("Tree")


def make_mesh(data: int, model: int) -> Mesh:
    """Lay all devices out as data x model.

    Raises:
        SpecdecError: when data * model is not the number of devices.
    """
    devices = jax.devices()
    if data < 1 or model < 1 or data * model != len(devices):
        raise SpecdecError(
            f"A mesh of {data} x {model} (data x model) has {data * model} devices, but there are "
            f"{len(devices)}: choose two numbers whose product that is."
        )
    return Mesh(np.asarray(devices).reshape(data, model), (DATA, MODEL))


def parameter_specs(config: T5Config, mesh: Mesh | AbstractMesh) -> Any:
    """Return the `PartitionSpec` of every parameter, in the tree of the parameters.

    A dimension that its mesh axis does not divide stays whole. Heads are split whole or not at all:
    where `model` does not divide their number (T5 1.1 small has 6), attention is replicated.
    """
    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    made = jax.eval_shape(Transformer(config).init, jax.random.key(0), tokens, tokens)
    shapes: Any = traverse_util.flatten_dict(made["params"])
    axes: Any = traverse_util.flatten_dict(made["params_axes"])
    whole = () if config.num_heads % mesh.shape[MODEL] == 0 else ("heads", "joined_kv")

    def place(name: str | None, size: int) -> str | None:
        axis = None if name in whole else RULES.get(name or "")
        return axis if axis is not None and size % mesh.shape[axis] == 0 else None

    def spec(path: tuple[str, ...]) -> P:
        names = axes[(*path[:-1], f"{path[-1]}_axes")].names
        return P(*(place(n, size) for n, size in zip(names, shapes[path].shape, strict=True)))

    return traverse_util.unflatten_dict({path: spec(path) for path in shapes})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MeshedT5:
    """A T5 whose parameters and caches lie on a mesh; a `specdec_jax.decoding.LanguageModel`.

    Attributes:
        model: with parameters placed by `shard`.
        mesh: static.
    """

    model: T5
    mesh: Mesh = dataclasses.field(metadata={"static": True})

    @property
    def config(self) -> T5Config:
        """The model's."""
        return self.model.config

    @property
    def vocab_size(self) -> int:
        """V of the model."""
        return self.model.vocab_size

    def start(self, source: Int[Array, "B S"], length: int) -> T5State:
        """Encode the source and lay out an empty cache of `length` slots."""
        state = self.model.start(source, length)
        return state._replace(cache=self._place(state.cache), cross=self._place(state.cross))

    def extend(
        self, state: T5State, tokens: Int[Array, "B N"], position: Int[Array, " B"]
    ) -> tuple[Float[Array, "B N V"], T5State]:
        """Read tokens at slots position[b] .. position[b] + N - 1, overwriting."""
        logits, state = self.model.extend(state, tokens, position)
        # A choice of tokens reduces over the vocabulary many times: gather it once.
        logits = jax.lax.with_sharding_constraint(logits, NamedSharding(self.mesh, P(DATA)))
        return logits, state._replace(cache=self._place(state.cache))

    def _place(self, layers: tuple[KeysValues, ...]) -> tuple[KeysValues, ...]:
        divided = self.config.num_heads % self.mesh.shape[MODEL] == 0
        where = NamedSharding(self.mesh, P(DATA, MODEL if divided else None))
        return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, where), layers)


def shard(model: T5, mesh: Mesh) -> MeshedT5:
    """Put the parameters of a model, in either layout, on a mesh."""
    placed = jax.tree.map(
        lambda spec, leaf: _put(leaf, NamedSharding(mesh, spec)),
        parameter_specs(model.config, mesh),
        model.params,
        is_leaf=lambda x: isinstance(x, P),
    )
    return MeshedT5(dataclasses.replace(model, params=placed), mesh)


def shard_rows(tree: Tree, mesh: Mesh) -> Tree:
    """Split the rows of every array over `data`; row is the first axis.

    Raises:
        SpecdecError: when `data` does not divide the rows.
    """
    data = mesh.shape[DATA]
    for leaf in jax.tree.leaves(tree):
        if leaf.shape[0] % data:
            raise SpecdecError(
                f"A batch of {leaf.shape[0]} rows does not divide over {data} devices: fill it up "
                "with rows whose limit is 0."
            )
    return jax.tree.map(lambda leaf: _put(leaf, NamedSharding(mesh, P(DATA))), tree)


def _put(leaf: Any, where: NamedSharding) -> Any:
    """Lay an array that every host has on devices, be they of several hosts."""
    if where.is_fully_addressable:
        return jax.device_put(leaf, where)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _put(jax.random.key_data(leaf), where)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    # Each host takes its parts; device_put would first send the whole to all others, to compare.
    whole = np.asarray(leaf)
    return jax.make_array_from_callback(whole.shape, where, lambda index: whole[index])
