"""The T5 encoder-decoder as Flax modules, with T5X's parameter tree.

One network serves three uses: a full teacher-forced pass (training, scoring), the encoder, and
`extend`, which reads a block of tokens at a position of its own in every row against a cache. The
cache is an argument and a result, not a Flax collection: rewinding is then calling `extend` again
with an earlier position.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.linen import partitioning

from specdec_jax.sampling.types import Array, Float, Int
from specdec_jax.t5 import layers, relative_bias
from specdec_jax.t5.cache import KeysValues, T5State, write
from specdec_jax.t5.config import T5Config


class RelativeBias(nn.Module):
    """The table of a stack's relative biases, [H, buckets]."""

    config: T5Config
    bidirectional: bool

    def setup(self):
        """Declare the table."""
        cfg = self.config
        self.rel_embedding = partitioning.param_with_axes(
            "rel_embedding",
            nn.initializers.variance_scaling(1.0, "fan_avg", "uniform"),
            (cfg.num_heads, cfg.relative_attention_num_buckets),
            jnp.float32,
            axes=("heads", "relpos_buckets"),
        )

    def __call__(self, distance: np.ndarray) -> Float[Array, "H ..."]:
        """Return the bias of each head at static distances (key minus query)."""
        buckets = relative_bias.bucket(
            distance,
            bidirectional=self.bidirectional,
            num_buckets=self.config.relative_attention_num_buckets,
            max_distance=self.config.relative_attention_max_distance,
        )
        # float32, as the masks that it is added to are, whatever the parameters are stored in.
        return self.rel_embedding[:, buckets].astype(jnp.float32)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each behind a norm and beside a residual."""

    config: T5Config

    @nn.compact
    def __call__(self, x: Float[Array, ...], bias: Float[Array, ...], deterministic: bool):
        """Return x after this layer, same shape."""
        cfg = self.config
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


class Encoder(nn.Module):
    """The encoder stack."""

    config: T5Config
    shared_embedding: nn.Module

    @nn.compact
    def __call__(
        self,
        source: Int[Array, "B S"],
        deterministic: bool = True,
        *,
        segments: Int[Array, "B S"] | None = None,
    ):
        """Return [B, S, D] (or [D, B, S]): the final norm of the last layer.

        Where several sources share a row, a token sees those of its own segment.
        """
        cfg = self.config
        count = source.shape[1]
        distance = np.arange(count)[None, :] - np.arange(count)[:, None]
        bias = RelativeBias(cfg, bidirectional=True, name="relpos_bias")(distance)[None]
        bias = bias + padding_bias(source)
        if segments is not None:
            bias = bias + segment_bias(segments, segments)
        drop = functools.partial(layers.dropout(cfg), deterministic=deterministic)
        x = drop(self.shared_embedding(source))
        for i in range(cfg.num_encoder_layers):
            x = EncoderLayer(cfg, name=f"layers_{i}")(x, bias, deterministic)
        return drop(layers.LayerNorm(cfg, name="encoder_norm")(x))


class Decoder(nn.Module):
    """The decoder stack, from tokens to logits."""

    config: T5Config
    shared_embedding: layers.Embed

    def setup(self):
        """Declare the layers."""
        cfg = self.config
        self.relpos_bias = RelativeBias(cfg, bidirectional=False)
        self.layers = [DecoderLayer(cfg) for _ in range(cfg.num_decoder_layers)]
        self.decoder_norm = layers.LayerNorm(cfg)
        if not cfg.logits_via_embedding:
            axes = ("embed", "vocab")
            # Logits are float32 whatever the activations are: near-ties decide tokens.
            self.logits_dense = layers.Dense(
                cfg.emb_dim, cfg.vocab_size, axes, cfg, dtype=jnp.float32
            )
        self.dropout = layers.dropout(cfg)

    def cross(self, encoded: Float[Array, ...]) -> tuple[KeysValues, ...]:
        """Project the encoder's output to every layer's cross-attention keys and values."""
        return tuple(
            KeysValues(*layer.encoder_decoder_attention.keys_values(encoded))
            for layer in self.layers
        )

    def distance_bias(self, length: int) -> Float[Array, "T H"]:
        """Return the bias of keys 0, 1, .. length - 1 positions behind the query."""
        return self.relpos_bias(-np.arange(length)).T

    def __call__(
        self,
        tokens: Int[Array, "B N"],
        cross: tuple[KeysValues, ...],
        bias: Float[Array, ...],
        source_bias: Float[Array, ...],
        *,
        cache: tuple[KeysValues, ...] | None = None,
        position: Int[Array, " B"] | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B N V"], tuple[KeysValues, ...]]:
        """Return logits [B, N, V] (at n for the token after tokens[:, n]) and the cache."""
        cfg = self.config
        drop = functools.partial(self.dropout, deterministic=deterministic)
        x = drop(self.shared_embedding(tokens))
        seen = []
        for i, layer in enumerate(self.layers):
            x, kept = layer(
                x,
                cross[i],
                bias,
                source_bias,
                cache=None if cache is None else cache[i],
                position=position,
                deterministic=deterministic,
            )
            seen.append(kept)
        x = drop(self.decoder_norm(x))
        if cfg.logits_via_embedding:
            logits = self.shared_embedding.attend(x) / np.sqrt(cfg.emb_dim).astype(np.float32)
        else:
            logits = self.logits_dense(x)
        if cfg.layout == "feature_major":
            logits = jnp.moveaxis(logits, 0, -1)
        return logits, tuple(seen)

    def start(self, encoded: Float[Array, ...], source: Int[Array, "B S"], length: int) -> T5State:
        """Project cross-attention once, and lay out an empty cache of `length` slots."""
        cfg = self.config
        shape = (source.shape[0], cfg.num_heads, length, cfg.head_dim)
        empty = [
            KeysValues(jnp.zeros(shape, cfg.dtype), jnp.zeros(shape, cfg.dtype))
            for _ in range(cfg.num_decoder_layers)
        ]
        return T5State(
            cache=tuple(empty),
            cross=self.cross(encoded),
            source_bias=padding_bias(source),
            distance_bias=self.distance_bias(length),
        )

    def extend(
        self, state: T5State, tokens: Int[Array, "B N"], position: Int[Array, " B"]
    ) -> tuple[Float[Array, "B N V"], T5State]:
        """Read N tokens at slots position[b] .. position[b] + N - 1 of each row."""
        length = state.distance_bias.shape[0]
        slots = position[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)
        behind = slots[:, :, None] - jnp.arange(length, dtype=jnp.int32)
        # mode="clip": a key after the query gets row 0, and then the mask.
        bias = jnp.take(state.distance_bias, behind, axis=0, mode="clip")
        bias = jnp.where(behind[..., None] < 0, layers.MASKED, bias)
        logits, cache = self(
            tokens,
            state.cross,
            jnp.moveaxis(bias, -1, 1),
            state.source_bias,
            cache=state.cache,
            position=position,
        )
        return logits, state._replace(cache=cache)


class Transformer(nn.Module):
    """T5: a shared embedding, an encoder and a decoder.

    Attributes:
        config: sizes, dtype and layout.
    """

    config: T5Config

    def setup(self):
        """Declare the parts."""
        cfg = self.config
        self.token_embedder = layers.Embed(cfg)
        self.encoder = Encoder(cfg, self.token_embedder)
        self.decoder = Decoder(cfg, self.token_embedder)

    def encode(self, source: Int[Array, "B S"], deterministic: bool = True) -> Float[Array, ...]:
        """Run the encoder; token 0 is padding."""
        return self.encoder(source, deterministic)

    def __call__(
        self,
        source: Int[Array, "B S"],
        decoder_input: Int[Array, "B N"],
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B N V"]:
        """Run everything on a given target sequence.

        Args:
            source: token ids, 0 is padding.
            decoder_input: the target shifted right: the start token 0, then all but the last token.
            deterministic: False in training, for dropout.

        Returns:
            float32 logits; at position n for the target's token n.
        """
        encoded = self.encode(source, deterministic)
        count = decoder_input.shape[1]
        distance = np.arange(count)[None, :] - np.arange(count)[:, None]
        causal = np.where(distance > 0, layers.MASKED, 0.0).astype(np.float32)
        bias = self.decoder.relpos_bias(distance)[None] + causal
        logits, _ = self.decoder(
            decoder_input,
            self.decoder.cross(encoded),
            bias,
            padding_bias(source),
            deterministic=deterministic,
        )
        return logits

    def start(self, source: Int[Array, "B S"], length: int) -> T5State:
        """Encode, project cross-attention once, and lay out an empty cache of `length` slots."""
        return self.decoder.start(self.encode(source), source, length)

    def extend(
        self, state: T5State, tokens: Int[Array, "B N"], position: Int[Array, " B"]
    ) -> tuple[Float[Array, "B N V"], T5State]:
        """Read N tokens at slots position[b] .. position[b] + N - 1 of each row.

        Returns:
            float32 logits, at n for the token of slot position + n + 1; and the state.
        """
        return self.decoder.extend(state, tokens, position)


def padding_bias(source: Int[Array, "B S"]) -> Float[Array, "B 1 1 S"]:
    """Return what hides padding (token 0) as a key: 0 at tokens, MASKED elsewhere."""
    return jnp.where(source > 0, 0.0, layers.MASKED).astype(jnp.float32)[:, None, None, :]


def segment_bias(queries: Int[Array, "B N"], keys: Int[Array, "B S"]) -> Float[Array, "B 1 N S"]:
    """Return what keeps the segments of a packed row apart: 0 within one, MASKED between two."""
    same = queries[:, :, None] == keys[:, None, :]
    return jnp.where(same, 0.0, layers.MASKED).astype(jnp.float32)[:, None]
