"""Our T5 against Hugging Face's and T5X's, on files that scripts/make_golden*.py made."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_t5s import same_params

from specdec_jax import checkpoints, decoding
from specdec_jax.checkpoints.bundle import model_of
from specdec_jax.checkpoints.convert import convert
from specdec_jax.drafts.model import ModelDraft
from specdec_jax.t5.model import prepare
from specdec_jax.t5.network import Transformer

GOLDEN = Path(__file__).parents[1] / "golden"
FAMILIES = sorted(p.parent.name for p in GOLDEN.glob("*/expected.npz"))


@pytest.fixture(params=FAMILIES)
def golden(request):
    """A folder, and what Hugging Face computed with it and, under its own key, T5X."""
    folder = GOLDEN / request.param
    return folder, {**np.load(folder / "expected.npz"), "t5x": np.load(folder / "expected_t5x.npz")}


def test_the_families_are_there():
    assert FAMILIES == ["byt5", "mt5", "t5_1_0", "t5_1_1", "t5_1_1_tied_head", "umt5"]


@pytest.mark.parametrize("platform", ["cpu", "tpu"])  # feature-major and token-major
def test_logits(golden, platform):
    folder, expected = golden
    model = prepare(checkpoints.load(folder).model, platform=platform)
    source, given = (jnp.asarray(expected[k]) for k in ("source", "decoder_input"))
    run = jax.jit(Transformer(model.config).apply)
    logits = run({"params": model.params}, source, given)
    # Logits have a spread of 1 to 7; float32 products of a few dozen terms agree to 1e-5.
    np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(logits, expected["t5x"]["logits"], rtol=0, atol=1e-4)


def asked(expected, *, gamma=0):
    rows, count = expected["greedy"].shape
    options = decoding.Options(max_tokens=count, gamma=gamma)
    request = decoding.request(rows, key=jax.random.key(0), max_tokens=count)
    return jnp.asarray(expected["source"]), request, options


def test_greedy_ids(golden):
    folder, expected = golden
    model = prepare(checkpoints.load(folder).model)
    found = decoding.autoregressive(model, *asked(expected))
    np.testing.assert_array_equal(found.tokens, expected["greedy"])
    np.testing.assert_array_equal(found.tokens, expected["t5x"]["greedy"])


@pytest.mark.parametrize("family", ["t5_1_1", "umt5"])
def test_scanned_layers_that_t5x_saved_decode_alike(family):
    """Saved by T5X itself, as its scalable_t5 holds them; the weights are the folder's."""
    expected = dict(np.load(GOLDEN / family / "expected.npz"))
    opened = checkpoints.open_checkpoint(GOLDEN / family / "scanned/checkpoint_0")
    assert opened.format == "orbax"
    assert opened.detail.startswith("scanned layers, heads apart")
    model = prepare(model_of(opened).model)
    same_params(checkpoints.load(GOLDEN / family).model, model_of(opened).model)
    found = decoding.autoregressive(model, *asked(expected))
    np.testing.assert_array_equal(found.tokens, expected["greedy"])


def test_a_target_of_one_format_with_a_draft_of_another(tmp_path):
    folder = GOLDEN / "t5_1_1"
    expected = dict(np.load(folder / "expected.npz"))
    convert(folder, tmp_path / "checkpoint_0", format="t5x")
    target = checkpoints.load(folder).model
    draft = checkpoints.load(tmp_path / "checkpoint_0").model
    found = decoding.speculative(target, ModelDraft(draft), *asked(expected, gamma=3))
    np.testing.assert_array_equal(found.tokens, expected["greedy"])
    # The same weights guess what they verify: only where a row ends are guesses left over.
    assert np.array_equal(found.counters.accepted.sum(0)[:1], found.counters.tested.sum(0)[:1])
