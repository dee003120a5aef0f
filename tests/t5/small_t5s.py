"""Small T5s whose every parameter matters, and what float32 may do to their logits."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.t5.config import T5Config
from specdec_jax.t5.model import T5, prepare, t5
from specdec_jax.t5.network import Transformer

_PLAIN = T5Config(
    vocab_size=23,
    emb_dim=16,
    num_heads=3,
    head_dim=4,
    mlp_dim=20,
    num_encoder_layers=1,
    num_decoder_layers=2,
)
CONFIGS = {
    "1.0": dataclasses.replace(_PLAIN, logits_via_embedding=True),
    "1.1": dataclasses.replace(_PLAIN, mlp_activations=("gelu", "linear")),
}
LAYOUTS = ("token_major", "feature_major")
KINDS = [(family, layout) for family in CONFIGS for layout in LAYOUTS]
ATOL = 2e-5
"""What the order of float32 sums may move a logit by.

A number of size 1 is rounded by 2**-24 = 6e-8. Between a token and its logits lie about 10 products
in each of 3 layers, of up to 24 terms each, whose errors add like a random walk: 6e-8 * sqrt(30 *
24) = 2e-6 for activations of size 1. They are of size 2, and the largest error of a few thousand
lies 5 standard deviations out. Measured: 3e-6. A wrong token, slot or bias moves logits by 1e-1.
"""


@functools.cache
def variables(config: T5Config):
    """Shapes of parameters and their logical axes, without computing any."""
    ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    return jax.eval_shape(Transformer(config).init, jax.random.key(0), ids, ids)


def random_params(config: T5Config, seed: int = 0):
    """Kernels that keep the size of what they multiply, norms and biases far from their start."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        numbers = rng.normal(size=leaf.shape)
        if path[-1].key == "kernel":
            numbers /= np.sqrt(leaf.shape[0])
        elif path[-1].key == "scale":
            numbers = 1 + 0.3 * numbers
        return jnp.asarray(numbers, jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, variables(config)["params"])


def small(family: str, layout: str = "token_major", **changes) -> T5:
    """A random T5 of a family, laid out; the same numbers in either layout."""
    config = dataclasses.replace(CONFIGS[family], **changes)
    model = t5(random_params(config), config)
    return prepare(model, platform="cpu") if layout == "feature_major" else model


def ids(*shape, vocab_size: int = 23, seed: int = 0):
    """Random tokens, none of them padding."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.integers(1, vocab_size, shape), jnp.int32)


ROWS = 3
SOURCE = ids(ROWS, 9, seed=1) * (np.arange(9) < np.array([9, 4, 1])[:, None])
"""Full, half full, and one token; compiled programs are shared by tests that use this shape."""
TOKENS = ids(ROWS, 20, seed=2).at[:, 0].set(0)
"""The start token, and more tokens than the relative bias has exact distances."""
SLOTS = 24


# These programs run for microseconds: most of the time would go into LLVM's optimiser.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@functools.partial(jax.jit, compiler_options=QUICK)
def forward(model: T5, source, tokens):
    """The whole teacher-forced pass: logits at every position of the decoder's input."""
    return Transformer(model.config).apply({"params": model.params}, source, tokens)


start = jax.jit(T5.start, static_argnums=2, compiler_options=QUICK)
extend = jax.jit(T5.extend, compiler_options=QUICK)
