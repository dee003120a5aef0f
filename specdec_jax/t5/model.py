"""T5 as the loop sees it: `start` and `extend` over parameters that are traced."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array, Float, Int
from specdec_jax.t5.cache import T5State
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.network import Transformer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class T5:
    """A T5 and its parameters; a `specdec_jax.decoding.LanguageModel`.

    Attributes:
        params: T5X's tree, in the layout that `config` names.
        config: static.
        vocab_size: ids in use, at most `config.vocab_size`; the rest of the embedding is padding,
            which can never be emitted and takes no probability. Static.
    """

    params: Any
    config: T5Config = dataclasses.field(metadata={"static": True})
    vocab_size: int = dataclasses.field(metadata={"static": True})

    def start(self, source: Int[Array, "B S"], length: int) -> T5State:
        """Encode the source and lay out an empty cache of `length` slots."""
        return self._apply(source, length, method="start")

    def extend(
        self, state: T5State, tokens: Int[Array, "B N"], position: Int[Array, " B"]
    ) -> tuple[Float[Array, "B N V"], T5State]:
        """Read tokens at slots position[b] .. position[b] + N - 1, overwriting."""
        logits, state = self._apply(state, tokens, position, method="extend")
        return logits[..., : self.vocab_size], state

    def _apply(self, *args: Any, method: str) -> Any:
        return Transformer(self.config).apply({"params": self.params}, *args, method=method)


def t5(params: Any, config: T5Config, vocab_size: int | None = None) -> T5:
    """Join parameters, sizes and the vocabulary in use.

    Raises:
        SpecdecError: when the vocabulary is larger than the embedding.
    """
    size = config.vocab_size if vocab_size is None else vocab_size
    if not 0 < size <= config.vocab_size:
        raise SpecdecError(
            f"The vocabulary has {size} ids, but the model's embedding {config.vocab_size} rows; "
            "give the vocabulary that the model was trained with."
        )
    return T5(params=params, config=config, vocab_size=size)


def prepare(model: T5, *, platform: str | None = None) -> T5:
    """Lay the parameters out for decoding on a platform.

    On a CPU that is the feature-major layout, see `specdec_jax.t5.layers`; elsewhere the compiler
    chooses layouts itself and token-major is kept. Parameters that are not on a device yet, as
    those of `expand`, are put there, or every call would do it. Matrices are transposed one by one.

    Args:
        model: in either layout.
        platform: of the devices that will decode; JAX's default backend when left out.
    """
    layout = "feature_major" if (platform or jax.default_backend()) == "cpu" else "token_major"
    other = model.config.layout != layout

    def lay(path, leaf):
        leaf = jnp.asarray(leaf)
        return leaf.T if other and path[-1].key == "kernel" else leaf

    return dataclasses.replace(
        model,
        params=jax.tree_util.tree_map_with_path(lay, model.params),
        config=dataclasses.replace(model.config, layout=layout),
    )
