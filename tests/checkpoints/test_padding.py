"""Rows of the embedding that stand for no id: they can never come out, and take no probability.

The padding rows here are the best of all ids at every position, so that one look at them shows.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_t5s import CONFIGS, random_t5, same_params

from specdec_jax import checkpoints, decoding
from specdec_jax.checkpoints import bundle
from specdec_jax.checkpoints.convert import convert
from specdec_jax.drafts.model import ModelDraft
from specdec_jax.sampling import sampling
from specdec_jax.t5.model import T5, t5
from specdec_jax.t5.network import Transformer

USED = 32100
ROWS, TOKENS = 8, 5


@functools.cache
def padded(rows: int, seed: int = 0) -> T5:
    """A T5 of `rows` ids whose 32100 are the same for every number of rows."""
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    config = dataclasses.replace(CONFIGS["1.1"], vocab_size=rows, **layers)
    own = random_t5(dataclasses.replace(config, vocab_size=USED), seed=seed)
    # Logits of a spread of about 3, so that a sample is an id among many.
    head = own.params["decoder"]["logits_dense"]["kernel"]
    best = 100 * jnp.ones((config.emb_dim, rows - USED))
    params = jax.tree.map(lambda x: x, own.params)
    norm = params["decoder"]["decoder_norm"]
    norm["scale"] = jnp.abs(norm["scale"])
    params["decoder"]["logits_dense"]["kernel"] = jnp.concatenate([head, best], 1)
    table = params["token_embedder"]["embedding"]
    more = jnp.full((rows - USED, config.emb_dim), 7.0)
    params["token_embedder"]["embedding"] = jnp.concatenate([table, more])
    return t5(params, config, USED)


def run(target, draft, temperature):
    source = jnp.asarray(np.random.default_rng(1).integers(2, USED, (ROWS, 6)), jnp.int32)
    request = decoding.request(
        ROWS,
        key=jax.random.key(0),
        max_tokens=TOKENS,
        settings=sampling(ROWS, temperature=temperature),
    )
    options = decoding.Options(max_tokens=TOKENS, gamma=2)
    return decoding.speculative(target, ModelDraft(draft), source, request, options)


def test_padding_would_win():
    """What the other tests rely on: to the network, padding is the best of all ids somewhere."""
    whole = padded(32128)
    ids = jnp.asarray(np.random.default_rng(1).integers(2, USED, (ROWS, 6)), jnp.int32)
    logits = jax.jit(Transformer(whole.config).apply)({"params": whole.params}, ids, ids)
    assert np.asarray(logits).argmax(-1).max() >= USED


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padding_changes_nothing(temperature):
    """Target and draft with padding, each its own, and both without: the same run."""
    found, expected = (
        run(padded(target), padded(draft, seed=3), temperature)
        for target, draft in ((32128, 32256), (32100, 32100))
    )
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_array_equal(found.counters.accepted, expected.counters.accepted)
    # Padding took nothing of the distribution. A sum of 32100 terms in another order: 2**-24 of a
    # logarithm of about 10, a few times.
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", ["hf", "t5x", "orbax"])
def test_a_file_of_32128_rows_has_32100_ids(form, tmp_path):
    bundle.save(tmp_path / "m", padded(32128), dtype="float32")
    convert(tmp_path / "m", tmp_path / "checkpoint_0", format=form)
    model = checkpoints.load(tmp_path / "checkpoint_0").model
    assert (model.config.vocab_size, model.vocab_size) == (32128, USED)
    same_params(model, padded(32128))
