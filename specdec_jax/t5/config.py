"""Sizes of a T5, and the sizes that people use.

Field names are those of T5X's ``T5Config``, so that a gin file written for T5X configures this
network as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import ml_dtypes  # noqa: F401  (teaches numpy the name bfloat16; importing JAX would take seconds)
import numpy as np

from specdec_jax.errors import SpecdecError

Layout = Literal["token_major", "feature_major"]
_SIZES = (
    "vocab_size",
    "emb_dim",
    "num_heads",
    "head_dim",
    "mlp_dim",
    "num_encoder_layers",
    "num_decoder_layers",
)


@dataclasses.dataclass(frozen=True)
class T5Config:
    """Hyperparameters of one T5; hashable, hence static under ``jax.jit``.

    Attributes:
        vocab_size: V, rows of the embedding; 32128 in most public checkpoints, of which the last
            28 are padding.
        emb_dim: D, features of the residual stream.
        num_heads: H.
        head_dim: K; T5 does not need H K = D.
        mlp_dim: F, hidden features of the feed-forward layer.
        num_encoder_layers: layers of the encoder.
        num_decoder_layers: layers of the decoder.
        mlp_activations: ``('relu',)`` in T5 1.0, ``('gelu', 'linear')`` (gated) in 1.1.
        logits_via_embedding: whether the embedding is the output matrix too (T5 1.0); the decoder's
            output is then scaled by D**-0.5.
        relative_attention_num_buckets: columns of a relative-bias table.
        relative_attention_max_distance: distances from here on share the last bucket.
        relative_bias_per_layer: whether every layer has a table of its own (umT5, and T5X's
            ``scalable_t5``); otherwise the layers of a stack share one.
        dropout_rate: used in training only.
        dtype: of the activations; parameters stay as they were given, logits are always float32.
        layout: how matrices and activations lie in memory, see `specdec_jax.t5.layers`. Set by
            `specdec_jax.t5.prepare`, not by hand: the parameters have to agree.
    """

    vocab_size: int = 32128
    emb_dim: int = 512
    num_heads: int = 8
    head_dim: int = 64
    mlp_dim: int = 2048
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    mlp_activations: Sequence[str] = ("relu",)
    logits_via_embedding: bool = False
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    relative_bias_per_layer: bool = False
    dropout_rate: float = 0.1
    dtype: Any = np.float32
    layout: Layout = "token_major"

    def __post_init__(self):
        """Bring gin's lists and dtype names into hashable form, and refuse sizes below one."""
        object.__setattr__(self, "mlp_activations", tuple(self.mlp_activations))
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise SpecdecError(f"{name} is {getattr(self, name)}, but must be at least 1.")

    @property
    def decoder_step_weights(self) -> int:
        """Parameters that one decoder step reads, the unit of the paper's c-hat (Definition 3.10).

        Cross-attention keys and values are projected once for each source, hence not counted.
        """
        attention = self.emb_dim * self.num_heads * self.head_dim
        mlp = (len(self.mlp_activations) + 1) * self.emb_dim * self.mlp_dim
        return self.num_decoder_layers * (6 * attention + mlp) + self.emb_dim * self.vocab_size

    def describe(self) -> str:
        """Return one line with the sizes, as ``D768 H12x64 F2048 12+12 V32128``."""
        layers = f"{self.num_encoder_layers}+{self.num_decoder_layers}"
        heads = f"H{self.num_heads}x{self.head_dim}"
        return f"D{self.emb_dim} {heads} F{self.mlp_dim} {layers} V{self.vocab_size}"


def _sizes(d: int, heads: int, head_dim: int, mlp: int, layers: int) -> dict[str, Any]:
    return {
        "emb_dim": d,
        "num_heads": heads,
        "head_dim": head_dim,
        "mlp_dim": mlp,
        "num_encoder_layers": layers,
        "num_decoder_layers": layers,
    }


_T5_1_0 = {
    "tiny": _sizes(8, 4, 3, 16, 2),
    "small": _sizes(512, 8, 64, 2048, 6),
    "base": _sizes(768, 12, 64, 3072, 12),
    "large": _sizes(1024, 16, 64, 4096, 24),
    "xl": _sizes(1024, 32, 128, 16384, 24),
    "xxl": _sizes(1024, 128, 128, 65536, 24),
}
_T5_1_1 = {
    "tiny": _sizes(8, 4, 3, 16, 2),
    "small": _sizes(512, 6, 64, 1024, 8),
    "base": _sizes(768, 12, 64, 2048, 12),
    "large": _sizes(1024, 16, 64, 2816, 24),
    "xl": _sizes(2048, 32, 64, 5120, 24),
    "xxl": _sizes(4096, 64, 64, 10240, 24),
}
PRESETS: dict[str, T5Config] = {
    **{f"t5_1_0_{k}": T5Config(**v, logits_via_embedding=True) for k, v in _T5_1_0.items()},
    **{
        f"t5_1_1_{k}": T5Config(**v, mlp_activations=("gelu", "linear")) for k, v in _T5_1_1.items()
    },
}


def preset(name: str, **changes: Any) -> T5Config:
    """Return a public T5's configuration by name.

    Args:
        name: ``t5_1_1_base`` and the like; ``base`` alone means T5 1.1, the paper's family.
        **changes: fields to replace.

    Raises:
        SpecdecError: for an unknown name, with the known ones.

    Example:
        >>> preset("xxl").describe()
        'D4096 H64x64 F10240 24+24 V32128'
        >>> preset("t5_1_0_small").logits_via_embedding
        True
    """
    full = name if name in PRESETS else f"t5_1_1_{name}"
    if full not in PRESETS:
        raise SpecdecError(f"No T5 is called {name!r}; the presets are {', '.join(PRESETS)}.")
    return dataclasses.replace(PRESETS[full], **changes)
