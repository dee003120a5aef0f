"""The network against a T5 written down once more, in float64 numpy, and its uses of a source."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from small_t5s import (
    ATOL,
    KINDS,
    LAYOUTS,
    QUICK,
    ROWS,
    SLOTS,
    SOURCE,
    TOKENS,
    extend,
    forward,
    small,
    start,
)

from specdec_jax.t5 import relative_bias
from specdec_jax.t5.model import t5
from specdec_jax.t5.network import Transformer

ZERO = jnp.zeros(ROWS, jnp.int32)


def exact_bucket(distance, *, bidirectional, buckets, farthest):
    """T5's bucket of a distance in integer arithmetic, so no logarithm can round over a border."""
    behind = -distance
    offset = 0
    if bidirectional:
        buckets //= 2
        offset = buckets if behind < 0 else 0
        behind = abs(behind)
    behind, exact = max(behind, 0), buckets // 2
    if behind < exact:
        return offset + behind
    # The largest k with log(behind / exact) / log(farthest / exact) * (buckets - exact) >= k.
    far = buckets - exact
    k = 0
    while k < far - 1 and behind**far * exact ** (k + 1) >= farthest ** (k + 1) * exact**far:
        k += 1
    return offset + exact + k


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (16, 50), (8, 20)])
def test_buckets_are_t5_s_at_every_distance(bidirectional, buckets, farthest):
    distances = np.arange(-700, 701)
    found = relative_bias.bucket(
        distances, bidirectional=bidirectional, num_buckets=buckets, max_distance=farthest
    )
    expected = [
        exact_bucket(int(d), bidirectional=bidirectional, buckets=buckets, farthest=farthest)
        for d in distances
    ]
    assert found.dtype == np.int32
    assert found.tolist() == expected
    used = set(range(buckets))
    # Distance 0 belongs to the keys behind, so the first bucket of the keys ahead is T5's waste.
    assert set(expected) == (used - {buckets // 2} if bidirectional else used)


def reference(model, source, tokens):
    """T5 from its paper, one sequence: no layout, no cache, no batch, no float32."""
    cfg = model.config
    tree = jax.tree.map(lambda x: np.asarray(x, np.float64), model.params)

    def norm(x, part):
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6) * part["scale"]

    def attend(x, memory, part, bias):
        heads = []
        for h in range(cfg.num_heads):
            one = slice(h * cfg.head_dim, (h + 1) * cfg.head_dim)
            q, k, v = (
                y @ part[name]["kernel"][:, one]
                for y, name in ((x, "query"), (memory, "key"), (memory, "value"))
            )
            heads.append(scipy.special.softmax(q @ k.T + bias[h], -1) @ v)
        return np.concatenate(heads, -1) @ part["out"]["kernel"]

    def mlp(x, part):
        if "wi" in part:
            return np.maximum(x @ part["wi"]["kernel"], 0) @ part["wo"]["kernel"]
        u = x @ part["wi_0"]["kernel"]
        gelu = u / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        return gelu * (x @ part["wi_1"]["kernel"]) @ part["wo"]["kernel"]

    def bias(part, count, bidirectional):
        table = part["relpos_bias"]["rel_embedding"]
        return np.array(
            [
                [
                    table[
                        :,
                        exact_bucket(k - q, bidirectional=bidirectional, buckets=32, farthest=128),
                    ]
                    for k in range(count)
                ]
                for q in range(count)
            ]
        ).transpose(2, 0, 1)

    embedding, encoder, decoder = (tree[n] for n in ("token_embedder", "encoder", "decoder"))
    embedding = embedding["embedding"]
    source = source[source > 0]
    x = embedding[source]
    seen = bias(encoder, len(source), True)
    for i in range(cfg.num_encoder_layers):
        part = encoder[f"layers_{i}"]
        h = norm(x, part["pre_attention_layer_norm"])
        x = x + attend(h, h, part["attention"], seen)
        x = x + mlp(norm(x, part["pre_mlp_layer_norm"]), part["mlp"])
    memory = norm(x, encoder["encoder_norm"])

    x, count = embedding[tokens], len(tokens)
    seen = bias(decoder, count, False) + np.where(np.tri(count, dtype=bool), 0, -np.inf)
    nothing = np.zeros(cfg.num_heads)
    for i in range(cfg.num_decoder_layers):
        part = decoder[f"layers_{i}"]
        h = norm(x, part["pre_self_attention_layer_norm"])
        x = x + attend(h, h, part["self_attention"], seen)
        h = norm(x, part["pre_cross_attention_layer_norm"])
        x = x + attend(h, memory, part["encoder_decoder_attention"], nothing)
        x = x + mlp(norm(x, part["pre_mlp_layer_norm"]), part["mlp"])
    x = norm(x, decoder["decoder_norm"])
    if cfg.logits_via_embedding:
        return x @ embedding.T / math.sqrt(cfg.emb_dim)
    return x @ decoder["logits_dense"]["kernel"]


@pytest.mark.parametrize(("family", "layout"), KINDS)
def test_logits_are_those_of_t5(family, layout):
    logits = forward(small(family, layout), SOURCE, TOKENS)
    assert logits.shape == (ROWS, 20, 23)
    assert logits.dtype == jnp.float32
    for row in range(ROWS):
        expected = reference(small(family), np.array(SOURCE[row]), np.array(TOKENS[row]))
        assert expected.std() > 0.5
        np.testing.assert_allclose(logits[row], expected, atol=ATOL)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_padding_of_the_source_changes_nothing(layout):
    model = small("1.1", layout)
    narrow = forward(model, SOURCE, TOKENS)
    wide = forward(model, jnp.pad(SOURCE, ((0, 0), (0, 6))), TOKENS)
    # exp(-1e10) is an exact zero; wider sums may associate otherwise.
    np.testing.assert_allclose(wide, narrow, atol=ATOL)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_source_gives_finite_logits(layout):
    model = small("1.1", layout)
    source = SOURCE.at[1].set(0)
    logits = forward(model, source, TOKENS)
    assert np.all(np.isfinite(logits))
    # And leaves its batch mates alone.
    others = np.array([0, 2])
    np.testing.assert_array_equal(logits[others], forward(model, SOURCE, TOKENS)[others])
    block, _ = extend(model, start(model, source, SLOTS), TOKENS[:, :4], ZERO)
    np.testing.assert_allclose(block, logits[:, :4], atol=ATOL)


@pytest.mark.parametrize(
    ("layout", "stored"), [("token_major", "bfloat16"), ("feature_major", "float32")]
)
def test_bfloat16_activations_give_float32_logits(layout, stored):
    """Whatever the parameters are stored in; the cache holds bfloat16."""
    model = small("1.1", layout, dtype="bfloat16")
    held = jax.tree.map(lambda x: x.astype(stored), model.params)
    model = dataclasses.replace(model, params=held)
    state = start(model, SOURCE, SLOTS)
    logits, state = extend(model, state, TOKENS, ZERO)
    assert logits.dtype == jnp.float32
    memory = jax.tree.leaves((state.cache, state.cross))
    assert {leaf.dtype for leaf in memory} == {jnp.dtype(jnp.bfloat16)}
    error = logits - forward(small("1.1"), SOURCE, TOKENS)
    # 2**-9 for each rounding where float32 has 2**-24: 2**15 times that error's typical 2e-6 for
    # activations of size 1, which grow to size 3 here.
    assert 1e-3 < np.sqrt(np.mean(np.square(error))) < 3 * 2e-6 * 2**15


def test_bfloat16_parameters_suit_a_whole_pass():
    """Under strict promotion, as everywhere here."""
    model = small("1.1", dtype="bfloat16", num_decoder_layers=1)
    held = jax.tree.map(lambda x: x.astype(jnp.bfloat16), model.params)
    logits = jax.eval_shape(forward, dataclasses.replace(model, params=held), SOURCE, TOKENS)
    assert logits.dtype == jnp.float32


def test_the_vocabulary_in_use_cuts_the_logits():
    model = small("1.1")
    cut = t5(model.params, model.config, 20)
    state = start(model, SOURCE, SLOTS)
    whole, _ = extend(model, state, TOKENS[:, :4], ZERO)
    part, _ = extend(cut, state, TOKENS[:, :4], ZERO)
    np.testing.assert_array_equal(part, whole[..., :20])


@pytest.mark.parametrize("size", [0, 24])
def test_a_vocabulary_beyond_the_embedding_is_refused(size):
    model = small("1.1")
    with pytest.raises(ValueError, match=rf"vocabulary has {size} ids.*embedding 23 rows; give"):
        t5(model.params, model.config, size)


def test_dropout_is_drawn_from_its_key():
    """And hits training alone: the models above have a rate of 0.1."""
    model = small("1.1", num_decoder_layers=1, dropout_rate=0.5)
    network = Transformer(model.config)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def train(key):
        variables, rngs = {"params": model.params}, {"dropout": key}
        return network.apply(variables, SOURCE, TOKENS, deterministic=False, rngs=rngs)

    first = train(jax.random.key(0))
    np.testing.assert_array_equal(first, train(jax.random.key(0)))
    assert np.abs(first - train(jax.random.key(1))).max() > 0.1
