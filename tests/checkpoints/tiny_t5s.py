"""Tiny T5s of each form that a checkpoint can have."""

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.checkpoints import tree
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.model import T5, t5

SIZES = {
    "vocab_size": 40,
    "emb_dim": 8,
    "num_heads": 2,
    "head_dim": 3,
    "mlp_dim": 12,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
    "dropout_rate": 0.0,
}
CONFIGS = {
    "1.0": T5Config(**SIZES, logits_via_embedding=True),
    "1.1": T5Config(**SIZES, mlp_activations=("gelu", "linear")),
    "umT5": T5Config(**SIZES, mlp_activations=("gelu", "linear"), relative_bias_per_layer=True),
}


def random_t5(config: T5Config, *, seed: int = 0, vocab_size: int | None = None) -> T5:
    """A T5 whose every element is its own bfloat16 number: a swap or a transposition shows."""
    rng = np.random.default_rng(seed)
    leaves = {
        name: jnp.array(rng.normal(size=shape).astype(jnp.bfloat16).astype(np.float32))
        for name, shape in tree.shapes(config).items()
    }
    return t5(tree.nest(leaves), config, vocab_size)


def same_params(a: T5, b: T5) -> None:
    """Names, shapes, dtypes and bits."""
    assert jax.tree.structure(a.params) == jax.tree.structure(b.params)
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(a.params), jax.tree.leaves(b.params), strict=True
    ):
        assert x.dtype == y.dtype, path
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), path
