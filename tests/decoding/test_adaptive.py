"""The number of guesses that the batch chooses: by what rule, at what cost, and without a trace."""

import collections
import dataclasses
import functools
import importlib
import itertools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys
from test_law import cells, probabilities, thresholds

from specdec_jax import theory
from specdec_jax.decoding import Options, adaptive, autoregressive, loop, pace, request, speculative
from specdec_jax.decoding.randomness import RoundKeys
from specdec_jax.drafts import ModelDraft
from specdec_jax.errors import SpecdecError
from specdec_jax.sampling import RULES, sampling

MODULE = importlib.import_module("specdec_jax.decoding.speculative")
# Programs of microseconds: most of the time would go into LLVM's optimiser.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
C, V = 0.08, {2: 1.2, 3: 1.45, 4: 1.5, 8: 1.8}
ALL = jnp.ones(1, bool)


def seen(accepted, rejected, gammas, costs, running=ALL):
    """The choice after so many accepted and rejected guesses, without forgetting."""
    empty = adaptive.begin(running, costs, gammas)
    counts = (jnp.asarray(1 + x, jnp.float32).reshape(running.shape) for x in (accepted, rejected))
    estimate = empty._replace(**dict(zip(("accepted", "rejected"), counts, strict=True)))
    return int(adaptive._choose(estimate, running, costs, gammas).choice)


def test_one_row_takes_the_gamma_of_theorem_3_8():
    gammas = tuple(range(9))
    costs = pace(gammas, c=C, v=V)
    curve, chosen = theory.verify_cost(V), []
    for accepted in range(10):
        alpha = (1 + accepted) / 11
        chosen.append(seen(accepted, 9 - accepted, gammas, costs))
        assert chosen[-1] == theory.optimal_gamma(alpha, c=C, v=curve, max_gamma=8)
    assert (min(chosen), max(chosen)) == (0, 8)


def test_a_batch_weighs_its_running_rows_together():
    gammas = (0, 1, 3, 7)
    costs = pace(gammas, c=C, v=V)
    accepted, rejected = np.array([60, 0, 0]), np.array([1, 30, 30])
    for running in itertools.product([True, False], repeat=3):
        alpha = ((1 + accepted) / (2 + accepted + rejected))[list(running), None]
        tokens = theory.expected_tokens(alpha, gamma=np.array(gammas)).sum(0)
        found = seen(accepted, rejected, gammas, costs, jnp.array(running))
        if any(running):
            assert found == np.argmax(tokens / costs.costs), running
    assert seen(accepted, rejected, gammas, costs, jnp.array([True, False, False])) == 3
    assert seen(accepted, rejected, gammas, costs, jnp.array([False, True, True])) == 0


def test_old_rounds_are_forgotten_and_zero_is_final():
    gammas, going = (0, 1), jnp.ones(2, bool)
    costs = pace(gammas, c=C, v=V, memory=0.5)
    estimate = adaptive.begin(going, costs, gammas)
    for accepted in ([1, 0], [1, 1], [0, 1]):
        estimate = adaptive.learn(estimate, jnp.array(accepted), 1, going, costs, gammas)
    assert estimate.accepted.tolist() == [0.875, 1.625]
    assert estimate.rejected.tolist() == [1.125, 0.375]
    assert (int(estimate.choice), bool(estimate.plain)) == (1, False)
    after = adaptive.learn(estimate, jnp.array([0, 0]), 0, going, costs, gammas)
    assert (int(after.choice), bool(after.plain)) == (0, True)


# Exactly, as in test_law: draws return what they are told, and a round reports, as the scores of
# its tokens, the probability of what it drew. A row is one state of a decode and one set of
# chances; states with the same counts of accepted and rejected guesses share a call.

GAMMAS, DEPTH, ROWS = (0, 1, 2), 4, 2048
SETTINGS = [
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0},
    {"temperature": 0.7, "top_k": 2, "top_p": 1.0},
]


@functools.partial(jax.jit, static_argnames="options", compiler_options=QUICK)
def one_round(target, draft, source, asked, chances, estimate, options):
    """The `Progress` after the first round, for which `estimate` has chosen."""
    weights, held = [], []

    def told(tokens, probs):
        weights.append(jnp.take_along_axis(probs, tokens[..., None], axis=-1)[:, 0, 0])
        return tokens

    def weigh(logits, tokens):
        del logits
        weight = jnp.prod(jnp.stack(weights), axis=0)
        weights.clear()
        return jnp.broadcast_to(weight[:, None], tokens.shape)

    def keys(rows, position, gamma):
        del rows, position
        return RoundKeys(chances.guesses[:, :gamma], chances.uniforms[:, :gamma], chances.extra)

    def loop_of(running, body, progress):
        if not held:
            held.append(None)
            held.append(body(progress._replace(estimate=estimate)))
            return held[-1]
        first = jnp.all(progress.counters.target_runs == 0)
        return jax.lax.cond(running(progress) & first, body, lambda same: same, progress)

    with (
        mock.patch.object(MODULE, "round_keys", keys),
        mock.patch.object(MODULE, "draw", told),
        mock.patch.object(MODULE, "judge", weigh),
        mock.patch.object(loop.lax, "while_loop", loop_of),
    ):
        step = MODULE.step(target, draft, asked, options)
        loop.decode(step, target, draft, source, asked, options)
    return held[-1]


def choice(accepted, rejected, plain, costs):
    alpha = accepted / (accepted + rejected)
    tokens = theory.expected_tokens(alpha, gamma=np.array(GAMMAS))
    return 0 if plain else int(np.argmax(tokens / costs.costs))


def chances_of(rule, p, q, states, gamma):
    """(group, prefix, guesses, uniforms, extra, probability) of every row of some states."""
    size = p.shape[-1]
    for (group, prefix), probability in states.items():
        for block in itertools.product(range(size), repeat=gamma):
            borders = thresholds(rule, p[group], q[group], (0, *prefix)[-1], block)
            for pattern in itertools.product(*map(cells, borders)):
                uniforms, widths = zip(*pattern, strict=True) if pattern else ((), ())
                for extra in range(size):
                    yield group, prefix, block, uniforms, extra, probability * np.prod(widths)


def padded(rows, width, dtype):
    return np.array([(*row, *[0] * (width - len(row))) for row in rows], dtype)


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_decode_of_chosen_gammas_has_the_target_s_law_exactly(rule):
    size = 3
    logits, guesses = (1.5 * np.asarray(toys.normal(seed, 2, size, size)) for seed in (5, 7))
    p, q = probabilities(logits, SETTINGS), probabilities(guesses, SETTINGS)
    options = Options(max_tokens=DEPTH, gamma=2, gammas=GAMMAS, rule=rule)
    costs = pace(GAMMAS, c=C, v=V)
    models = (
        toys.Table(jnp.asarray(logits, jnp.float32)),
        ModelDraft(toys.Table(jnp.asarray(guesses, jnp.float32))),
    )
    law, taken = np.zeros((2, *(size,) * DEPTH)), collections.Counter()
    frontier = {(1.0, 1.0, False): {(group, ()): 1.0 for group in range(2)}}
    while frontier:
        after = collections.defaultdict(lambda: collections.defaultdict(float))
        for (accepted, rejected, plain), states in frontier.items():
            index = choice(accepted, rejected, plain, costs)
            taken[GAMMAS[index]] += 1
            rows = list(chances_of(rule, p, q, states, GAMMAS[index]))
            for part in (rows[at : at + ROWS] for at in range(0, len(rows), ROWS)):
                fill = [*part, *[part[0]] * (ROWS - len(part))]
                group, prefixes, blocks, uniforms, extras, _ = zip(*fill, strict=True)
                lengths = np.array([len(prefix) for prefix in prefixes])
                asked = request(
                    ROWS,
                    key=jax.random.key(0),
                    max_tokens=DEPTH,
                    limits=DEPTH - lengths,
                    prompt=jnp.asarray(padded([(0, *x) for x in prefixes], DEPTH, np.int32)),
                    prompt_lengths=jnp.asarray(lengths + 1, jnp.int32),
                    settings=sampling(
                        ROWS, **{n: np.array([SETTINGS[g][n] for g in group]) for n in SETTINGS[0]}
                    ),
                    pace=costs,
                )
                end = one_round(
                    *models,
                    toys.sources(group),
                    asked,
                    RoundKeys(
                        jnp.asarray(padded(blocks, 2, np.int32)),
                        jnp.asarray(padded(uniforms, 2, np.float32)),
                        jnp.asarray(extras, jnp.int32),
                    ),
                    adaptive.Estimate(
                        accepted=jnp.full(ROWS, accepted, jnp.float32),
                        rejected=jnp.full(ROWS, rejected, jnp.float32),
                        choice=jnp.int32(index),
                        plain=jnp.asarray(plain),
                    ),
                    options,
                )
                end = jax.tree.map(np.asarray, end._replace(target=None, draft=None))
                assert np.all(end.counters.gammas[:, GAMMAS[index]] == 1)
                for row, (g, prefix, *_, weight) in enumerate(part):
                    text = tuple(end.sequence[row, 1 : end.position[row] + 1].tolist())
                    weight *= float(end.scores[row, len(prefix) + 1])
                    if end.finish[row]:
                        law[(g, *text, *[0] * (DEPTH - len(text)))] += weight
                    else:
                        counts = end.estimate.accepted[row], end.estimate.rejected[row]
                        state = (*map(float, counts), bool(end.estimate.plain))
                        after[state][g, text] += weight
        frontier = after
    expected = np.stack([toys.joint_law(table, DEPTH) for table in p])
    np.testing.assert_allclose(law, expected, atol=2e-6)
    assert set(taken) == set(GAMMAS), "every width must be in play"


# By drawing. Each call is a batch of two rows, which choose together; thousands of calls are one
# program under `vmap`, each with its own choices.


@functools.cache
def sampled(rule):
    calls, size, depth = 20_000, 3, 3
    logits, guesses = (1.5 * toys.normal(seed, 2, size, size) for seed in (5, 6))
    target, draft = toys.Table(logits), ModelDraft(toys.Table(guesses))
    options = Options(max_tokens=depth, gamma=2, gammas=GAMMAS, rule=rule)

    @functools.partial(jax.jit, compiler_options=QUICK)
    @jax.vmap
    def decode(key):
        asked = request(
            2,
            key=key,
            max_tokens=depth,
            settings=sampling(2, temperature=1.0),
            pace=pace(GAMMAS, c=C, v=V),
        )
        return speculative(target, draft, toys.sources([0, 1]), asked, options)

    decoded = decode(jax.random.split(jax.random.key(21), calls))
    laws = [[toys.joint_law(toys.standard(t), depth) for t in x] for x in (logits, guesses)]
    return decoded, laws


@pytest.mark.parametrize("rule", RULES)
def test_rows_that_choose_together_are_independent_and_have_the_target_s_law(rule):
    decoded, (law, other) = sampled(rule)
    tokens = np.asarray(decoded.tokens)
    counts = toys.histogram(tokens.reshape(len(tokens), -1), 3)
    assert toys.fit(counts, np.multiply.outer(*law)) > 1e-4
    assert toys.fit(counts, np.multiply.outer(law[0], other[1])) < 1e-4, "the test is blind"
    assert np.all(np.asarray(decoded.counters.gammas).sum((0, 1)) > 2000), "widths must vary"


# Against plain decoding, token for token. Each call is two rows: one whose draft is its target's
# twin, and one of 200, from twins to enemies. Rounds are all but forgotten after the next, so that
# the twin, which earns wide ones, sees narrow ones too whenever the other has failed; where the
# other runs on alone, its first failure ends the guessing.

WIDTHS = (0, 1, 3)


@functools.cache
def together(rule):
    """The decodes of all pairs of rows, and plain decoding of all rows."""
    target, draft = toys.pairs()
    rows = np.arange(toys.ROWS)
    limits = np.where(rows % 7 == 3, 5, toys.TOKENS)
    lengths = np.asarray(toys.run("plain", target, draft, toys.ask(3)).lengths)
    twin = int(np.argmax(lengths * (limits > 5)))
    limits[twin] = 9
    temperature = np.where((rows % 2 > 0) & (rows != twin) & (rule == "coupled"), 0.8, 0.0)
    asked = toys.ask(3, settings=sampling(toys.ROWS, temperature=temperature), limits=limits)
    guesses = draft.model.logits.at[twin].set(target.logits[twin])
    draft = ModelDraft(dataclasses.replace(draft.model, logits=guesses))
    calls = np.stack([np.full_like(rows, twin), rows], axis=1)
    options = Options(
        max_tokens=toys.TOKENS, gamma=toys.GAMMA, gammas=WIDTHS, rule=rule, record=True
    )
    costs = pace(WIDTHS, c=0.2, v={2: 1.2, 4: 2.0}, memory=0.01)

    @functools.partial(jax.jit, compiler_options=QUICK)
    @jax.vmap
    def decode(source, call):
        mine = jax.tree.map(lambda leaf: leaf[call], asked)
        return speculative(target, draft, source, mine._replace(pace=costs), options)

    source = toys.sources(calls.ravel()).reshape(*calls.shape, 1)
    decoded = decode(source, jnp.asarray(calls))
    plain = toys.run("plain", target, draft, asked)
    return jax.tree.map(np.asarray, decoded), jax.tree.map(lambda leaf: leaf[calls], plain)


@pytest.mark.parametrize("rule", RULES)
def test_tokens_are_those_of_plain_decoding_whatever_is_chosen(rule):
    decoded, plain = together(rule)
    for name in ("tokens", "lengths", "finish"):
        np.testing.assert_array_equal(getattr(decoded, name), getattr(plain, name), err_msg=name)
    np.testing.assert_allclose(decoded.scores, plain.scores, atol=1e-5)
    # A hole in the draft's cache, behind a wide round or a narrow one, would show in the twin.
    twin = jax.tree.map(lambda leaf: leaf[:, 0], decoded.counters)
    np.testing.assert_array_equal(twin.accepted, twin.tested)
    before, after = decoded.rounds.gammas[:, 0, :-1], decoded.rounds.gammas[:, 0, 1:]
    assert np.any((before == 1) & (after == 3))
    assert np.any((before == 3) & (after == 1))


def test_counters_and_rounds_tell_what_was_chosen():
    decoded, _ = together("rejection")
    counters, rounds = decoded.counters, decoded.rounds
    np.testing.assert_array_equal(counters.gammas.sum(-1), counters.target_runs)
    np.testing.assert_array_equal(counters.gammas @ np.arange(4), counters.drafted)
    assert counters.gammas[..., 2].sum() == 0
    assert np.all(counters.gammas[..., [0, 1, 3]].sum((0, 1)) > 50)
    for call, row in itertools.product(range(0, toys.ROWS, 9), range(2)):
        runs, length = counters.target_runs[call, row], decoded.lengths[call, row]
        said, taken = [], rounds.gammas[call, row]
        for number in range(runs):
            accepted = rounds.accepted[call, row, number]
            assert accepted <= taken[number]
            said += rounds.drafted[call, row, number, :accepted].tolist()
            if len(said) < length:
                said.append(int(rounds.extra[call, row, number]))
        assert said == decoded.tokens[call, row, :length].tolist()
        np.testing.assert_array_equal(
            np.bincount(taken[:runs], minlength=4), counters.gammas[call, row]
        )
        # Zero is final.
        assert np.all(np.diff(np.flatnonzero(taken[:runs] == 0)) == 1)
        assert taken[:runs].tolist()[-1] == 0 or 0 not in taken[:runs]


def test_a_useless_draft_is_given_up_and_not_asked_again():
    target, guesser = toys.Tally(), toys.Tally()
    script = toys.counter([99], 7)
    wrong = toys.Script(jnp.zeros_like(script.tokens), 7)
    gammas = (0, 1, 3)
    decoded = speculative(
        toys.Counted(script, target),
        ModelDraft(toys.Counted(wrong, guesser)),
        toys.sources([0]),
        request(
            1, key=jax.random.key(0), max_tokens=9, pace=pace(gammas, c=0.0, v={2: 1.2, 4: 1.4})
        ),
        Options(max_tokens=9, gamma=3, gammas=gammas),
    )
    jax.block_until_ready(decoded)
    jax.effects_barrier()
    # Of 1, 0.9, 0.81, 0.73 accepted and 1, 1.9, 2.71, 3.44 rejected: alpha 0.5, 0.32, 0.23, 0.17.
    # One guess pays above 0.2, three more than one where 1 + alpha^2 > 1.4 / 1.2: above 0.41.
    assert target.calls == [(4, 0), (2, 1), (2, 2), *((1, at) for at in range(3, 9))]
    assert guesser.calls == [(2, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
    assert decoded.counters.gammas.tolist() == [[6, 2, 0, 1]]
    assert decoded.counters.drafted.tolist() == [5]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gamma": 3, "gammas": (0, 1)}, r"gammas is \(0, 1\) and gamma 3"),
        ({"gamma": 3, "gammas": (1, 0, 3)}, "ascending"),
        ({"gamma": 3, "gammas": (-1, 3)}, "from 0 on"),
    ],
)
def test_gammas_that_cannot_be_meant(given, message):
    with pytest.raises(SpecdecError, match=message):
        Options(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"c": -1.0}, "c is -1"),
        ({"v": {}}, "measured is empty"),
        ({"accepted": 0.0}, "accepted is 0"),
        ({"rejected": np.inf}, "rejected is inf"),
        ({"memory": 1.5}, "memory is 1.5, but must be above 0 and at most 1"),
    ],
)
def test_costs_that_cannot_be_meant(given, message):
    with pytest.raises(SpecdecError, match=message):
        pace((0, 1), **{"c": C, "v": V} | given)


def test_costs_of_other_gammas_are_refused():
    target = toys.Table(toys.normal(0, 1, 4, 4))
    options = Options(max_tokens=2, gamma=3, gammas=WIDTHS)
    asked = request(1, key=jax.random.key(0), max_tokens=2)
    for costs, known in ((None, 0), (pace((0, 1), c=C, v=V), 2)):
        with pytest.raises(SpecdecError, match=f"3 gammas to choose from and the costs of {known}"):
            speculative(
                target, ModelDraft(target), toys.sources([0]), asked._replace(pace=costs), options
            )


def test_without_guesses_there_is_nothing_to_choose():
    target = toys.Table(toys.normal(0, 1, 4, 4))
    asked = request(1, key=jax.random.key(0), max_tokens=3, pace=pace((0,), c=C, v=V))
    options = Options(max_tokens=3, gammas=(0,))
    plain = autoregressive(
        target, toys.sources([0]), asked, dataclasses.replace(options, gammas=())
    )
    decoded = speculative(target, toys.Forbidden(4), toys.sources([0]), asked, options)
    jax.tree.map(np.testing.assert_array_equal, decoded, plain)
