"""What real networks remember after every round: nothing stale, and nothing missing."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from specdec_jax.decoding import Finish, Options, request
from specdec_jax.drafts import ModelDraft
from specdec_jax.sampling import sampling
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.model import t5
from specdec_jax.t5.network import Transformer

pytestmark = pytest.mark.usefixtures("fast_compilation")

CONFIG = T5Config(
    vocab_size=48,
    emb_dim=32,
    num_heads=4,
    head_dim=8,
    mlp_dim=64,
    num_encoder_layers=2,
    num_decoder_layers=2,
    mlp_activations=("gelu", "linear"),
)
ROWS, WIDTH, TOKENS = 6, 3, 12
OPTIONS = Options(max_tokens=TOKENS, gamma=3)
# Longer than the output (row 0, which is cut at 4), shorter than it, and shorter than gamma.
SOURCES = np.array([7, 7, 5, 2, 1, 6])
ATOL = 1e-5
"""Blocks of different sizes add in different orders: float32 sums of up to 64 terms of size 1, each
rounded by 6e-8, through two layers; measured 1e-6. A wrong token moves entries by 1e-1."""


@functools.cache
def models():
    network = Transformer(CONFIG)
    ids = jnp.ones((1, 1), jnp.int32)
    init = jax.jit(lambda key: network.init(key, ids, ids)["params"])
    first, second = init(jax.random.key(0)), init(jax.random.key(1))
    near = jax.tree.map(lambda a, b: a + 0.1 * b, first, second)
    return t5(first, CONFIG), ModelDraft(t5(near, CONFIG))


@functools.cache
def journey(greedy=False):
    """The `Progress` before every round and at the end, with ragged prompts."""
    rng = np.random.default_rng(0)
    source = np.where(np.arange(7) < SOURCES[:, None], rng.integers(2, 48, (ROWS, 7)), 0)
    prompt = np.where(np.arange(WIDTH) > 0, rng.integers(2, 48, (ROWS, WIDTH)), 0)
    asked = request(
        ROWS,
        key=jax.random.key(5),
        max_tokens=TOKENS,
        limits=np.array([4, 12, 12, 12, 12, 9]),
        prompt=jnp.asarray(prompt, jnp.int32),
        prompt_lengths=jnp.array([1, 1, 2, 3, 2, 3]),
        settings=sampling(ROWS, temperature=0.0 if greedy else [1.0, 1.0, 0.7, 1.0, 0.0, 1.0]),
    )
    target, draft = models()
    source = jnp.asarray(source, jnp.int32)
    steps = [toys.begin(target, draft, source, asked, OPTIONS)]
    while np.any(steps[-1].finish == Finish.RUNNING):
        steps.append(toys.advance(steps[-1], target, draft, asked, OPTIONS))
    return source, asked, steps


@functools.cache
def prefill():
    """One compiled pass over whole sequences, for both models."""

    def whole(model, source, sequence):
        state = model.start(source, sequence.shape[1])
        logits, state = model.extend(state, sequence, jnp.zeros(ROWS, jnp.int32))
        return logits, state

    return jax.jit(whole)


def assert_remembers(model, source, progress, state, slots):
    """Slots below `slots[b]` of each row hold what a fresh pass over the sequence would."""
    _, fresh = prefill()(model, source, progress.sequence)
    seen = np.arange(progress.sequence.shape[1]) < np.asarray(slots)[:, None]
    for layer, expected in zip(state.cache, fresh.cache, strict=True):
        for kept, right in zip(layer, expected, strict=True):
            error = np.abs(kept - right).max(axis=(1, 3))
            assert np.all(error[seen] < ATOL), error.round(6)


def generated(asked, progress):
    """Which slots from 1 on hold tokens that are the loop's own."""
    at = np.arange(1, progress.sequence.shape[1])
    behind_prompt = at >= np.asarray(asked.prompt_lengths)[:, None]
    return behind_prompt & (at <= np.asarray(progress.position)[:, None])


def test_the_journey_rejects_at_every_offset():
    _, _, steps = journey()
    moves = [
        np.asarray(new.position - old.position)[np.asarray(old.finish) == Finish.RUNNING]
        for old, new in itertools.pairwise(steps)
    ]
    assert set(np.concatenate(moves)) == {1, 2, 3, 4}


def test_b20_b21_the_target_remembers_the_committed_prefix():
    source, _, steps = journey()
    target, _ = models()
    for progress in steps:
        # The last token of a row is read by the next round.
        assert_remembers(target, source, progress, progress.target, progress.position)


def test_b20_the_draft_remembers_the_committed_prefix():
    source, _, steps = journey()
    _, draft = models()
    for progress in steps:
        # Two tokens are read by the next round: a whole accepted block leaves its last guess out.
        slots = progress.position - 1
        assert_remembers(draft.model, source, progress, progress.draft, slots)


def test_b22_a_round_appends_and_what_follows_is_padding():
    _, _, steps = journey()
    for old, new in itertools.pairwise(steps):
        at = np.arange(old.sequence.shape[1])
        kept = at <= np.asarray(old.position)[:, None]
        assert not np.any((np.asarray(new.sequence) != np.asarray(old.sequence))[kept])
        behind = at > np.asarray(new.position)[:, None]
        assert not np.any(np.asarray(new.sequence)[behind])
        assert not np.any(np.asarray(new.scores)[behind])


def test_b23_c2_cross_attention_is_never_touched():
    _, _, steps = journey()
    for progress in steps[1:]:
        for now, first in (
            (progress.target, steps[0].target),
            (progress.draft, steps[0].draft),
        ):
            jax.tree.map(np.testing.assert_array_equal, now.cross, first.cross)
            np.testing.assert_array_equal(now.source_bias, first.source_bias)


def test_b55_scores_are_teacher_forced():
    source, asked, steps = journey()
    target, _ = models()
    end = steps[-1]
    logits, _ = prefill()(target, source, end.sequence)
    given = jax.nn.log_softmax(logits, axis=-1)[:, :-1]
    expected = np.take_along_axis(np.asarray(given), np.asarray(end.sequence)[:, 1:, None], axis=-1)
    said = generated(asked, end)
    # Logits of size 10 here, hence ten times the rounding of the cache.
    np.testing.assert_allclose(
        np.asarray(end.scores)[:, 1:], np.where(said, expected[..., 0], 0), atol=10 * ATOL
    )


def test_b30_a_network_s_greedy_tokens_are_its_favourites():
    """Every token is the argmax of a fresh pass over those before it: plain decoding's own."""
    source, asked, steps = journey(greedy=True)
    target, _ = models()
    end = steps[-1]
    logits, _ = prefill()(target, source, end.sequence)
    favourites = np.asarray(logits).argmax(-1)[:, :-1]
    tokens, said = np.asarray(end.sequence)[:, 1:], generated(asked, end)
    np.testing.assert_array_equal(np.where(said, tokens, 0), np.where(said, favourites, 0))
    counters = end.counters
    assert 5 < counters.accepted.sum() < counters.tested.sum()
    assert np.all(end.finish != Finish.NOT_FINITE)
