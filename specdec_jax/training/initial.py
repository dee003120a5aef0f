"""Parameters before the first step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.t5.config import T5Config
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
