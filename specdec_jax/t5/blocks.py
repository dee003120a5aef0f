"""The layers of the two stacks."""

from __future__ import annotations

import functools

from flax import linen as nn

from specdec_jax.sampling.types import Array, Float, Int
from specdec_jax.t5 import layers
from specdec_jax.t5.cache import KeysValues, write
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.relative_bias import RelativeBias, distances


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each behind a norm and beside a residual."""

    config: T5Config

    @nn.compact
    def __call__(self, x: Float[Array, ...], bias: Float[Array, ...], deterministic: bool):
        """Return x after this layer, same shape.

        Args:
            x: [B, S, D] or, feature-major, [D, B, S].
            bias: of the scores; a layer with a table of its own adds its relative positions.
            deterministic: False in training, for dropout.
        """
        cfg = self.config
        if cfg.relative_bias_per_layer:
            own = RelativeBias(cfg, bidirectional=True, name="relpos_bias")
            bias = bias + own(distances(bias.shape[-1]))[None]
        drop = functools.partial(layers.dropout(cfg), deterministic=deterministic)
        h = layers.LayerNorm(cfg, name="pre_attention_layer_norm")(x)
        attention = layers.Attention(cfg, name="attention")
        x = x + drop(attention.attend(h, *attention.keys_values(h), bias, deterministic))
        h = layers.LayerNorm(cfg, name="pre_mlp_layer_norm")(x)
        return x + drop(layers.Mlp(cfg, name="mlp")(h, deterministic))


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward."""

    config: T5Config

    def setup(self):
        """Declare the parts."""
        cfg = self.config
        self.pre_self_attention_layer_norm = layers.LayerNorm(cfg)
        self.self_attention = layers.Attention(cfg)
        self.pre_cross_attention_layer_norm = layers.LayerNorm(cfg)
        self.encoder_decoder_attention = layers.Attention(cfg)
        self.pre_mlp_layer_norm = layers.LayerNorm(cfg)
        self.mlp = layers.Mlp(cfg)
        if cfg.relative_bias_per_layer:
            self.relpos_bias = RelativeBias(cfg, bidirectional=False)
        self.dropout = layers.dropout(cfg)

    def __call__(
        self,
        x: Float[Array, ...],
        cross: KeysValues,
        bias: Float[Array, ...],
        source_bias: Float[Array, ...],
        *,
        cache: KeysValues | None = None,
        position: Int[Array, " B"] | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, ...], KeysValues]:
        """Return x after this layer and the keys and values that self-attention looked at.

        With a cache the block's own keys and values are written into it at `position` first;
        without one the block is the whole sequence.
        """
        drop = functools.partial(self.dropout, deterministic=deterministic)
        h = self.pre_self_attention_layer_norm(x)
        seen = KeysValues(*self.self_attention.keys_values(h))
        if cache is not None:
            assert position is not None
            seen = KeysValues(
                *(write(c, new, position) for c, new in zip(cache, seen, strict=True))
            )
        x = x + drop(self.self_attention.attend(h, *seen, bias, deterministic))
        h = self.pre_cross_attention_layer_norm(x)
        attended = self.encoder_decoder_attention.attend(h, *cross, source_bias, deterministic)
        x = x + drop(attended)
        x = x + drop(self.mlp(self.pre_mlp_layer_norm(x), deterministic))
        return x, seen
