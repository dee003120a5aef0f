"""A target and a draft that are small enough to compile in a moment, over ByT5's vocabulary.

Their weights are random, so what they write is noise: lines of it, with byte for byte the same
machinery around it. The draft is the target with its weights shaken, so a part of it is accepted.
"""

import jax.numpy as jnp
import numpy as np

from specdec_jax.checkpoints import bundle, tree
from specdec_jax.generate import Pair, load_pair
from specdec_jax.t5 import T5, T5Config, t5

CONFIG = T5Config(
    vocab_size=272,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_encoder_layers=1,
    num_decoder_layers=1,
    mlp_activations=("gelu", "linear"),
    dropout_rate=0.0,
)
VOCABULARY = 259


def tiny_t5(shake=0.0, config=CONFIG) -> T5:
    """The target, or with `shake` a draft of it."""
    rng, other = np.random.default_rng(0), np.random.default_rng(1)
    leaves = {}
    for name, shape in tree.shapes(config).items():
        leaf = rng.normal(size=shape) + shake * other.normal(size=shape)
        if name.endswith("kernel"):
            leaf = leaf / np.sqrt(shape[0])
        leaves[name] = jnp.asarray(leaf, jnp.float32)
    return t5(tree.nest(leaves), config, VOCABULARY)


def save_pair(folder) -> tuple[str, str]:
    """Write both and return their paths."""
    paths = str(folder / "target"), str(folder / "draft")
    for path, shake in zip(paths, (0.0, 0.2), strict=True):
        bundle.save(path, tiny_t5(shake), dtype="float32", vocabulary="bytes")
    return paths


def tiny_pair(folder) -> Pair:
    """Write both and load them."""
    return load_pair(*save_pair(folder))
