"""Two layouts of the same numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_t5s import ATOL, CONFIGS, small

from specdec_jax.t5 import layers
from specdec_jax.t5.expand import expand
from specdec_jax.t5.model import prepare


def leaves(params):
    found = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in found}


@pytest.mark.parametrize("family", CONFIGS)
def test_prepare_transposes_the_kernels_and_nothing_else(family):
    model = small(family)
    prepared = prepare(model, platform="cpu")
    assert prepared.config == dataclasses.replace(model.config, layout="feature_major")
    assert prepared.vocab_size == model.vocab_size
    before, after = leaves(model.params), leaves(prepared.params)
    assert list(before) == list(after)
    assert sum(name.endswith("kernel") for name in before) > 20
    for name, leaf in before.items():
        expected = leaf.T if name.endswith("kernel") else leaf
        np.testing.assert_array_equal(after[name], expected, err_msg=name)


def test_prepare_twice_is_prepare_once():
    once = prepare(small("1.1"), platform="cpu")
    twice = prepare(once, platform="cpu")
    assert twice.config == once.config
    assert all(
        a.unsafe_buffer_pointer() == b.unsafe_buffer_pointer()
        for a, b in zip(jax.tree.leaves(once), jax.tree.leaves(twice), strict=True)
    )


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_prepare_leaves_layouts_to_the_compilers_of_accelerators(platform):
    model = small("1.1")
    assert prepare(model, platform=platform).config == model.config
    # And takes the CPU's layout back.
    there_and_back = prepare(prepare(model, platform="cpu"), platform=platform)
    assert there_and_back.config == model.config
    jax.tree.map(np.testing.assert_array_equal, there_and_back.params, model.params)


def test_prepare_asks_jax_for_the_platform():
    expected = "feature_major" if jax.default_backend() == "cpu" else "token_major"
    assert prepare(small("1.1")).config.layout == expected


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_prepare_puts_parameters_on_the_device(platform):
    """Those of `expand` are numpy's; left there, every call would send them."""
    model = small("1.1")
    grown = expand(model, dataclasses.replace(model.config, emb_dim=32))
    prepared = prepare(grown, platform=platform)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(prepared))


def test_both_layouts_start_with_the_same_random_numbers():
    config = CONFIGS["1.1"]
    turned = dataclasses.replace(config, layout="feature_major")
    x, key = jnp.zeros((1, 2, config.emb_dim)), jax.random.key(3)
    plain = layers.Mlp(config).init(key, x)["params"]
    other = layers.Mlp(turned).init(key, jnp.moveaxis(x, -1, 0))["params"]
    assert list(leaves(plain)) == ["wi_0/kernel", "wi_1/kernel", "wo/kernel"]
    for name, leaf in leaves(plain).items():
        np.testing.assert_array_equal(leaves(other)[name], leaf.T, err_msg=name)


def test_the_initial_query_carries_t5_s_scale():
    """T5 leaves 1/sqrt(K) out of the scores and puts it into the initial values."""
    config = dataclasses.replace(CONFIGS["1.1"], emb_dim=64, num_heads=16, head_dim=16)
    attention = layers.Attention(config)
    x = jnp.zeros((1, 1, 64))
    query = attention.init(jax.random.key(0), x, method=lambda m, x: m.query(x))
    key = attention.init(jax.random.key(0), x, method=lambda m, x: m.key(x))
    # 16384 draws each: their standard deviation is known to 1%.
    assert jnp.std(leaves(query)["params/query/kernel"]) == pytest.approx(64**-0.5 / 4, rel=0.05)
    assert jnp.std(leaves(key)["params/key/kernel"]) == pytest.approx(64**-0.5, rel=0.05)


def test_multiply_is_the_product_over_features():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, 3, 5)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(5, 7)), jnp.float32)
    expected = np.einsum("bnd,df->bnf", x, kernel)
    token = layers.multiply(x, kernel, "token_major")
    feature = layers.multiply(jnp.moveaxis(x, -1, 0), kernel.T, "feature_major")
    np.testing.assert_allclose(token, expected, atol=ATOL)
    np.testing.assert_allclose(jnp.moveaxis(feature, 0, -1), expected, atol=ATOL)
