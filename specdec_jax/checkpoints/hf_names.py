"""Hugging Face's names and sizes of a T5, and T5X's.

Hugging Face's linear layers hold ``weight`` as [out, in], T5X's ``kernel`` is [in, out]; a relative
bias is [buckets, H] there and [H, buckets] here. Norms and the embedding lie alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec_jax.errors import SpecdecError
from specdec_jax.t5.config import T5Config

_PARTS = {"query": "q", "key": "k", "value": "v", "out": "o"}
_BLOCKS = {
    "attention": "layer.0.SelfAttention",
    "self_attention": "layer.0.SelfAttention",
    "encoder_decoder_attention": "layer.1.EncDecAttention",
}
_NORMS = {
    "pre_attention_layer_norm": 0,
    "pre_self_attention_layer_norm": 0,
    "pre_cross_attention_layer_norm": 1,
}
_LAST = {"encoder": 1, "decoder": 2}

UNUSED = frozenset(
    {
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    }
)
"""Copies of the shared embedding, and a table that early T5 files hold and no T5 reads."""


def hf_name(name: str) -> tuple[str, bool]:
    """Return Hugging Face's name of a T5X parameter, and whether it lies transposed there.

    Example:
        >>> hf_name("decoder/layers_1/mlp/wo/kernel")
        ('decoder.block.1.layer.2.DenseReluDense.wo.weight', True)
        >>> hf_name("encoder/layers_0/pre_mlp_layer_norm/scale")
        ('encoder.block.0.layer.1.layer_norm.weight', False)
    """
    if name == "token_embedder/embedding":
        return "shared.weight", False
    if name == "decoder/logits_dense/kernel":
        return "lm_head.weight", True
    stack, *rest = name.split("/")
    if rest[0] == "relpos_bias":
        return f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", True
    if rest[0] == f"{stack}_norm":
        return f"{stack}.final_layer_norm.weight", False
    layer = f"{stack}.block.{rest[0].removeprefix('layers_')}"
    if rest[1] == "relpos_bias":
        return f"{layer}.layer.0.SelfAttention.relative_attention_bias.weight", True
    if rest[-1] == "scale":
        return f"{layer}.layer.{_NORMS.get(rest[1], _LAST[stack])}.layer_norm.weight", False
    if rest[1] == "mlp":
        return f"{layer}.layer.{_LAST[stack]}.DenseReluDense.{rest[2]}.weight", True
    return f"{layer}.{_BLOCKS[rest[1]]}.{_PARTS[rest[2]]}.weight", True


_FAMILIES = ("t5", "mt5", "byt5", "umt5")
_REFUSED = {
    "longt5": "its encoder attends locally or to global blocks, this network attends to all tokens",
    "switch_transformers": "its feed-forward layers are mixtures of experts",
    "t5gemma": "its layers are Gemma's",
    "pix2struct": "its encoder reads images",
}
_GATES = {"gelu": "gelu", "gelu_new": "gelu", "silu": "silu", "swish": "silu", "relu": "relu"}
_PLAIN = {"relu": "relu", "gelu_new": "gelu", "silu": "silu", "swish": "silu"}


def config_from_hf(content: Mapping[str, Any], *, where: Path) -> T5Config:
    """Return the sizes in a ``config.json``; the output matrix is taken to be untied.

    Raises:
        SpecdecError: another architecture, with the reason; or a field is missing or has a value
            that this network does not compute.
    """
    kind = content.get("model_type")
    if kind not in _FAMILIES:
        reason = _REFUSED.get(str(kind), f"known are {', '.join(_FAMILIES)}")
        raise SpecdecError(f"{where} is a model of type {kind!r}: {reason}; give a T5.")
    for field, wanted in (("pad_token_id", 0), ("layer_norm_epsilon", 1e-6)):
        if content.get(field, wanted) != wanted:
            raise SpecdecError(
                f"{where}: {field} is {content[field]!r}, this network computes with {wanted!r}."
            )
    if content.get("decoder_start_token_id", 0) not in (0, None):
        raise SpecdecError(
            f"{where}: decoder_start_token_id is {content['decoder_start_token_id']!r}; "
            "a T5's decoder starts from the pad id 0."
        )
    default = "gated-gelu" if kind in ("mt5", "umt5") else "relu"
    projection = content.get("feed_forward_proj", default)
    gate, _, name = projection.rpartition("-")
    known = {"": _PLAIN, "gated": _GATES}.get(gate, {})
    if name not in known:
        raise SpecdecError(
            f"{where}: feed_forward_proj is {projection!r}; known are "
            f"{', '.join([*_PLAIN, *(f'gated-{g}' for g in _GATES)])}."
        )
    try:
        return T5Config(
            vocab_size=content["vocab_size"],
            emb_dim=content["d_model"],
            num_heads=content["num_heads"],
            head_dim=content["d_kv"],
            mlp_dim=content["d_ff"],
            num_encoder_layers=content["num_layers"],
            num_decoder_layers=content.get("num_decoder_layers") or content["num_layers"],
            mlp_activations=(known[name], "linear") if gate else (known[name],),
            logits_via_embedding=False,
            relative_attention_num_buckets=content.get("relative_attention_num_buckets", 32),
            relative_attention_max_distance=content.get("relative_attention_max_distance", 128),
            relative_bias_per_layer=kind == "umt5",
            dropout_rate=float(content.get("dropout_rate", 0.1)),
        )
    except (KeyError, TypeError) as error:
        raise SpecdecError(f"{where} lacks a size, or has a malformed one: {error}.") from error


def config_to_hf(config: T5Config, *, dtype: str) -> dict[str, Any]:
    """Return the ``config.json`` of a T5.

    Raises:
        SpecdecError: Hugging Face has no name for the activations.
    """
    gated = len(config.mlp_activations) == 2 and config.mlp_activations[1] == "linear"
    name = {"gelu": "gelu_new"}.get(config.mlp_activations[0], config.mlp_activations[0])
    if name not in _PLAIN or not (gated or len(config.mlp_activations) == 1):
        raise SpecdecError(
            f"Hugging Face's T5 has no feed-forward layer of {config.mlp_activations}; "
            "keep this model in T5X's or our own format."
        )
    projection = f"gated-{name}".replace("gelu_new", "gelu") if gated else name
    kind = "umt5" if config.relative_bias_per_layer else "t5"
    return {
        "architectures": [f"{kind.upper()}ForConditionalGeneration"],
        "model_type": kind,
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.emb_dim,
        "num_heads": config.num_heads,
        "d_kv": config.head_dim,
        "d_ff": config.mlp_dim,
        "num_layers": config.num_encoder_layers,
        "num_decoder_layers": config.num_decoder_layers,
        "feed_forward_proj": projection,
        "relative_attention_num_buckets": config.relative_attention_num_buckets,
        "relative_attention_max_distance": config.relative_attention_max_distance,
        "layer_norm_epsilon": 1e-6,
        "dropout_rate": config.dropout_rate,
        # False also tells Hugging Face not to scale the decoder's output by D**-0.5.
        "tie_word_embeddings": config.logits_via_embedding,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "torch_dtype": dtype,
    }


def scales_output(content: Mapping[str, Any]) -> bool:
    """Return whether the decoder's output is scaled by D**-0.5, which is so where it is tied.

    Since version 5 transformers writes ``tie_word_embeddings: true`` for every T5 and tells the
    scale apart; its mT5 never scales.
    """
    if content.get("model_type") == "mt5":
        return False
    return content.get("scale_decoder_outputs", content.get("tie_word_embeddings", True))
