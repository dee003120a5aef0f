"""A T5 as the loop sees it inside T5X: on T5X's mesh, and with several decodes for each source."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import core as flax_core
from flax.linen import partitioning

from specdec_jax.sampling.types import Array, Float, Int
from specdec_jax.t5.cache import KeysValues, T5State
from specdec_jax.t5.model import T5, prepare

CACHE_AXES = ("batch", "heads", "length", "kv")
"""T5X's logical names of a cache [B, H, T, K]."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PlacedT5:
    """A T5 whose state lies on the mesh as T5X's rules say; a `decoding.LanguageModel`.

    Attributes:
        model: with traced parameters.
        vocab_size: V that the loop sees. A draft whose embedding is padded to another size than
            the target's is fitted to it: ids that it lacks get no probability, and are read as its
            last. Static.
        repeats: decodes for each source; the encoder runs once for all of them. Static.
        replicated: keep heads and vocabulary on every device. Static.
    """

    model: T5
    vocab_size: int = dataclasses.field(metadata={"static": True})
    repeats: int = dataclasses.field(default=1, metadata={"static": True})
    replicated: bool = dataclasses.field(default=False, metadata={"static": True})

    def start(self, source: Int[Array, "B S"], length: int) -> T5State:
        """Encode each different source once; rows are [a, a, b, b], as T5X expands them."""
        state = self.model.start(source[:: self.repeats], length)
        cache, cross, bias = jax.tree.map(
            lambda x: jnp.repeat(x, self.repeats, axis=0),
            (state.cache, state.cross, state.source_bias),
        )
        state = state._replace(cache=cache, source_bias=bias)
        return state._replace(cache=self._place(cache), cross=self._place(cross))

    def extend(
        self, state: T5State, tokens: Int[Array, "B N"], position: Int[Array, " B"]
    ) -> tuple[Float[Array, "B N V"], T5State]:
        """Read tokens at slots position[b] .. position[b] + N - 1, overwriting."""
        own = self.model.vocab_size
        tokens = jnp.minimum(tokens, own - 1)
        logits, state = self.model.extend(state, tokens, position)
        logits = logits[..., : self.vocab_size]
        missing = self.vocab_size - logits.shape[-1]
        logits = jnp.pad(logits, ((0, 0), (0, 0), (0, missing)), constant_values=-jnp.inf)
        # Choosing a token reduces over the vocabulary dozens of times: keep it on one device.
        logits = partitioning.with_sharding_constraint(logits, ("batch", "length", None))
        return logits, state._replace(cache=self._place(state.cache))

    def _place(self, layers: tuple[KeysValues, ...]) -> tuple[KeysValues, ...]:
        batch, heads, length, kv = CACHE_AXES
        axes = (batch, None if self.replicated else heads, length, kv)
        return jax.tree.map(lambda x: partitioning.with_sharding_constraint(x, axes), layers)


def placed(
    params: Any, model: T5, *, vocab_size: int, repeats: int, replicated: bool = False
) -> PlacedT5:
    """Join T5X's parameters to a T5, in the layout that decodes fastest here.

    Args:
        params: T5X's tree, traced.
        model: configuration and vocabulary; its own parameters are not used.
        vocab_size: see `PlacedT5`.
        repeats: see `PlacedT5`.
        replicated: see `PlacedT5`.
    """
    whole = dataclasses.replace(model, params=flax_core.unfreeze(params))
    if jax.device_count() == 1 and jnp.dtype(model.config.dtype) == jnp.float32:
        # One transposition of the weights for each batch, where the platform gains by it. On a
        # mesh the compiler's own partitioning is for T5X's layout; and narrow floats, which no CPU
        # multiplies fast, round in that layout as they do in T5X, so that fewer near-ties flip.
        whole = prepare(whole)
    return PlacedT5(whole, vocab_size, repeats, replicated)


def replicate_axes(axes: Any) -> Any:
    """Return a `params_axes` collection that puts no dimension of any parameter on a mesh axis."""

    def blank(meta: partitioning.AxisMetadata) -> partitioning.AxisMetadata:
        names = jax.sharding.PartitionSpec(*(None for _ in meta.names))
        return partitioning.AxisMetadata(names=names)

    return jax.tree.map(blank, axes, is_leaf=lambda x: isinstance(x, partitioning.AxisMetadata))


def must_replicate(heads: int) -> bool:
    """Return whether a draft's heads may fail to divide the mesh.

    The mesh is not known where parameters get their axes. Its model axis divides the number of
    devices, so heads that are a multiple of that number always fit. Replicating a draft that would
    have fitted costs its memory on every device and changes no output.
    """
    return heads % jax.device_count() != 0
