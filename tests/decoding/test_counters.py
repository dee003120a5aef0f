"""What a decode reports about itself: counters, rounds and scores."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from specdec_jax.decoding import Options, autoregressive, request, speculative
from specdec_jax.drafts import ModelDraft
from specdec_jax.sampling import RULES, sampling

GAMMA, TOKENS, V = 4, 12, 9
PATTERNS = np.array(list(itertools.product([True, False], repeat=GAMMA)))
ROWS = 6 * len(PATTERNS)
RIGHT = np.resize(PATTERNS, (ROWS, GAMMA))
ENDS = np.repeat([1, 2, 4, 5, 9, 99], len(PATTERNS))
LIMITS = np.resize([12, 12, 5, 7, 1], ROWS)


def scripted(rule):
    target = toys.counter(ENDS, V)
    draft = toys.ScriptedDraft(target, jnp.asarray(RIGHT))
    asked = request(ROWS, key=jax.random.key(0), max_tokens=TOKENS, limits=LIMITS)
    options = Options(max_tokens=TOKENS, gamma=GAMMA, rule=rule, record=True)
    return speculative(target, draft, toys.sources(np.arange(ROWS)), asked, options)


def counted(right, total):
    """Runs, tested and accepted of one row whose output has `total` tokens, guess by guess."""
    at, runs = 0, 0
    tested, accepted = np.zeros(GAMMA, int), np.zeros(GAMMA, int)
    while at < total:
        runs += 1
        for guess in range(GAMMA):
            if at == total:
                break
            tested[guess] += 1
            at += 1  # by the guess or, in its place, by the target's own token
            if not right[guess]:
                break
            accepted[guess] += 1
        else:
            at += at < total
    return runs, tested, accepted


@pytest.mark.parametrize("rule", RULES)
def test_b53_b58_counters_of_every_pattern(rule):
    counters = scripted(rule).counters
    for row in range(ROWS):
        runs, tested, accepted = counted(RIGHT[row], min(ENDS[row], LIMITS[row]))
        assert counters.target_runs[row] == runs, row
        assert counters.drafted[row] == GAMMA * runs, row
        assert counters.tested[row].tolist() == tested.tolist(), row
        assert counters.accepted[row].tolist() == accepted.tolist(), row


def test_b53_the_pattern_1_0_1_1_counts_1():
    row = 4 * len(PATTERNS) + PATTERNS.tolist().index([True, False, True, True])
    assert min(ENDS[row], LIMITS[row]) == 7
    counters = scripted("rejection").counters
    # Two tokens a round, and one for the last place.
    assert counters.accepted[row].tolist() == [4, 0, 0, 0]
    assert counters.tested[row].tolist() == [4, 3, 0, 0]


def test_b58_emitted_tokens_are_the_tokens_of_the_output():
    decoded = scripted("rejection")
    total = np.minimum(ENDS, LIMITS)
    np.testing.assert_array_equal(decoded.lengths, total)
    assert float(decoded.tokens_per_run()) == pytest.approx(
        total.sum() / int(decoded.counters.target_runs.sum())
    )
    tested, accepted = decoded.counters.tested.sum(), decoded.counters.accepted.sum()
    assert float(decoded.alpha()) == pytest.approx(int(accepted) / int(tested))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", RULES)
def test_recorded_rounds_are_the_output(rule, temperature):
    target, draft = toys.pairs()
    settings = sampling(toys.ROWS, temperature=temperature)
    decoded = toys.run(rule, target, draft, toys.ask(1, settings=settings))
    rounds = jax.tree.map(np.asarray, decoded.rounds)
    for row in range(toys.ROWS):
        said = []
        length, runs = int(decoded.lengths[row]), int(decoded.counters.target_runs[row])
        for number in range(runs):
            said += rounds.drafted[row, number, : rounds.accepted[row, number]].tolist()
            if len(said) < length:
                said.append(int(rounds.extra[row, number]))
        assert said == decoded.tokens[row, :length].tolist()
        accepted = rounds.accepted[row, :runs]
        reached = (accepted[:, None] > np.arange(toys.GAMMA)).sum(0)
        assert reached.tolist() == decoded.counters.accepted[row].tolist()
        for leaf in rounds:
            assert not leaf[row, runs:].any(), "nothing is recorded after the end"


def test_plain_decoding_records_a_token_a_round():
    target, draft = toys.pairs()
    decoded = toys.run("plain", target, draft, toys.ask())
    assert decoded.rounds.drafted.shape == (toys.ROWS, toys.TOKENS, 0)
    np.testing.assert_array_equal(decoded.rounds.extra, decoded.tokens)
    np.testing.assert_array_equal(decoded.counters.target_runs, decoded.lengths)
    assert not decoded.counters.drafted.any()
    assert np.isnan(decoded.alpha())


def test_rounds_are_kept_on_request_only():
    target = toys.counter([3], V)
    asked = request(1, key=jax.random.key(0), max_tokens=4)
    decoded = autoregressive(target, toys.sources([0]), asked, Options(max_tokens=4))
    assert decoded.rounds is None


def teacher_forced(target, decoded, settings):
    """log p of each token given those before it, in float64; [rows, TOKENS]."""
    tokens = np.asarray(decoded.tokens)
    sequence = np.concatenate([np.zeros((toys.ROWS, 1), np.int32), tokens], axis=1)
    codes = target.codes(sequence)[:, :-1]
    logits = np.asarray(target.logits)[np.arange(toys.ROWS)[:, None], codes]
    probs = np.stack(
        [toys.standard(row, *values) for row, values in zip(logits, settings, strict=True)]
    )
    picked = np.take_along_axis(probs, tokens[..., None], -1)[..., 0]
    inside = np.arange(toys.TOKENS) < np.asarray(decoded.lengths)[:, None]
    return np.log(np.where(inside, picked, 1.0))


@pytest.mark.parametrize(
    ("kind", "adjusted"),
    [*((kind, False) for kind in toys.KINDS), ("plain", True), ("block", True), ("coupled", True)],
)
def test_b18_b55_scores_are_the_target_s_log_probabilities(kind, adjusted):
    target, draft = toys.pairs()
    rows = np.arange(toys.ROWS)
    temperature = np.choose(rows % 3, [0.0, 0.7, 1.3])
    top_k = np.where(rows % 2, 3, 0)
    settings = sampling(toys.ROWS, temperature=temperature, top_k=top_k)
    asked = toys.ask(2, settings=settings)
    decoded = toys.run(kind, target, draft, asked, adjusted_scores=adjusted)
    judged = list(zip(temperature, top_k, strict=True)) if adjusted else [(1.0, 0)] * toys.ROWS
    # Logits of size 10 in float32, a logsumexp of six of them: a few roundings of 1e-6.
    expected = teacher_forced(target, decoded, judged)
    np.testing.assert_allclose(decoded.scores, expected, atol=1e-5)
    assert np.count_nonzero(expected) > 500
    if kind != "plain":
        # Guesses, corrections and tokens behind a whole block are all among them.
        assert set(np.unique(decoded.rounds.accepted)) == set(range(toys.GAMMA + 1))


def test_the_acceptance_rate_is_that_of_the_tables():
    """alpha() against the mean overlap, where every prefix has the same."""
    rows = 4000
    p, q = np.array([0.3, 0.0, 0.5, 0.2]), np.array([0.5, 0.0, 0.1, 0.4])
    target, guesses = (
        toys.Table(jnp.asarray(np.log(np.tile(x + 1e-30, (1, 4, 1))), jnp.float32)) for x in (p, q)
    )
    asked = request(
        rows, key=jax.random.key(3), max_tokens=6, settings=sampling(rows, temperature=1.0)
    )
    decoded = speculative(
        target,
        ModelDraft(guesses),
        toys.sources(np.zeros(rows)),
        asked,
        Options(max_tokens=6, gamma=2),
    )
    beta = np.minimum(p, q).sum()
    tested = int(decoded.counters.tested.sum())
    # The trials are independent: what a guess is tested with does not depend on other guesses.
    assert abs(float(decoded.alpha()) - beta) < 3 * np.sqrt(beta * (1 - beta) / tested)
