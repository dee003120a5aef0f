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

from specdec_jax.sampling.types import Array, Float, Int
from specdec_jax.t5 import layers
from specdec_jax.t5.blocks import DecoderLayer, EncoderLayer
from specdec_jax.t5.cache import KeysValues, T5State
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.relative_bias import RelativeBias, distances


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
        bias = padding_bias(source)
        if not cfg.relative_bias_per_layer:
            shared = RelativeBias(cfg, bidirectional=True, name="relpos_bias")
            bias = bias + shared(distances(source.shape[1]))[None]
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
        if not cfg.relative_bias_per_layer:
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

    def biases(self, distance: np.ndarray) -> tuple[Float[Array, "H ..."], ...]:
        """Return the relative bias at static distances: each layer's own, or the one of all."""
        if self.config.relative_bias_per_layer:
            return tuple(layer.relpos_bias(distance) for layer in self.layers)
        return (self.relpos_bias(distance),)

    def distance_bias(self, length: int) -> Float[Array, "M T H"]:
        """Return the biases of keys 0, 1, .. length - 1 positions behind the query.

        M is the number of layers where each has a table of its own, else 1.
        """
        return jnp.stack(self.biases(-np.arange(length))).swapaxes(1, 2)

    def __call__(
        self,
        tokens: Int[Array, "B N"],
        cross: tuple[KeysValues, ...],
        bias: Float[Array, ...] | tuple[Float[Array, ...], ...],
        source_bias: Float[Array, ...],
        *,
        cache: tuple[KeysValues, ...] | None = None,
        position: Int[Array, " B"] | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B N V"], tuple[KeysValues, ...]]:
        """Return logits [B, N, V] (at n for the token after tokens[:, n]) and the cache.

        Args:
            tokens: the decoder's input.
            cross: of `cross`.
            bias: of self-attention's scores, [B, H, N, T]; one for all layers, or one for each.
            source_bias: of cross-attention's scores, [B, 1, N, S].
            cache: of each layer, to be written into; None where tokens are the whole sequence.
            position: of tokens[:, 0] in the cache.
            deterministic: False in training, for dropout.
        """
        cfg = self.config
        biases = bias if isinstance(bias, tuple) else (bias,)
        drop = functools.partial(self.dropout, deterministic=deterministic)
        x = drop(self.shared_embedding(tokens))
        seen = []
        for i, layer in enumerate(self.layers):
            x, kept = layer(
                x,
                cross[i],
                biases[i % len(biases)],
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
        length = state.distance_bias.shape[1]
        slots = position[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)
        behind = slots[:, :, None] - jnp.arange(length, dtype=jnp.int32)
        hidden = jnp.where(behind < 0, layers.MASKED, 0.0).astype(jnp.float32)[:, None]
        # mode="clip": a key after the query gets row 0, beside which the mask is everything.
        biases = tuple(
            jnp.moveaxis(jnp.take(table, behind, axis=0, mode="clip"), -1, 1) + hidden
            for table in state.distance_bias
        )
        logits, cache = self(
            tokens,
            state.cross,
            biases,
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
        distance = distances(decoder_input.shape[1])
        causal = np.where(distance > 0, layers.MASKED, 0.0).astype(np.float32)
        biases = tuple(bias[None] + causal for bias in self.decoder.biases(distance))
        logits, _ = self.decoder(
            decoder_input,
            self.decoder.cross(encoded),
            biases,
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
