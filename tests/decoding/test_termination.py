"""Where rows end: the end token at any offset of a block, exact limits, and what is not finite."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from specdec_jax.decoding import Finish, Options, autoregressive, request, speculative
from specdec_jax.errors import SpecdecError
from specdec_jax.sampling import RULES, sampling

GAMMA, TOKENS, V = 4, 12, 9
PATTERNS = np.array(list(itertools.product([True, False], repeat=GAMMA)))
ENDS = np.repeat([1, 2, 3, 4, 5, 9], len(PATTERNS))
ROWS = len(ENDS)


def scripted(rule, limits=TOKENS, ends=ENDS, max_tokens=TOKENS):
    """Texts that end at every offset of a block, with every pattern of right and wrong guesses."""
    target = toys.counter(ends, V)
    draft = toys.ScriptedDraft(target, jnp.asarray(np.resize(PATTERNS, (ROWS, GAMMA))))
    asked = request(ROWS, key=jax.random.key(0), max_tokens=max_tokens, limits=limits)
    options = Options(max_tokens=TOKENS, gamma=GAMMA, rule=rule, record=True)
    return speculative(target, draft, toys.sources(np.arange(ROWS)), asked, options)


def text(ends, limits):
    """What the counters say: 2, 3, .. and at `ends` EOS, cut at `limits`."""
    at = np.arange(TOKENS)
    said = np.where(at + 1 < ends[:, None], 2 + at % (V - 2), toys.EOS)
    return np.where(at < np.minimum(ends, limits)[:, None], said, 0)


@pytest.mark.parametrize("rule", RULES)
def test_b12_the_end_token_at_every_offset_of_a_block(rule):
    decoded = scripted(rule)
    np.testing.assert_array_equal(decoded.tokens, text(ENDS, TOKENS))
    np.testing.assert_array_equal(decoded.lengths, ENDS)
    assert np.all(decoded.finish == Finish.END_TOKEN)
    assert np.all(np.where(np.arange(TOKENS) >= ENDS[:, None], decoded.scores, 0) == 0)


@pytest.mark.parametrize("rule", RULES)
def test_b14_limits_are_exact_in_each_row(rule):
    asked = np.array([0, 1, 2, GAMMA, GAMMA + 1, GAMMA + 2, 7])
    limits = np.resize(asked, ROWS)
    decoded = scripted(rule, limits)
    np.testing.assert_array_equal(decoded.tokens, text(ENDS, limits))
    np.testing.assert_array_equal(decoded.lengths, np.minimum(ENDS, limits))
    # An end token that takes the last place is an end token.
    ended = limits >= ENDS
    np.testing.assert_array_equal(decoded.finish, np.where(ended, 1, 2))
    assert np.any(limits == ENDS)
    np.testing.assert_array_equal(decoded.counters.target_runs == 0, limits == 0)


def test_b14_a_batch_that_may_say_nothing_runs_nothing():
    decoded = scripted("rejection", 0)
    assert not np.any(decoded.tokens)
    assert np.all(decoded.finish == Finish.LENGTH)
    assert not np.any(decoded.counters.target_runs)


@pytest.mark.parametrize(("limits", "told"), [(-1, "-1"), ([3, -2], "-2"), ([9, 1], "9")])
def test_b14_impossible_limits_are_refused(limits, told):
    with pytest.raises(SpecdecError, match=f"limits holds {told}, outside 0 .. 8: .*limits"):
        request(2, key=jax.random.key(0), max_tokens=8, limits=np.array(limits))


def test_a_limit_beyond_the_room_is_cut_to_it():
    """The request was made for more tokens than the program has slots."""
    decoded = scripted("rejection", ends=np.full(ROWS, 30), max_tokens=24)
    np.testing.assert_array_equal(decoded.lengths, TOKENS)
    np.testing.assert_array_equal(decoded.tokens, text(np.full(ROWS, 30), TOKENS))
    assert np.all(decoded.finish == Finish.LENGTH)


def test_no_end_token_when_none_exists():
    target = toys.counter([5], V)
    asked = request(1, key=jax.random.key(0), max_tokens=8)
    options = Options(max_tokens=8, eos_id=-1)
    decoded = autoregressive(target, toys.sources([0]), asked, options)
    assert decoded.tokens.tolist() == [[2, 3, 4, 5, 1, 1, 1, 1]]
    assert decoded.finish.tolist() == [Finish.LENGTH]


def test_b39_a_row_that_has_ended_is_a_fixed_point():
    """Rows end at 1, 3, 9 and never; the models go on saying EOS behind it."""
    target = toys.counter([1, 3, 9, 99], V)
    draft = toys.ScriptedDraft(target, jnp.array([[True, True, False, True]] * 4))
    asked = request(4, key=jax.random.key(0), max_tokens=TOKENS)
    options = Options(max_tokens=TOKENS, gamma=GAMMA, record=True)
    progress = toys.begin(target, draft, toys.sources(range(4)), asked, options)
    runs = 0
    while np.any(progress.finish == Finish.RUNNING):
        before, runs = progress, runs + 1
        progress = toys.advance(progress, target, draft, asked, options)
        ended = before.finish != Finish.RUNNING
        moved = jax.tree.map(
            lambda old, new, ended=ended: np.any((old != new)[ended]),
            before._replace(target=(), draft=()),
            progress._replace(target=(), draft=()),
        )
        assert not any(jax.tree.leaves(moved)), moved
    assert progress.position.tolist() == [1, 3, 9, TOKENS]
    assert progress.counters.target_runs.tolist() == [1, 1, 3, runs]
    assert progress.counters.drafted.tolist() == [4, 4, 12, 4 * runs]
    assert progress.sequence[1].tolist()[:6] == [0, 2, 3, toys.EOS, 0, 0]
    # One more turn than the loop makes: nothing moves any more.
    after = toys.advance(progress, target, draft, asked, options)
    jax.tree.map(np.testing.assert_array_equal, progress, after)


@pytest.mark.parametrize("kind", toys.KINDS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_whose_logits_are_not_finite_keeps_what_it_had(kind, temperature):
    """Every third row breaks, at every offset of a block; the rest goes on as if alone."""
    target, draft = toys.pairs()
    asked = toys.ask(settings=sampling(toys.ROWS, temperature=temperature))
    healthy = toys.run(kind, target, draft, asked)
    rows = np.arange(toys.ROWS)
    since = np.where(rows % 3 == 0, rows // 3 % 7, 1000)
    sick = dataclasses.replace(target, since=jnp.asarray(since, jnp.int32))
    decoded = toys.run(kind, sick, draft, asked)

    lengths = np.minimum(healthy.lengths, since)
    broken = since < healthy.lengths
    assert broken.sum() > 20
    if temperature == 0 or kind != "block":  # whose decisions look ahead
        np.testing.assert_array_equal(decoded.lengths, lengths)
        kept = np.arange(toys.TOKENS) < lengths[:, None]
        np.testing.assert_array_equal(decoded.tokens, np.where(kept, healthy.tokens, 0))
        np.testing.assert_array_equal(
            decoded.finish, np.where(broken, Finish.NOT_FINITE, healthy.finish)
        )
    failed = decoded.finish == Finish.NOT_FINITE
    np.testing.assert_array_equal(decoded.lengths[failed], since[failed])
    assert np.all(decoded.lengths <= since)
    assert np.all(np.isfinite(decoded.scores))
    alone = rows % 3 != 0
    jax.tree.map(
        lambda found, expected: np.testing.assert_array_equal(found[alone], expected[alone]),
        decoded,
        healthy,
    )


def test_reasons_can_be_read():
    assert [str(reason) for reason in Finish] == [
        "still running",
        "the end token came",
        "the length limit was reached",
        "the target's logits are not finite (NaN or infinite)",
    ]
