"""The parameter tree is T5X's: names, shapes, logical axes, written out for a tiny T5."""

import dataclasses
from typing import Any

import pytest
from flax import traverse_util
from small_t5s import variables

from specdec_jax.checkpoints import tree
from specdec_jax.t5.config import T5Config

TINY = T5Config(
    vocab_size=40,
    emb_dim=8,
    num_heads=2,
    head_dim=3,
    mlp_dim=12,
    num_encoder_layers=1,
    num_decoder_layers=2,
)
CONFIGS = {
    "1.0": dataclasses.replace(TINY, logits_via_embedding=True),
    "1.1": dataclasses.replace(TINY, mlp_activations=("gelu", "linear")),
}


def attention(name):
    return f"""
        {name}/query/kernel  8 6   embed joined_kv
        {name}/key/kernel    8 6   embed joined_kv
        {name}/value/kernel  8 6   embed joined_kv
        {name}/out/kernel    6 8   joined_kv embed
    """


def decoder_layer(i):
    layer = f"decoder/layers_{i}"
    return (
        f"""
        {layer}/pre_self_attention_layer_norm/scale   8   embed
        {layer}/pre_cross_attention_layer_norm/scale  8   embed
        {layer}/pre_mlp_layer_norm/scale              8   embed
    """
        + attention(f"{layer}/self_attention")
        + attention(f"{layer}/encoder_decoder_attention")
    )


BOTH = (
    """
        token_embedder/embedding                       40 8  vocab embed
        encoder/relpos_bias/rel_embedding              2 32  heads relpos_buckets
        encoder/layers_0/pre_attention_layer_norm/scale  8   embed
        encoder/layers_0/pre_mlp_layer_norm/scale        8   embed
        encoder/encoder_norm/scale                       8   embed
        decoder/relpos_bias/rel_embedding              2 32  heads relpos_buckets
        decoder/decoder_norm/scale                       8   embed
    """
    + attention("encoder/layers_0/attention")
    + decoder_layer(0)
    + decoder_layer(1)
)
LAYERS = ("encoder/layers_0", "decoder/layers_0", "decoder/layers_1")
LISTINGS = {
    "1.0": BOTH
    + "".join(
        f"""
        {layer}/mlp/wi/kernel    8 12  embed mlp
        {layer}/mlp/wo/kernel    12 8  mlp embed
        """
        for layer in LAYERS
    ),
    "1.1": BOTH
    + "decoder/logits_dense/kernel  8 40  embed vocab"
    + "".join(
        f"""
        {layer}/mlp/wi_0/kernel  8 12  embed mlp
        {layer}/mlp/wi_1/kernel  8 12  embed mlp
        {layer}/mlp/wo/kernel    12 8  mlp embed
        """
        for layer in LAYERS
    ),
}


def expected(family):
    """Name -> (shape, axes)."""
    rows = [line.split() for line in LISTINGS[family].splitlines() if line.strip()]
    return {
        name: (
            tuple(int(word) for word in rest if word.isdigit()),
            tuple(word for word in rest if not word.isdigit()),
        )
        for name, *rest in rows
    }


def found(config):
    """The network's own, with T5X's rule that the axes of `x` are named `x_axes`."""
    made = variables(config)
    params: Any = traverse_util.flatten_dict(made["params"], sep="/")
    axes: Any = traverse_util.flatten_dict(made["params_axes"], sep="/")
    assert set(axes) == {f"{name}_axes" for name in params}
    assert {leaf.dtype.name for leaf in params.values()} == {"float32"}
    return {name: (leaf.shape, tuple(axes[f"{name}_axes"].names)) for name, leaf in params.items()}


@pytest.mark.parametrize("family", CONFIGS)
def test_names_shapes_and_axes_are_t5x_s(family):
    assert len(expected(family)) == {"1.0": 39, "1.1": 43}[family]
    assert found(CONFIGS[family]) == expected(family)


@pytest.mark.parametrize("family", CONFIGS)
def test_feature_major_kernels_are_the_transposes(family):
    config = dataclasses.replace(CONFIGS[family], layout="feature_major")
    turned = {
        name: (shape[::-1], axes[::-1]) if name.endswith("kernel") else (shape, axes)
        for name, (shape, axes) in expected(family).items()
    }
    assert found(config) == turned


@pytest.mark.parametrize("family", CONFIGS)
def test_the_written_out_listing_of_checkpoints_is_the_network_s(family):
    """`checkpoints` knows the tree without Flax."""
    shapes = {name: shape for name, (shape, _) in found(CONFIGS[family]).items()}
    assert tree.shapes(CONFIGS[family]) == shapes
