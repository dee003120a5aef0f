"""Parameters before the first step."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.errors import SpecdecError
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.model import T5
from specdec_jax.t5.network import Transformer
from specdec_jax.t5.relative_bias import bucket

LOCAL = 6.0
"""Nats by which a local head prefers its one distance at the start."""


def initial_parameters(config: T5Config, seed: int, *, embedding: float = 0.3) -> dict[str, Any]:
    """Return random parameters that a small model learns from quickly.

    Two departures from T5's own initial values, both for models of a few million parameters that
    see a few million tokens. The embedding starts small, so tied logits start near uniform. The
    relative biases start *local*: a head looks at the previous, the same or the next position from
    the first step on, instead of spending most of a short run on finding that out.

    Args:
        config: of the model.
        seed: of the draws.
        embedding: factor on T5's embedding (which has unit variance).
    """
    tokens = jnp.zeros((1, 4), jnp.int32)
    variables = jax.jit(Transformer(config).init)(jax.random.key(seed), tokens, tokens)
    params = variables["params"]
    params["token_embedder"]["embedding"] *= embedding
    for stack, offsets in (("encoder", (-1, 0, 1)), ("decoder", (0, -1, -2))):
        table = np.zeros((config.num_heads, config.relative_attention_num_buckets), np.float32)
        # The last head stays uniform: something has to see the whole.
        for head, offset in zip(range(config.num_heads - 1), offsets, strict=False):
            table[head, bucket(np.array(offset), bidirectional=stack == "encoder")] = LOCAL
        own = [layer for name, layer in params[stack].items() if name.startswith("layers_")]
        for home in own if config.relative_bias_per_layer else [params[stack]]:
            home["relpos_bias"]["rel_embedding"] = jnp.asarray(table)
    return params


def inherited_parameters(target: T5, config: T5Config, *, layer: int) -> dict[str, Any]:
    """Return parameters of a shallow draft, cut out of its target.

    The draft gets the target's embedding, norms and attention as they are, all its encoder layers,
    one of its decoder layers, and of each feed-forward layer the hidden units that matter most, by
    the product of the norms of their weights in and out. That is no good model yet, but a far
    better start than random numbers.

    Args:
        target: token-major; its layers are alike.
        config: the draft's, which has one decoder layer, a smaller `mlp_dim`, and all else of the
            target.
        layer: number of the decoder layer that is kept.

    Raises:
        SpecdecError: for a draft that does not fit into the target.
    """
    given = target.config
    cut = {"mlp_dim": config.mlp_dim, "num_decoder_layers": 1, "dropout_rate": config.dropout_rate}
    fits = dataclasses.replace(given, **cut) == config and config.mlp_dim <= given.mlp_dim
    if not fits or given.relative_bias_per_layer or not 0 <= layer < given.num_decoder_layers:
        raise SpecdecError(
            f"Layer {layer} of a target of {given.describe()} is no start for a draft of "
            f"{config.describe()}: they may differ in the feed-forward width and in the number of "
            "decoder layers."
        )

    def narrowed(params: dict[str, Any]) -> dict[str, Any]:
        mlp = {name: np.asarray(part["kernel"]) for name, part in params["mlp"].items()}
        matter = np.prod([np.linalg.norm(w, axis=int(n == "wo")) for n, w in mlp.items()], axis=0)
        kept = np.sort(np.argsort(-matter, kind="stable")[: config.mlp_dim])
        cut = {n: {"kernel": w[kept] if n == "wo" else w[:, kept]} for n, w in mlp.items()}
        return {**params, "mlp": cut}

    encoder, decoder = dict(target.params["encoder"]), dict(target.params["decoder"])
    layers = [decoder.pop(f"layers_{number}") for number in range(given.num_decoder_layers)]
    decoder["layers_0"] = narrowed(layers[layer])
    encoder |= {n: narrowed(one) for n, one in encoder.items() if n.startswith("layers_")}
    found = {**target.params, "encoder": encoder, "decoder": decoder}
    return jax.tree.map(lambda x: jnp.array(x, jnp.float32), found)
