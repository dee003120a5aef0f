"""A target and a draft so small that T5X decodes them at once, and whose outputs vary."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import seqio
from flax import core
from t5x import decoding as stock
from t5x import models as stock_models

from specdec_jax.t5x_plugin.models import DRAFT, SpeculativeEncoderDecoderModel
from specdec_jax.t5x_plugin.network import T5Config, Transformer

VOCAB = 48
CONFIG = T5Config(
    vocab_size=VOCAB,
    emb_dim=32,
    num_heads=4,
    head_dim=8,
    mlp_dim=64,
    num_encoder_layers=1,
    num_decoder_layers=1,
    mlp_activations=("gelu", "linear"),
)
SHAPES = {"encoder_input_tokens": (2, 8), "decoder_input_tokens": (2, 8)}


def vocabulary():
    return seqio.PassThroughVocabulary(VOCAB, eos_id=1)


def plain_model(decode_fn=stock.temperature_sample, config=CONFIG, **decoder_params):
    return stock_models.EncoderDecoderModel(
        Transformer(config),
        vocabulary(),
        vocabulary(),
        None,
        decode_fn=decode_fn,
        default_decoder_params=stock_models.DecoderParams(**decoder_params),
    )


def speculative_model(config=CONFIG, draft_config=CONFIG, **options):
    return SpeculativeEncoderDecoderModel(
        Transformer(config), Transformer(draft_config), vocabulary(), vocabulary(), **options
    )


@functools.cache
def params(config=CONFIG, seed=0):
    """Random parameters, scaled so that the context decides and sequences end at various places."""
    model = plain_model(config=config)
    # Under jit: op by op, what takes time is compiling each of them.
    init = jax.jit(lambda key: model.get_initial_variables(key, SHAPES)["params"])
    tree = core.unfreeze(init(jax.random.key(seed)))
    decoder = tree["decoder"]
    for name, layer in decoder.items():
        if name.startswith("layers_"):
            for part in ("self_attention", "encoder_decoder_attention"):
                for kernel in ("query", "out"):
                    layer[part][kernel]["kernel"] = 4.0 * layer[part][kernel]["kernel"]
    logits = 2.5 * decoder["logits_dense"]["kernel"]
    decoder["logits_dense"]["kernel"] = logits
    return tree


@functools.partial(jax.jit, static_argnames=("seed", "noise"))
def noisy(tree, seed=0, noise=0.1):
    """A copy whose guesses are often right, and often not."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(seed + 100), len(leaves))
    changed = [
        x + noise * jnp.std(x) * jax.random.normal(key, x.shape)
        for x, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(structure, changed)


@functools.cache
def pair(seed=0):
    """The target's parameters, and under `draft` a noisy copy of them."""
    target = params(CONFIG, seed)
    return {**target, DRAFT: noisy(target, seed)}


def batch(rows=6, length=20, seed=0):
    rng = np.random.default_rng(seed)
    source = rng.integers(2, VOCAB, (rows, 9))
    for row, end in enumerate(rng.integers(3, 9, rows)):
        source[row, end:] = 0
    tokens = np.zeros((rows, length), np.int32)
    return {
        "encoder_input_tokens": jnp.asarray(source, jnp.int32),
        "decoder_input_tokens": jnp.asarray(tokens),
    }


def predict(model, tree, examples, rng=None, decoder_params=None, **options):
    """Predict as T5X's infer does, under jit; decoder_params are traced, as an exported model's."""

    def run(tree, examples, rng, decoder_params):
        return model.predict_batch_with_aux(tree, examples, rng, dict(decoder_params), **options)

    return jax.tree.map(np.asarray, jax.jit(run)(tree, examples, rng, decoder_params or {}))
