"""At temperature 0 every rule gives the target's argmax; and what comes near to that."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from specdec_jax.decoding import Finish
from specdec_jax.sampling import RULES, sampling

EVERY_RULE = pytest.mark.parametrize("rule", RULES)


def assert_same_text(found, expected, rows=slice(None)):
    for name in ("tokens", "lengths", "finish"):
        np.testing.assert_array_equal(
            getattr(found, name)[rows], getattr(expected, name)[rows], err_msg=name
        )


def favourites(target):
    """Greedy decoding of a `History` in numpy, one token at a time; [rows, TOKENS]."""
    tables = np.asarray(target.logits)
    sequence = np.zeros((toys.ROWS, toys.TOKENS + 1), np.int32)
    ended = np.zeros(toys.ROWS, bool)
    for slot in range(toys.TOKENS):
        logits = tables[np.arange(toys.ROWS), target.codes(sequence)[:, slot]]
        # numpy's argmax is the lowest id, and to it -0.0 and 0.0 are equal.
        sequence[:, slot + 1] = np.where(ended, 0, logits.argmax(-1))
        ended |= sequence[:, slot + 1] == toys.EOS
    return sequence[:, 1:]


@pytest.mark.parametrize("kind", toys.KINDS)
def test_b07_b22_c3_two_hundred_pairs_give_the_target_s_favourites(kind):
    target, draft = toys.pairs()
    decoded = toys.run(kind, target, draft, toys.ask())
    np.testing.assert_array_equal(decoded.tokens, favourites(target))
    assert np.ptp(decoded.lengths) > 8
    if kind != "plain":
        accepted = np.asarray(decoded.counters.accepted).sum(1)
        assert accepted[:10].sum() > 20, "some drafts must be good"
        assert accepted[-40:].sum() == 0, "and some never right"


@EVERY_RULE
def test_b10_a_first_guess_that_is_always_wrong_is_never_committed(rule):
    target, draft = toys.pairs()
    decoded = toys.run(rule, target, draft, toys.ask())
    enemies = slice(toys.ROWS - 40, toys.ROWS)
    assert not np.any(np.asarray(decoded.counters.accepted)[enemies])
    runs = np.asarray(decoded.counters.target_runs)[enemies]
    np.testing.assert_array_equal(runs, np.asarray(decoded.lengths)[enemies])


def tied(seed):
    """Logits of few values, -0.0 among them: most rows have two or three largest."""
    values = np.float32([-1.0, -0.0, 0.0, 1.0])
    high = np.random.default_rng(seed).integers(0, 4, (toys.ROWS, 11, 6))
    # In half of the tables zero is the largest, so that the sign alone would decide.
    high[::2] = np.minimum(high[::2], 2)
    return values[high]


@pytest.mark.parametrize("kind", toys.KINDS)
def test_b31_ties_go_to_the_lowest_id(kind):
    target, draft = toys.pairs()
    logits = tied(0)
    ways = (logits == logits.max(-1, keepdims=True)).sum(-1)
    assert np.sum(ways == 2) > 100
    assert np.sum(ways == 3) > 100
    target = dataclasses.replace(target, logits=jnp.asarray(logits))
    # The draft has ties of its own in one half, and the target's in the other.
    guesses = np.where(np.arange(toys.ROWS)[:, None, None] % 4 < 2, tied(1), logits)
    model = dataclasses.replace(draft.model, logits=jnp.asarray(guesses))
    decoded = toys.run(kind, target, dataclasses.replace(draft, model=model), toys.ask())
    np.testing.assert_array_equal(decoded.tokens, favourites(target))


@pytest.mark.parametrize("kind", toys.KINDS)
def test_b36_temperatures_0_and_above_share_a_batch(kind):
    target, draft = toys.pairs()
    temperature = np.tile([0.0, 1e-6, 0.7, 1.0], toys.ROWS // 4)
    settings = sampling(toys.ROWS, temperature=temperature)
    decoded = toys.run(kind, target, draft, toys.ask(settings=settings))
    greedy = temperature < 0.1
    np.testing.assert_array_equal(decoded.tokens[greedy], favourites(target)[greedy])
    assert np.any(decoded.tokens[~greedy] != favourites(target)[~greedy])
    assert np.all(np.isfinite(decoded.scores))
    for counts in jax.tree.leaves(decoded.counters):
        assert np.all(counts >= 0)
    # A row of the batch is what it is in a batch of its own kind.
    alone = toys.run(kind, target, draft, toys.ask())
    rows = jnp.flatnonzero(greedy)
    jax.tree.map(
        lambda mixed, plain: np.testing.assert_array_equal(mixed[rows], plain[rows]),
        decoded._replace(scores=None),
        alone._replace(scores=None),
    )


@EVERY_RULE
def test_b34_the_seed_changes_nothing(rule):
    target, draft = toys.pairs()
    first = toys.run(rule, target, draft, toys.ask(0))
    for seed in range(1, 6):
        again = toys.run(rule, target, draft, toys.ask(seed))
        jax.tree.map(np.testing.assert_array_equal, first, again)


@EVERY_RULE
def test_a_sampling_draft_changes_nothing_but_the_acceptance(rule):
    target, draft = toys.pairs()
    hot = sampling(toys.ROWS, temperature=2.0)
    decoded = toys.run(rule, target, draft, toys.ask(draft_settings=hot))
    np.testing.assert_array_equal(decoded.tokens, favourites(target))
    cold = toys.run(rule, target, draft, toys.ask())
    assert decoded.alpha() < cold.alpha()


def mixed_settings():
    rows = np.arange(toys.ROWS)
    return sampling(
        toys.ROWS,
        temperature=np.choose(rows % 4, [0.0, 0.7, 1.0, 1.5]),
        top_k=np.choose(rows % 3, [0, 2, 4]),
        top_p=np.choose(rows % 5, [1.0, 1.0, 0.9, 0.6, 1.0]),
    )


def test_coupled_equals_plain_decoding_in_rows_of_all_settings():
    target, draft = toys.pairs()
    for seed in range(3):
        asked = toys.ask(seed, settings=mixed_settings())
        plain = toys.run("plain", target, draft, asked)
        coupled = toys.run("coupled", target, draft, asked)
        assert_same_text(coupled, plain)
        # One program runs the target on one token, the other on four: sums may round differently.
        np.testing.assert_allclose(coupled.scores, plain.scores, atol=1e-5)
        assert coupled.counters.accepted.sum() > 100


@EVERY_RULE
def test_b09_a_target_that_drafts_for_itself(rule):
    """1000 seeds, float32 and bfloat16, and a last bit of difference."""
    target, draft = toys.pairs()
    settings = sampling(toys.ROWS, temperature=np.tile([0.5, 1.0], toys.ROWS // 2))
    for seed, shift in ((0, 0.0), (1, 0.0), (2, 0.0), (3, 1e-7), (4, -1e-7)):
        logits = target.logits
        if seed == 2:
            logits = logits.astype(jnp.bfloat16).astype(jnp.float32)
        judge = dataclasses.replace(target, logits=logits)
        guesser = dataclasses.replace(draft.model, logits=logits * (1 + shift))
        decoded = toys.run(
            rule,
            judge,
            dataclasses.replace(draft, model=guesser),
            toys.ask(seed, settings=settings),
        )
        assert np.all((decoded.tokens >= 0) & (decoded.tokens < 6))
        assert np.all(np.isfinite(decoded.scores))
        assert np.all(decoded.counters.target_runs <= decoded.lengths)
        assert np.all(decoded.finish != Finish.NOT_FINITE)
        if shift == 0:
            np.testing.assert_array_equal(decoded.counters.accepted, decoded.counters.tested)
        else:
            # Some 3000 guesses, each lost with a probability of the order of 1e-6.
            assert decoded.alpha() > 0.999


@EVERY_RULE
def test_a_draft_of_nan_costs_speed_and_nothing_else(rule):
    target, draft = toys.pairs()
    broken = draft.model.logits.at[:, ::2].set(jnp.nan).at[:, 1, 3].set(jnp.inf)
    model = dataclasses.replace(draft.model, logits=broken)
    decoded = toys.run(rule, target, dataclasses.replace(draft, model=model), toys.ask())
    np.testing.assert_array_equal(decoded.tokens, favourites(target))
    assert np.all(np.isfinite(decoded.scores))
