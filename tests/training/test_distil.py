"""The target's own outputs: what plain decoding gives, and nothing that found no end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.decoding import Options, autoregressive, request
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.model import t5
from specdec_jax.t5.network import Transformer
from specdec_jax.training import distil

V, ROWS, EOS = 10, 4, 1
LENGTHS = (3, 6)
ROOM = {3: 6, 6: 6}
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


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(distil, "LENGTHS", LENGTHS)


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
    return distil.target_outputs(target, examples, rows=ROWS, progress=False, **kwargs)


def alone(target, source, length):
    """The greedy output of a source in a batch of nothing else, of the same shape."""
    padded = np.zeros((ROWS, length), np.int32)
    padded[0, : len(source)] = source
    room = ROOM[length]
    limits = np.where(np.arange(ROWS) == 0, room, 0)
    asked = request(ROWS, key=jax.random.key(9), max_tokens=room, limits=limits)
    options = Options(max_tokens=room, eos_id=EOS)
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
            assert len(output) == ROOM[length]
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


def test_nothing_in_nothing_out(target):
    assert outputs(target, []) == []
    assert outputs(target, [EXAMPLES[LONG]]) == []
