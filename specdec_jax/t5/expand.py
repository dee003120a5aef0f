"""Function-preserving enlargement: a trained model at the cost of a larger one.

A benchmark of speculative decoding needs a target that is both large and trained. Where no large
checkpoint can be had, a small trained one is rewritten with the shapes of a large T5 so that it
computes the same logits, up to rounding: every matrix is dense, and a step costs what a step of the
large T5 costs. Outputs, acceptance and quality stay those of the small model, and a report has to
say so.

The rewriting, from sizes (D, H, K, F) to larger (D', H', K', F'):

- The residual stream is tiled, x' = [x, x, ..], D'/D times, which leaves its mean square and hence
  T5's norm unchanged. A matrix that writes the stream is tiled along its outputs; one that reads
  it is tiled along its inputs and divided by D'/D.
- Heads and feed-forward units are repeated, and what reads them is divided by the repetitions. A
  head grows from K to K' by zeros: T5 does not divide scores by sqrt(K).
- New layers are copies of their neighbours whose output matrices are zero.
- New ids of the vocabulary get rows of old ones, and are padding: `T5.vocab_size` stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from specdec_jax.errors import SpecdecError
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.model import T5, t5

Tree = dict[str, Any]


def expand(model: T5, config: T5Config) -> T5:
    """Rewrite a model with larger sizes.

    Args:
        model: token-major.
        config: the sizes wanted: each at least the model's own, `emb_dim` a multiple of it. Its
            logits may be untied where the model's are tied; dtype, layout, and whether each layer
            has its own relative biases stay the model's.

    Returns:
        A model with the same `vocab_size`. Logits agree up to float32 rounding; in exact arithmetic
        they are equal.

    Raises:
        SpecdecError: for sizes that cannot be reached.
    """
    old = model.config
    _check(old, config)
    new = dataclasses.replace(
        config,
        dtype=old.dtype,
        layout=old.layout,
        relative_bias_per_layer=old.relative_bias_per_layer,
    )
    grown = _Grown(old, new)
    params = model.params
    embedding = _float32(params["token_embedder"]["embedding"])
    decoder = grown.stack(params["decoder"], "decoder", old.num_decoder_layers)
    if old.logits_via_embedding and new.logits_via_embedding:
        # Both the tiled dot product and the divisor sqrt(D) change; the norm before takes it up.
        decoder["decoder_norm"]["scale"] = decoder["decoder_norm"]["scale"] / np.float32(
            np.sqrt(grown.tiles)
        )
    elif old.logits_via_embedding:
        logits = embedding.T / np.float32(np.sqrt(old.emb_dim))
        decoder["logits_dense"] = {"kernel": grown.read(grown.more_ids(logits, axis=1))}
    else:
        logits = _float32(params["decoder"]["logits_dense"]["kernel"])
        decoder["logits_dense"] = {"kernel": grown.read(grown.more_ids(logits, axis=1))}
    tree = {
        "token_embedder": {"embedding": grown.write(grown.more_ids(embedding, axis=0))},
        "encoder": grown.stack(params["encoder"], "encoder", old.num_encoder_layers),
        "decoder": decoder,
    }
    return t5(tree, new, model.vocab_size)


def _check(old: T5Config, new: T5Config) -> None:
    if old.layout != "token_major":
        raise SpecdecError("expand needs a token-major model: call it before prepare.")
    for name in (
        "vocab_size",
        "num_heads",
        "head_dim",
        "mlp_dim",
        "num_encoder_layers",
        "num_decoder_layers",
    ):
        if getattr(new, name) < getattr(old, name):
            raise SpecdecError(
                f"{name} cannot shrink from {getattr(old, name)} to {getattr(new, name)}: "
                "choose a larger shape."
            )
    if new.emb_dim % old.emb_dim:
        raise SpecdecError(
            f"emb_dim {new.emb_dim} is no multiple of the model's {old.emb_dim}: "
            "tiling keeps T5's norm only then."
        )
    if new.mlp_activations != old.mlp_activations:
        raise SpecdecError(
            f"The model's feed-forward layer is {old.mlp_activations} and the wanted one "
            f"{new.mlp_activations}: choose a shape of the same family."
        )
    if new.logits_via_embedding and not old.logits_via_embedding:
        raise SpecdecError(
            "Logits that are not tied cannot become tied: set the shape's to untied."
        )


class _Grown:
    """The rewriting of each kind of matrix between two fixed configurations."""

    def __init__(self, old: T5Config, new: T5Config):
        self.old, self.new = old, new
        self.tiles = new.emb_dim // old.emb_dim
        self.heads = np.arange(new.num_heads) % old.num_heads
        self.units = np.arange(new.mlp_dim) % old.mlp_dim

    def read(self, kernel: np.ndarray) -> np.ndarray:
        """Grow the inputs of a matrix that reads the residual stream."""
        return np.tile(kernel, (self.tiles, 1)) / np.float32(self.tiles)

    def write(self, kernel: np.ndarray) -> np.ndarray:
        """Grow the outputs of a matrix that writes it."""
        return np.tile(kernel, (1, self.tiles))

    def more_ids(self, table: np.ndarray, axis: int) -> np.ndarray:
        """Fill up the vocabulary with copies of old ids."""
        return np.take(table, np.arange(self.new.vocab_size) % self.old.vocab_size, axis)

    def _heads(self, kernel: np.ndarray) -> np.ndarray:
        """Repeat the heads along the outputs, each filled up with zeros."""
        old, new = self.old, self.new
        split = kernel.reshape(-1, old.num_heads, old.head_dim)[:, self.heads]
        split = np.pad(split, ((0, 0), (0, 0), (0, new.head_dim - old.head_dim)))
        return split.reshape(-1, new.num_heads * new.head_dim)

    def attention(self, tree: Tree, on: float) -> Tree:
        """Grow an attention layer; `on` is 0 for a layer that must contribute nothing."""
        grown = {
            name: {"kernel": self._heads(self.read(_kernel(tree[name])))}
            for name in ("query", "key", "value")
        }
        # Every copy of a head contributes its share of what the head contributed.
        share = np.bincount(self.heads)[self.heads].repeat(self.new.head_dim).astype(np.float32)
        out = self.write(self._heads(_kernel(tree["out"]).T).T / share[:, None])
        return {**grown, "out": {"kernel": out * np.float32(on)}}

    def mlp(self, tree: Tree, on: float) -> Tree:
        """Grow a feed-forward layer."""
        share = np.bincount(self.units)[self.units].astype(np.float32)
        grown = {
            name: {"kernel": self.read(_kernel(part))[:, self.units]}
            for name, part in tree.items()
            if name != "wo"
        }
        wo = self.write(_kernel(tree["wo"])[self.units] / share[:, None])
        return {**grown, "wo": {"kernel": wo * np.float32(on)}}

    def norm(self, tree: Tree) -> Tree:
        """Grow a norm's scale."""
        return {"scale": np.tile(_float32(tree["scale"]), self.tiles)}

    def bias(self, tree: Tree) -> Tree:
        """Repeat the heads of a table of relative biases."""
        return {"rel_embedding": _float32(tree["rel_embedding"])[self.heads]}

    def stack(self, tree: Tree, name: str, count: int) -> Tree:
        """Grow a stack, spreading the old layers over the new ones."""
        wanted = getattr(self.new, f"num_{name}_layers")
        places = np.round(np.linspace(0, wanted - 1, count)).astype(int).tolist()
        grown: Tree = {f"{name}_norm": self.norm(tree[f"{name}_norm"])}
        if "relpos_bias" in tree:
            grown["relpos_bias"] = self.bias(tree["relpos_bias"])
        for i in range(wanted):
            nearest = int(np.argmin(np.abs(np.array(places) - i)))
            old = tree[f"layers_{nearest}"]
            grown[f"layers_{i}"] = self._layer(old, on=float(i in places))
        return grown

    def _layer(self, tree: Tree, on: float) -> Tree:
        grown: Tree = {}
        for name, part in tree.items():
            make: Callable[[Tree, float], Tree]
            if name.endswith("layer_norm"):
                grown[name] = self.norm(part)
            elif name == "relpos_bias":
                grown[name] = self.bias(part)
            else:
                make = self.mlp if name == "mlp" else self.attention
                grown[name] = make(part, on)
        return grown


def _kernel(tree: Tree) -> np.ndarray:
    return _float32(tree["kernel"])


def _float32(leaf: Any) -> np.ndarray:
    return np.asarray(leaf, np.float32)
