"""Our T5 with the methods that T5X calls, so that T5X trains, scores and decodes it as its own.

Parameters, their names and logical axes come from the same modules as `specdec_jax.t5.network`.
What is added is T5X's calling convention, packed rows, and the Flax cache of its stock decoding
functions, one token for each call: the baseline of every comparison.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array, Float, Int
from specdec_jax.t5 import layers
from specdec_jax.t5.cache import KeysValues, T5State
from specdec_jax.t5.config import T5Config as T5Config
from specdec_jax.t5.network import Decoder, Encoder, padding_bias, segment_bias
from specdec_jax.t5.relative_bias import distances


class Transformer(nn.Module):
    """T5 as T5X's `EncoderDecoderModel` calls it.

    Attributes:
        config: sizes and dtype; the layout stays token-major, that of T5X's checkpoints.
    """

    config: T5Config

    def setup(self):  # noqa: D102
        cfg = self.config
        self.token_embedder = layers.Embed(cfg)
        self.encoder = Encoder(cfg, self.token_embedder)
        self.decoder = Decoder(cfg, self.token_embedder)

    def encode(
        self,
        encoder_input_tokens: Int[Array, "B S"] | Float[Array, "B S"],
        encoder_segment_ids: Int[Array, "B S"] | None = None,
        enable_dropout: bool = True,
    ) -> Float[Array, "B S D"]:
        """Run the encoder; token 0 is padding."""
        return self.encoder(
            _ids(encoder_input_tokens), not enable_dropout, segments=encoder_segment_ids
        )

    def decode(
        self,
        encoded: Float[Array, "B S D"],
        encoder_input_tokens: Int[Array, "B S"] | Float[Array, "B S"],
        decoder_input_tokens: Int[Array, "B N"] | Float[Array, "B N"],
        decoder_target_tokens: Int[Array, "B N"] | Float[Array, "B N"],
        encoder_segment_ids: Int[Array, "B S"] | None = None,
        decoder_segment_ids: Int[Array, "B N"] | None = None,
        decoder_positions: Int[Array, "B N"] | None = None,
        enable_dropout: bool = True,
        decode: bool = False,
        max_decode_length: int | None = None,
    ) -> Float[Array, "B N V"]:
        """Return float32 logits, at n for the token that follows decoder_input_tokens[:, n].

        Args:
            encoded: the encoder's output.
            encoder_input_tokens: for the padding.
            decoder_input_tokens: the target shifted right; one token when `decode` is set.
            decoder_target_tokens: not read: what a padded target hides, its loss weights hide too.
            encoder_segment_ids: of packed rows.
            decoder_segment_ids: of packed rows.
            decoder_positions: not read, T5's positions are relative.
            enable_dropout: in training.
            decode: read one token against the `cache` collection, and advance it. Without a cache
                yet, lay out an empty one with as many slots as there are tokens.
            max_decode_length: not read, the cache knows its length.
        """
        source, tokens = _ids(encoder_input_tokens), _ids(decoder_input_tokens)
        if decode and self.has_variable("cache", "cache_index"):
            return self._step(encoded, source, tokens)
        if decode:
            self._put(self.decoder.start(encoded, source, tokens.shape[1]), 0)
        distance = distances(tokens.shape[1])
        causal = np.where(distance > 0, layers.MASKED, 0.0).astype(np.float32)
        biases = tuple(bias[None] + causal for bias in self.decoder.biases(distance))
        source_bias = padding_bias(source)
        if decoder_segment_ids is not None and encoder_segment_ids is not None:
            apart = segment_bias(decoder_segment_ids, decoder_segment_ids)
            biases = tuple(bias + apart for bias in biases)
            source_bias = source_bias + segment_bias(decoder_segment_ids, encoder_segment_ids)
        logits, _ = self.decoder(
            tokens,
            self.decoder.cross(encoded),
            biases,
            source_bias,
            deterministic=not enable_dropout,
        )
        return logits

    def __call__(
        self,
        encoder_input_tokens: Int[Array, "B S"] | Float[Array, "B S"],
        decoder_input_tokens: Int[Array, "B N"] | Float[Array, "B N"],
        decoder_target_tokens: Int[Array, "B N"] | Float[Array, "B N"],
        encoder_segment_ids: Int[Array, "B S"] | None = None,
        decoder_segment_ids: Int[Array, "B N"] | None = None,
        encoder_positions: Int[Array, "B S"] | None = None,
        decoder_positions: Int[Array, "B N"] | None = None,
        *,
        enable_dropout: bool = True,
        decode: bool = False,
    ) -> Float[Array, "B N V"]:
        """Run encoder and decoder; the arguments are those of `encode` and `decode`."""
        encoded = self.encode(encoder_input_tokens, encoder_segment_ids, enable_dropout)
        return self.decode(
            encoded,
            encoder_input_tokens,
            decoder_input_tokens,
            decoder_target_tokens,
            encoder_segment_ids,
            decoder_segment_ids,
            decoder_positions,
            enable_dropout,
            decode,
        )

    def _step(
        self, encoded: Float[Array, "B S D"], source: Int[Array, "B S"], token: Int[Array, "B 1"]
    ) -> Float[Array, "B 1 V"]:
        index = self.get_variable("cache", "cache_index")
        cache = tuple(
            KeysValues(
                self.get_variable("cache", f"key_{i}"), self.get_variable("cache", f"value_{i}")
            )
            for i in range(self.config.num_decoder_layers)
        )
        state = T5State(
            cache=cache,
            # As in T5X's own network: projected in every step, unless the compiler hoists it.
            cross=self.decoder.cross(encoded),
            source_bias=padding_bias(source),
            distance_bias=self.decoder.distance_bias(cache[0].keys.shape[2]),
        )
        position = jnp.broadcast_to(index, token.shape[:1])
        logits, state = self.decoder.extend(state, token, position)
        self._put(state, index + 1)
        return logits

    def _put(self, state: T5State, index: Any) -> None:
        """Store the cache under names that T5X's `cache_map` expands by row, the index aside."""
        for i, (keys, values) in enumerate(state.cache):
            self.put_variable("cache", f"key_{i}", keys)
            self.put_variable("cache", f"value_{i}", values)
        self.put_variable("cache", "cache_index", jnp.asarray(index, jnp.int32))


def _ids(tokens: Array) -> Int[Array, "B N"]:
    """Return token ids as int32: to initialise parameters, T5X passes ones of float32."""
    return tokens.astype(jnp.int32)


def config_of(module: nn.Module) -> T5Config:
    """Return the sizes of a T5X T5 network: ours, or one with a config of the same fields.

    Raises:
        SpecdecError: for a network whose parameters are laid out otherwise.
    """
    config = getattr(module, "config", None)
    if isinstance(config, T5Config):
        return config
    names = ("vocab_size", "emb_dim", "num_heads", "head_dim", "mlp_dim", "mlp_activations")
    names += ("num_encoder_layers", "num_decoder_layers", "logits_via_embedding", "dtype")
    missing = [name for name in names if not hasattr(config, name)]
    if missing or getattr(module, "scan_layers", False) or getattr(config, "scan_layers", False):
        raise SpecdecError(
            f"{type(module).__module__}.{type(module).__name__} is no T5 with unrolled layers "
            f"({', '.join(missing) or 'scan_layers is set'}): bind "
            "specdec_jax.t5x_plugin.network.Transformer, which reads the same checkpoints."
        )
    known = {field.name for field in dataclasses.fields(T5Config)} - {"layout"}
    return T5Config(**{name: getattr(config, name) for name in known if hasattr(config, name)})
