"""Sizes: those that people published, and what a configuration refuses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_t5s import CONFIGS, variables

from specdec_jax.t5.config import PRESETS, T5Config, preset


def count(params):
    return sum(leaf.size for leaf in jax.tree.leaves(params))


# Parameters, and those that a decoder step reads, both in millions; section 4.1 of the paper names
# 77M, 250M, 800M and 11B.
PUBLISHED = {
    "t5_1_1_small": (76.96, 38.5),
    "t5_1_1_base": (247.58, 123.8),
    "t5_1_1_large": (783.15, 391.5),
    "t5_1_1_xl": (2849.76, 1420),
    "t5_1_1_xxl": (11135.33, 5570),
    "t5_1_0_small": (60.51, None),
    "t5_1_0_base": (222.90, None),
    "t5_1_0_large": (737.67, None),
    "t5_1_0_xl": (2851.60, None),
    "t5_1_0_xxl": (11307.32, None),
}


def exact_count(config):
    """Of the network itself, from layers of the size: a stack is its first layer over and over."""
    once, twice = (count(variables(preset_of(config, layers))["params"]) for layers in (1, 2))
    assert config.num_encoder_layers == config.num_decoder_layers
    return once + (config.num_encoder_layers - 1) * (twice - once)


def preset_of(config, layers):
    return dataclasses.replace(config, num_encoder_layers=layers, num_decoder_layers=layers)


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_the_published_parameters(name):
    parameters, step = PUBLISHED[name]
    assert exact_count(PRESETS[name]) / 1e6 == pytest.approx(parameters, abs=0.005)
    if step is not None:
        # Printed with three digits.
        assert PRESETS[name].decoder_step_weights / 1e6 == pytest.approx(step, rel=5e-3)


def test_the_published_counts_hold_for_a_whole_network():
    assert count(variables(PRESETS["t5_1_1_small"])["params"]) == 76_961_152
    assert exact_count(PRESETS["t5_1_1_small"]) == 76_961_152


@pytest.mark.parametrize("family", CONFIGS)
def test_step_weights_are_the_matrices_that_a_step_multiplies_with(family):
    config = CONFIGS[family]
    params = variables(config)["params"]
    read = params["token_embedder"]["embedding"].size  # tied, or one row: then logits_dense below
    if not config.logits_via_embedding:
        read = params["decoder"]["logits_dense"]["kernel"].size
    for i in range(config.num_decoder_layers):
        layer = params["decoder"][f"layers_{i}"]
        kernels = [layer["self_attention"], layer["mlp"]]
        cross = layer["encoder_decoder_attention"]
        kernels.append({"query": cross["query"], "out": cross["out"]})
        read += count(kernels)
    assert config.decoder_step_weights == read


def test_gin_s_values_become_hashable():
    config = T5Config(mlp_activations=["gelu", "linear"], dtype="bfloat16")
    assert config == T5Config(mlp_activations=("gelu", "linear"), dtype=jnp.bfloat16)
    assert hash(config) == hash(
        T5Config(mlp_activations=("gelu", "linear"), dtype=np.dtype("bfloat16"))
    )
    assert config.dtype == jnp.dtype("bfloat16")


def test_names():
    assert preset("base") is not preset("t5_1_0_base")
    assert preset("base") == preset("t5_1_1_base") == PRESETS["t5_1_1_base"]
    assert preset("t5_1_0_small", dropout_rate=0.0) == T5Config(
        logits_via_embedding=True, dropout_rate=0.0
    )
    assert preset("xxl").describe() == "D4096 H64x64 F10240 24+24 V32128"


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"No T5 is called 'huge'; the presets are t5_1_0_tiny, "):
        preset("huge")


@pytest.mark.parametrize("name", ["vocab_size", "emb_dim", "num_heads", "num_decoder_layers"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is 0, but must be at least 1"):
        preset("base", **{name: 0})
