"""The model class: its tree, its errors, and the target's own paths beside the draft."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seqio
import tiny
from flax import core
from flax.linen import partitioning
from t5x import decoding as stock

from specdec_jax.errors import SpecdecError
from specdec_jax.t5x_plugin.models import DRAFT
from specdec_jax.t5x_plugin.network import T5Config


def variables(model):
    return core.unfreeze(
        jax.eval_shape(lambda: model.get_initial_variables(jax.random.key(0), tiny.SHAPES))
    )


def test_the_tree_is_the_targets_with_the_drafts_below():
    joint = variables(tiny.speculative_model())
    plain = variables(tiny.plain_model())
    draft = joint["params"].pop(DRAFT)
    assert jax.tree.structure(joint["params"]) == jax.tree.structure(plain["params"])
    assert jax.tree.structure(draft) == jax.tree.structure(plain["params"])
    axes = joint["params_axes"].pop(DRAFT)
    assert axes == joint["params_axes"] == plain["params_axes"]


def test_a_replicated_draft_names_no_axis():
    axes = variables(tiny.speculative_model(replicate_draft=True))["params_axes"]
    is_meta = lambda x: isinstance(x, partitioning.AxisMetadata)  # noqa: E731
    names = [set(meta.names) for meta in jax.tree.leaves(axes[DRAFT], is_leaf=is_meta)]
    assert names
    assert all(n == {None} for n in names)
    del axes[DRAFT]
    assert all(m.names[0] for m in jax.tree.leaves(axes, is_leaf=is_meta))


def test_scores_and_loss_are_the_targets():
    examples = tiny.batch(rows=3, length=6)
    targets = np.random.default_rng(0).integers(2, tiny.VOCAB, (3, 6))
    examples["decoder_target_tokens"] = jnp.asarray(targets, jnp.int32)
    examples["decoder_loss_weights"] = jnp.ones((3, 6))
    joint, target = tiny.pair(), tiny.params()
    ours, plain = tiny.speculative_model(), tiny.plain_model()
    np.testing.assert_array_equal(
        ours.score_batch(joint, examples), plain.score_batch(target, examples)
    )
    assert ours.loss_fn(joint, examples, None)[0] == plain.loss_fn(target, examples, None)[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": -1}, "gamma is -1"),
        ({"gamma": True}, "whole number"),
        ({"rule": "exact"}, "'rejection', 'block', 'coupled'"),
        ({"lenience": 0.0}, "lenience is 0.0"),
        ({"lenience": 0.5, "rule": "coupled"}, "only with the rule 'rejection'"),
        ({"decode_fn": stock.beam_search}, "beam_search"),
        ({"decode_fn": functools.partial(stock.temperature_sample, topk=0)}, "leave decode_fn out"),
    ],
)
def test_options_that_cannot_be_meant(options, words):
    with pytest.raises(SpecdecError, match=words):
        tiny.speculative_model(**options)


def test_an_embedding_of_another_vocabulary_is_refused():
    other = T5Config(vocab_size=4 * tiny.VOCAB)
    with pytest.raises(SpecdecError, match="48 rows and the draft's 192"):
        tiny.speculative_model(draft_config=other)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draft_config": T5Config(vocab_size=40)}, "draft's embedding has 40 rows"),
        ({"draft_vocabulary": seqio.ByteVocabulary()}, "same piece to both"),
    ],
)
def test_vocabularies_are_compared_when_decoding(options, words):
    model = tiny.speculative_model(**options)
    with pytest.raises(SpecdecError, match=words):
        model.predict_batch(tiny.pair(), tiny.batch())


def test_calls_that_cannot_be_meant():
    model, tree, examples = tiny.speculative_model(), tiny.pair(), tiny.batch(length=6)
    call = functools.partial(model.predict_batch_with_aux, tree, examples)
    with pytest.raises(SpecdecError, match="alpha, unknown"):
        call(decoder_params={"alpha": 0.6})
    with pytest.raises(SpecdecError, match="give one of them"):
        call(jax.random.key(0), {"decode_rng": jax.random.key(1)})
    with pytest.raises(SpecdecError, match=r"gamma is 1\.5"):
        call(decoder_params={"gamma": 1.5})
    with pytest.raises(SpecdecError, match="room for: lower it"):
        call(decoder_params={"max_decode_steps": 7})
    with pytest.raises(SpecdecError, match="no draft"):
        model.predict_batch_with_aux(tiny.params(), examples)
