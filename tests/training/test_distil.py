"""The target's own outputs: what plain decoding gives, and nothing that found no end."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.decoding import Options, autoregressive, request
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.model import t5
from specdec_jax.t5.network import Transformer
from specdec_jax.training import distil
from specdec_jax.training.examples import pad
from specdec_jax.training.objectives import shift_right

V, ROWS, EOS = 10, 4, 1
SHAPES = ((3, 3), (6, 6))
ROOM = 6
CONFIG = T5Config(
    vocab_size=V,
    emb_dim=8,
    num_heads=2,
    head_dim=4,
    mlp_dim=16,
    num_encoder_layers=1,
    num_decoder_layers=1,
    mlp_activations=("gelu", "linear"),
)
RNG = np.random.default_rng(0)
SOURCES = (2, 5, 1, 3, 6, 1, 2, 3, 4, 6, 1, 2, 3, 4, 5)
REFERENCES = (1, 2, 3, 3, 1, 5, 7, 2, 2, 2, 2, 2, 2, 2, 2)
EXAMPLES = [
    (RNG.integers(2, V, s).tolist(), [2] * t) for s, t in zip(SOURCES, REFERENCES, strict=True)
]
LONG = 6
"""Its reference has 7 tokens."""


@pytest.fixture(scope="module")
def target():
    """Random, with a seed that lets some rows find their end and others ramble."""
    rng = np.random.default_rng(10)

    def draw(path, leaf):
        numbers = rng.normal(size=leaf.shape)
        if path[-1].key == "kernel":
            numbers *= 1.5 / np.sqrt(leaf.shape[0])
        return jnp.asarray(numbers, jnp.float32)

    ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    shapes = jax.eval_shape(Transformer(CONFIG).init, jax.random.key(0), ids, ids)["params"]
    return t5(jax.tree_util.tree_map_with_path(draw, shapes), CONFIG)


def outputs(target, examples=EXAMPLES, **kwargs):
    kwargs = {"shapes": SHAPES, "rows": ROWS, "progress": False, **kwargs}
    return distil.target_outputs(target, examples, **kwargs)


def alone(target, source, length):
    """The greedy output of a source in a batch of nothing else, of the same shape."""
    padded = np.zeros((ROWS, length), np.int32)
    padded[0, : len(source)] = source
    limits = np.where(np.arange(ROWS) == 0, ROOM, 0)
    asked = request(ROWS, key=jax.random.key(9), max_tokens=ROOM, limits=limits)
    options = Options(max_tokens=ROOM, eos_id=EOS)
    found = autoregressive(target, jnp.asarray(padded), asked, options)
    return found.tokens[0, : found.lengths[0]].tolist()


def test_outputs_are_those_of_plain_decoding_and_end(target):
    expected = []
    for i, (source, reference) in enumerate(EXAMPLES):
        if i == LONG:
            continue
        length = 3 if max(len(source), len(reference)) <= 3 else 6
        output = alone(target, source, length)
        assert EOS not in output[:-1]
        if output[-1] == EOS:
            expected.append((source, output))
        else:
            assert len(output) == ROOM
    assert 3 < len(expected) < len(EXAMPLES) - 4
    assert len({len(output) for _, output in expected}) > 2
    # In the order given, with a row of batches that are not full.
    assert outputs(target) == expected


def test_samples_are_reproducible_and_differ_between_seeds(target):
    first, again, other = (outputs(target, temperature=1.0, seed=s) for s in (0, 0, 1))
    assert first == again != other
    assert all(output[-1] == EOS for _, output in first)
    assert first != outputs(target)


def test_rows_of_a_batch_draw_for_themselves(target):
    """The same source many times: as many samples, not copies of one."""
    same = [EXAMPLES[0]] * 12
    found = {str(output) for _, output in outputs(target, same, temperature=1.0)}
    assert len(found) > 3


def test_a_reference_s_length_limits_the_output(target):
    """One and a half times it and eight more, which a long enough shape leaves room for."""
    rambling = [i for i in range(len(EXAMPLES)) if i != LONG]
    wide = {"shapes": ((6, 24),), "rows": ROWS}
    short = outputs(target, [(EXAMPLES[i][0], [2]) for i in rambling], **wide)
    long = outputs(target, [(EXAMPLES[i][0], [2] * 12) for i in rambling], **wide)
    assert max(len(output) for _, output in short) <= 9
    assert {str(example) for example in short} <= {str(example) for example in long}
    assert len(long) > len(short)


@pytest.mark.parametrize("tied", [True, False])
def test_states_and_readout_are_the_target_s_logits(tied):
    config = dataclasses.replace(CONFIG, logits_via_embedding=tied)
    ids = jnp.ones((1, 1), jnp.int32)
    params = Transformer(config).init(jax.random.key(1), ids, ids)["params"]
    model = t5(params, config)
    examples = [([3, 4, 1], [5, 1]), ([6, 1], [7, 8, 9, 4, 1]), ([2, 1], [3, 1]), ([4, 1], [1])]
    kept = distil.states(model, examples, tokens=12, shapes=SHAPES, progress=False)
    matrix = np.asarray(distil.readout(model))
    for (source, output), hidden in zip(examples, kept, strict=True):
        assert (hidden.shape, hidden.dtype) == ((len(output), 8), np.float16)
        batch = pad([(source, output)], (len(source), len(output)))
        expected = Transformer(config).apply(
            {"params": params}, jnp.asarray(batch.source), shift_right(jnp.asarray(batch.target))
        )
        found = hidden.astype(np.float32) @ matrix
        # float16 keeps 11 bits of each term; float32's own rounding is far below.
        bound = 2.0**-11 * (np.abs(hidden.astype(np.float32)) @ np.abs(matrix)) + 1e-4
        assert np.all(np.abs(found - np.asarray(expected[0])) <= bound)


def test_nothing_in_nothing_out(target):
    assert outputs(target, []) == []
    assert outputs(target, [EXAMPLES[LONG]]) == []
