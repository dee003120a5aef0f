"""A larger shape, the same function."""

import dataclasses

import jax
import numpy as np
import pytest
from small_t5s import ATOL, CONFIGS, SOURCE, TOKENS, forward, random_params, variables

from specdec_jax.t5.config import preset
from specdec_jax.t5.expand import expand
from specdec_jax.t5.model import T5, prepare, t5

SMALL = {family: dataclasses.replace(config, emb_dim=8) for family, config in CONFIGS.items()}
LARGER = {
    "emb_dim": 24,
    "num_heads": 7,  # 3 heads: one is there three times, two twice
    "head_dim": 6,
    "mlp_dim": 50,  # 20 units: ten of them three times
    "num_encoder_layers": 2,
    "num_decoder_layers": 4,
    "vocab_size": 31,
}


def model(family, **changes) -> T5:
    config = dataclasses.replace(SMALL[family], **changes)
    return t5(random_params(config), config, config.vocab_size - 2)


def assert_same(old: T5, new: T5):
    """In float64 they are equal; float32 rounds either, and the larger one sums more terms."""
    used = old.vocab_size
    assert new.vocab_size == used
    expected = np.asarray(forward(old, SOURCE % used, TOKENS % used))[..., :used]
    found = np.asarray(forward(new, SOURCE % used, TOKENS % used))[..., :used]
    assert expected.std() > 0.5
    np.testing.assert_allclose(found, expected, atol=2 * ATOL)


def assert_shaped(new: T5):
    wanted = variables(new.config)["params"]
    assert jax.tree.structure(new.params) == jax.tree.structure(wanted)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), new.params) == jax.tree.map(
        lambda x: (x.shape, x.dtype), wanted
    )


@pytest.mark.parametrize(
    ("family", "tied"), [("1.0", True), ("1.0", False), ("1.1", False)], ids=str
)
def test_everything_at_once(family, tied):
    """Uneven multiples throughout; tied to tied, tied to untied, untied to untied."""
    old = model(family)
    wanted = dataclasses.replace(SMALL[family], **LARGER, logits_via_embedding=tied)
    new = expand(old, wanted)
    assert new.config == wanted
    assert_shaped(new)
    assert_same(old, new)
    # Dense: a matrix of zeros would be free to multiply with. New layers' outputs alone are zero.
    zero = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, leaf in jax.tree_util.tree_leaves_with_path(new.params)
        if not np.any(leaf)
    }
    assert {name.rsplit("/", 2)[1] for name in zero} == {"out", "wo"}
    assert len(zero) == 1 * 2 + 2 * 3
    assert not any("encoder/layers_0" in name for name in zero)
    assert not any("decoder/layers_0" in name or "decoder/layers_3" in name for name in zero)


@pytest.mark.parametrize("name", ["emb_dim", "num_heads", "head_dim", "mlp_dim", "vocab_size"])
def test_each_size_alone(name):
    old = model("1.1", num_decoder_layers=1)
    wanted = dataclasses.replace(old.config, **{name: LARGER[name]})
    assert_same(old, expand(old, wanted))


def test_the_same_size_is_the_same_model():
    old = model("1.1")
    jax.tree.map(np.testing.assert_array_equal, expand(old, old.config).params, old.params)


@pytest.mark.parametrize("name", ["t5_1_0_tiny", "t5_1_1_small"])
def test_shapes_are_a_preset_s(name):
    family = name[3:6].replace("_", ".")
    config = dataclasses.replace(preset(name), num_encoder_layers=1, num_decoder_layers=1)
    old = {"emb_dim": 8, "num_heads": 3, "head_dim": 3, "mlp_dim": 16}
    new = expand(model(family, **old, num_decoder_layers=1), config)
    assert_shaped(new)
    assert new.config == config


def test_dtypes():
    """The activations' stays the model's; parameters of any dtype become float32, all of them."""
    old = model("1.1", dtype="bfloat16")
    held = jax.tree.map(lambda x: x.astype(old.config.dtype), old.params)
    new = expand(dataclasses.replace(old, params=held), preset("small", num_decoder_layers=2))
    assert new.config.dtype == old.config.dtype
    assert {leaf.dtype for leaf in jax.tree.leaves(new.params)} == {np.dtype("float32")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 22}, "vocab_size cannot shrink from 23 to 22: choose a larger shape"),
        ({"num_heads": 2}, "num_heads cannot shrink from 3 to 2"),
        ({"head_dim": 3}, "head_dim cannot shrink from 4 to 3"),
        ({"mlp_dim": 19}, "mlp_dim cannot shrink from 20 to 19"),
        ({"num_decoder_layers": 1}, "num_decoder_layers cannot shrink from 2 to 1"),
        ({"emb_dim": 20}, "emb_dim 20 is no multiple of the model's 8: tiling keeps"),
        ({"emb_dim": 4}, "emb_dim 4 is no multiple of the model's 8"),
        ({"mlp_activations": ("relu",)}, r"is \('gelu', 'linear'\) and the wanted one \('relu',\)"),
        ({"logits_via_embedding": True}, "not tied cannot become tied: set the shape's to untied"),
    ],
)
def test_what_cannot_be_reached_is_refused(changes, message):
    old = model("1.1")
    with pytest.raises(ValueError, match=message):
        expand(old, dataclasses.replace(old.config, **changes))


def test_a_prepared_model_is_refused():
    old = model("1.1")
    with pytest.raises(ValueError, match="needs a token-major model: call it before prepare"):
        expand(prepare(old, platform="cpu"), old.config)
