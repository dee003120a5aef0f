"""What compiles, what does not, and that a decode never waits for the host."""

import contextlib
import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from specdec_jax.decoding import Options, autoregressive, pace, request, speculative
from specdec_jax.drafts import ModelDraft
from specdec_jax.sampling import sampling

ROWS, V = 3, 7
OPTIONS = Options(max_tokens=6, gamma=2)
CHOSEN = dataclasses.replace(OPTIONS, gammas=(0, 1, 2))


def models(seed=0):
    return toys.Table(toys.normal(seed, 4, V, V)), ModelDraft(toys.Table(toys.normal(9, 4, V, V)))


def ask(seed=0, **kwargs):
    return request(ROWS, key=jax.random.key(seed), max_tokens=6, **kwargs)


@contextlib.contextmanager
def compilations(caplog):
    """The names of the programs that were compiled meanwhile."""
    names = []
    caplog.clear()
    with jax.log_compiles():
        yield names
    names += [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling ")]


def other_requests():
    """Everything in a request that may change from one call to the next."""
    yield ask(1)
    yield ask(2, settings=sampling(ROWS, temperature=0.7))
    yield ask(3, settings=sampling(ROWS, temperature=[0, 1, 2], top_k=[0, 3, 1], top_p=0.9))
    yield ask(4, draft_settings=sampling(ROWS, temperature=2))
    yield ask(5, limits=3)
    yield ask(6, limits=np.array([0, 1, 6]))
    yield request(ROWS, key=jax.random.split(jax.random.key(7), ROWS), max_tokens=6)


@pytest.mark.parametrize("kind", ["plain", "rejection", "block", "coupled", "chosen gamma"])
def test_b50_a_second_request_compiles_nothing(kind, caplog):
    target, draft = models()
    later, _ = models(1)
    source = toys.sources([0, 1, 2])
    turns = itertools.count()
    requests, sources = list(other_requests()), [toys.sources([k, 3, 1]) for k in range(4)]

    def run(target, source, asked):
        if kind == "plain":
            return autoregressive(target, source, asked, OPTIONS)
        if kind == "chosen gamma":
            # Other costs each time, and another prior.
            turn = next(turns)
            costs = pace((0, 1, 2), c=turn / 9, v={2: 1 + turn / 9}, accepted=1.0 + turn)
            asked = asked._replace(pace=costs)
            return speculative(target, draft, source, asked, CHOSEN)
        options = dataclasses.replace(OPTIONS, rule=kind)
        return speculative(target, draft, source, asked, options)

    run(target, source, ask())
    with compilations(caplog) as names:
        for asked in requests:
            run(target, source, asked)
        for source in sources:
            run(target, source, requests[0])
        run(later, source, requests[0])  # another checkpoint
    assert names == []


def test_the_count_of_compilations_is_alive(caplog):
    """Another length of output is another program."""
    target, _ = models()
    with compilations(caplog) as names:
        autoregressive(target, toys.sources([0, 1, 2]), ask(), Options(max_tokens=5))
    assert len(names) > 0


def test_b50_nothing_passes_between_host_and_device():
    target, draft = models()
    source, asked = toys.sources([0, 1, 2]), ask()
    speculative(target, draft, source, asked, OPTIONS)
    with jax.transfer_guard("disallow"):
        decoded = speculative(target, draft, source, asked, OPTIONS)
        with pytest.raises(Exception, match="transfer"):
            jnp.add(decoded.tokens, np.ones(6, np.int32))


def test_b48_gamma_0_is_plain_decoding_and_never_calls_the_draft():
    target, _ = models()
    source, asked = toys.sources([0, 1, 2]), ask(settings=sampling(ROWS, temperature=1.0))
    options = Options(max_tokens=6)
    plain = autoregressive(target, source, asked, options)
    decoded = speculative(target, toys.Forbidden(V), source, asked, options)
    jax.tree.map(np.testing.assert_array_equal, decoded, plain)


def test_b51_counters_are_the_calls_that_happened():
    """One call of the target for gamma + 1 tokens a round, gamma of the draft, at its places."""
    target, draft = toys.Tally(), toys.Tally()
    script = toys.counter([99], V)
    wrong_last = toys.Script(script.tokens.at[0, 3::4].set(0), V)
    asked = request(1, key=jax.random.key(0), max_tokens=9)
    options = Options(max_tokens=9, gamma=3)
    decoded = speculative(
        toys.Counted(script, target),
        ModelDraft(toys.Counted(wrong_last, draft)),
        toys.sources([0]),
        asked,
        options,
    )
    jax.block_until_ready(decoded)
    jax.effects_barrier()
    runs = int(decoded.counters.target_runs[0])
    # Token 4 of each group of four is guessed wrong: all of the first three accepted.
    assert decoded.counters.accepted.tolist() == [[3, 2, 2]]
    assert target.calls == [(4, 0), (4, 4), (4, 8)]
    assert runs == len(target.calls)
    assert draft.calls == [
        *((2, 0), (1, 1), (1, 2)),
        *((2, 3), (1, 5), (1, 6)),
        *((2, 7), (1, 9), (1, 10)),
    ]
    assert int(decoded.counters.drafted[0]) == len(draft.calls)
