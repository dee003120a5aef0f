"""The parts of a T5, in two layouts.

A layout says where the features of an activation are and how a matrix is stored:

============== ============ ======== ==================================================
layout         activations  kernel   used for
============== ============ ======== ==================================================
token_major    [B, N, D]    [in,out] T5X's form: training, TPU, GPU
feature_major  [D, B, N]    [out,in] decoding on a CPU
============== ============ ======== ==================================================

Why two: a CPU spends a decoding step on reading the weights, and XLA multiplies an out-major matrix
with a few columns at the cost of one column, while a few rows times an in-major matrix cost twice
one row. Verifying gamma + 1 tokens is then as cheap as the paper assumes. The layout is known to
`Dense`, `LayerNorm`, `Embed` and the two einsums of `Attention`, and to nothing else.

Parameter names, shapes (token-major) and logical axes are those of T5X.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen import partitioning

from specdec_jax.sampling.types import Array, Float, Int
from specdec_jax.t5.config import Layout, T5Config

MASKED = -1e10
"""Added to a score that must not be seen; T5X's value. Finite, so an empty row gives no NaN."""

_fan_in = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")


def feature_axis(layout: Layout) -> int:
    """Return the axis of an activation that holds its features."""
    return 0 if layout == "feature_major" else -1


class Dense(nn.Module):
    """A matrix without bias, ``kernel``.

    Attributes:
        inputs: features read.
        features: features written.
        axes: T5X's logical names of (inputs, features).
        config: for the layout and the activations' dtype.
        scale: factor on the initial values (T5 starts queries at K**-0.5).
        dtype: dtype of the product; the config's when None.
    """

    inputs: int
    features: int
    axes: tuple[str, str]
    config: T5Config
    scale: float = 1.0
    dtype: Any = None

    @nn.compact
    def __call__(self, x: Float[Array, ...]) -> Float[Array, ...]:
        """Map [B, N, in] to [B, N, out], or [in, B, N] to [out, B, N]."""
        dtype = self.dtype or self.config.dtype
        out_major = self.config.layout == "feature_major"

        def init(key, shape, dtype):
            kernel = self.scale * _fan_in(key, (self.inputs, self.features), dtype)
            return kernel.reshape(shape) if not out_major else kernel.T

        shape, axes = (self.inputs, self.features), self.axes
        if out_major:
            shape, axes = shape[::-1], axes[::-1]
        kernel = partitioning.param_with_axes("kernel", init, shape, jnp.float32, axes=axes)
        return multiply(x.astype(dtype), kernel.astype(dtype), self.config.layout)


def multiply(x: Float[Array, ...], kernel: Float[Array, ...], layout: Layout) -> Array:
    """Apply a kernel to the features of x as *one* rank-2 product.

    Rank 2 because XLA's CPU back end takes its slow path for the weight gradient of a rank-3 one.
    """
    if layout == "feature_major":
        flat = kernel @ x.reshape(x.shape[0], -1)
        return flat.reshape(-1, *x.shape[1:])
    flat = x.reshape(-1, x.shape[-1]) @ kernel
    return flat.reshape(*x.shape[:-1], -1)


class LayerNorm(nn.Module):
    """T5's norm: divide by the root mean square, in float32; scale, no bias, no mean."""

    config: T5Config
    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x: Float[Array, ...]) -> Float[Array, ...]:
        """Normalise the features of x; same shape."""
        axis = feature_axis(self.config.layout)
        scale = partitioning.param_with_axes(
            "scale", nn.initializers.ones, (x.shape[axis],), jnp.float32, axes=("embed",)
        )
        wide = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(wide), axis=axis, keepdims=True)
        normal = (wide * jax.lax.rsqrt(mean_square + self.epsilon)).astype(self.config.dtype)
        scale = scale.astype(self.config.dtype)
        return normal * (scale[:, None, None] if axis == 0 else scale)


class Embed(nn.Module):
    """The table of token vectors, [V, D], which may also give the logits."""

    config: T5Config

    def setup(self):
        """Declare the table."""
        cfg = self.config
        self.embedding = partitioning.param_with_axes(
            "embedding",
            nn.initializers.normal(stddev=1.0),
            (cfg.vocab_size, cfg.emb_dim),
            jnp.float32,
            axes=("vocab", "embed"),
        )

    def __call__(self, tokens: Int[Array, "B N"]) -> Float[Array, ...]:
        """Look tokens up."""
        x = jnp.take(self.embedding, tokens, axis=0).astype(self.config.dtype)
        return jnp.moveaxis(x, -1, 0) if self.config.layout == "feature_major" else x

    def attend(self, x: Float[Array, ...]) -> Float[Array, ...]:
        """Return float32 logits of x against every row, features of x replaced by V."""
        table = self.embedding.astype(jnp.float32)
        out_major = self.config.layout == "feature_major"
        return multiply(x.astype(jnp.float32), table if out_major else table.T, self.config.layout)


class Mlp(nn.Module):
    """The feed-forward layer: one activation (T5 1.0) or a product of two (gated, T5 1.1)."""

    config: T5Config

    @nn.compact
    def __call__(self, x: Float[Array, ...], deterministic: bool = True) -> Float[Array, ...]:
        """Map features D to F and back."""
        cfg = self.config
        gated = len(cfg.mlp_activations) > 1
        hidden = None
        for i, name in enumerate(cfg.mlp_activations):
            label = f"wi_{i}" if gated else "wi"
            wi = Dense(cfg.emb_dim, cfg.mlp_dim, ("embed", "mlp"), cfg, name=label)
            h = _activation(name)(wi(x))
            hidden = h if hidden is None else hidden * h
        assert hidden is not None
        hidden = dropout(cfg)(hidden, deterministic=deterministic)
        return Dense(cfg.mlp_dim, cfg.emb_dim, ("mlp", "embed"), cfg, name="wo")(hidden)


def _activation(name: str) -> Callable[[Array], Array]:
    return (lambda x: x) if name == "linear" else getattr(nn, name)


def dropout(config: T5Config) -> nn.Dropout:
    """Return T5's dropout, one mask for all positions of a row; training is token-major."""
    return nn.Dropout(config.dropout_rate, broadcast_dims=(-2,))


class Attention(nn.Module):
    """Multi-head attention whose keys and values may come from anywhere.

    Self-attention, cached self-attention and cross-attention differ only in where keys and values
    are from, so there is one `attend`, and `keys_values` to make them.
    """

    config: T5Config

    def setup(self):
        """Declare the four matrices."""
        cfg = self.config
        joined = cfg.num_heads * cfg.head_dim
        read, write = ("embed", "joined_kv"), ("joined_kv", "embed")
        # The initial query carries the 1/sqrt(K) that T5 leaves out of the scores.
        self.query = Dense(cfg.emb_dim, joined, read, cfg, scale=cfg.head_dim**-0.5)
        self.key = Dense(cfg.emb_dim, joined, read, cfg)
        self.value = Dense(cfg.emb_dim, joined, read, cfg)
        self.out = Dense(joined, cfg.emb_dim, write, cfg)
        self.dropout = dropout(cfg)

    def keys_values(
        self, x: Float[Array, ...]
    ) -> tuple[Float[Array, "B H T K"], Float[Array, "B H T K"]]:
        """Project x to keys and values in the form of the cache."""
        return self._to_cache(self.key(x)), self._to_cache(self.value(x))

    def attend(
        self,
        x: Float[Array, ...],
        keys: Float[Array, "B H T K"],
        values: Float[Array, "B H T K"],
        bias: Float[Array, "#B #H #N T"],
        deterministic: bool = True,
    ) -> Float[Array, ...]:
        """Let every token of x look at T keys.

        Args:
            x: [B, N, D] or, feature-major, [D, B, N].
            keys: [B, H, T, K].
            values: [B, H, T, K].
            bias: added to the scores; carries the relative positions and, as `MASKED`, the mask.
            deterministic: False in training, for dropout.

        Returns:
            Same shape as x.
        """
        cfg = self.config
        queries = self.query(x)
        # K/V may be stored in another dtype than the activations (a bfloat16 cache, say).
        keys, values = keys.astype(cfg.dtype), values.astype(cfg.dtype)
        bias = bias.astype(cfg.dtype)
        if cfg.layout == "feature_major":
            _, batch, count = queries.shape
            queries = queries.reshape(cfg.num_heads, cfg.head_dim, batch, count)
            queries = queries.transpose(2, 0, 1, 3)
            scores = keys @ queries + bias.swapaxes(-1, -2)
            weights = jax.nn.softmax(scores, axis=-2).astype(cfg.dtype)
            # In this order the product reads the cache as it lies, without a copy.
            heads = weights.swapaxes(-1, -2) @ values
            joined = heads.transpose(1, 3, 0, 2).reshape(-1, batch, count)
            return self.out(joined)
        queries = self._to_cache(queries)
        scores = jnp.einsum("bhnk,bhtk->bhnt", queries, keys) + bias
        weights = jax.nn.softmax(scores, axis=-1).astype(cfg.dtype)
        self.sow("intermediates", "weights", weights)  # kept only when a caller asks for it
        weights = self.dropout(weights, deterministic=deterministic)
        heads = (weights @ values).transpose(0, 2, 1, 3)
        return self.out(heads.reshape(*heads.shape[:2], -1))

    def _to_cache(self, x: Float[Array, ...]) -> Float[Array, "B H N K"]:
        cfg = self.config
        if cfg.layout == "feature_major":
            _, batch, count = x.shape
            x = x.reshape(cfg.num_heads, cfg.head_dim, batch, count)
            return x.transpose(2, 0, 3, 1)
        batch, count, _ = x.shape
        return x.reshape(batch, count, cfg.num_heads, cfg.head_dim).transpose(0, 2, 1, 3)
