"""Alphas against enumeration on table models, and against the compiled loop on the shipped pair."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from specdec_jax import text, theory
from specdec_jax.bench import alphas as module
from specdec_jax.bench import demo
from specdec_jax.bench.alphas import alphas, total_variation
from specdec_jax.bench.judge import (
    judge_argmax,
    judge_rejection,
    model_logits,
    proposed_logits,
)
from specdec_jax.bench.outputs import outputs, ratio
from specdec_jax.decoding import Finish, Options, request, speculative
from specdec_jax.drafts import LookupDraft, ModelDraft, NGramDraft
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Line, Pair, Settings, decode, load_pair
from specdec_jax.sampling import sampling
from specdec_jax.text import ByteVocabulary

V, L = 6, 8
TARGET = 1.5 * toys.normal(3, 1, V, V)
DRAFT = TARGET + toys.normal(4, 1, V, V)
IDS = ByteVocabulary.size
WAY = Settings(max_tokens=L, batch_size=64)
LINES = [f"{number}" for number in range(600)]


def table(logits):
    """One table, whatever id a source begins with."""
    return toys.Table(jnp.broadcast_to(logits, (IDS, V, V)))


def toy_pair(draft, target=None):
    """A table, whose whole truth is known, as the target."""
    pair = object.__new__(Pair)  # whose own constructor insists on a T5
    target = table(TARGET) if target is None else target
    parts = {"target": target, "draft": draft, "vocabulary": ByteVocabulary()}
    for name, value in {**parts, "mesh": None}.items():
        object.__setattr__(pair, name, value)
    return pair


@pytest.fixture
def pair():
    return toy_pair(ModelDraft(table(DRAFT)))


def lenient(p, q, lenience):
    """The law of a token that a lenient round emits where it tests a guess, written out."""
    kept = np.minimum(p / lenience, q)
    owed = np.maximum(p - lenience * q, 0)
    return kept + (1 - kept.sum(-1, keepdims=True)) * owed / owed.sum(-1, keepdims=True)


def visits(p):
    """How often each token is the last one of a prefix, in outputs of at most L tokens."""
    here, seen = np.eye(V)[0], np.zeros(V)
    for _ in range(L):
        seen += here
        here = here @ p * (np.arange(V) != toys.EOS)
    return seen / seen.sum()


def test_sampled_rows_are_what_enumeration_says(pair):
    rows = alphas(
        pair,
        {"table": pair.draft},
        LINES,
        WAY,
        task="toys",
        prefix="",
        temperatures=[1.0],
        tokens=2000,
        progress=False,
    )
    p, q = toys.standard(TARGET[0]), toys.standard(DRAFT[0])
    weight = visits(p)
    assert [row["lenience"] for row in rows] == [1.0, 0.5, 0.3, 0.1]
    for row in rows:
        lenience = row["lenience"]
        beta = theory.lenient_alpha(p, q, lenience=lenience)
        far = np.abs(lenient(p, q, lenience) - p).sum(-1) / 2
        assert row["tokens"] >= 2000
        assert (row["task"], row["draft"], row["rule"]) == ("toys", "table", "rejection")
        assert row["temperature"] == 1.0
        assert row["lossy"] is (lenience < 1)
        for name, truth in (
            ("alpha", weight @ beta),
            ("accepted_rate", weight @ beta),
            ("total_variation", weight @ far),
        ):
            error = row[f"{name}_se"]
            assert abs(row[name] - truth) < 4 * error + 1e-6, (name, lenience)
            assert error < 0.03
    # The exact rule emits the target's law, and lenience goes away from it.
    assert rows[0]["total_variation"] < 1e-6
    distances = [row["total_variation"] for row in rows]
    assert distances == sorted(distances)
    assert distances[1] > 0.01


def test_greedy_rows_are_those_of_the_argmax_rule():
    """Each line has a table of its own, or a greedy text would run in circles."""
    targets = 1.5 * toys.normal(5, IDS, V, V)
    drafts = targets + toys.normal(6, IDS, V, V)
    lines = [chr(40 + number) for number in range(64)]
    rows = alphas(
        toy_pair(None, toys.Table(targets)),
        {"table": ModelDraft(toys.Table(drafts))},
        lines,
        WAY,
        task="toys",
        prefix="",
        temperatures=[0.0],
        tokens=64,
        progress=False,
    )
    count, kept, lossy = 0, np.zeros(4), np.zeros(4)
    for line in lines:
        p, q = (np.asarray(logits[ord(line) + 3]) for logits in (targets, drafts))
        p = toys.standard(p)
        last = 0
        for _ in range(L):
            guess, best = q[last].argmax(), p[last].argmax()
            passes = p[last, guess] >= np.array([1.0, 0.5, 0.3, 0.1]) * p[last, best]
            count, kept, lossy = count + 1, kept + passes, lossy + (passes & (guess != best))
            last = best
            if last == toys.EOS:
                break
    assert 0.3 * count < kept[0] < kept[1] < kept[2] < kept[3]
    for row, right, wrong in zip(rows, kept, lossy, strict=True):
        assert row["rule"] == "argmax"
        assert row["alpha"] == row["accepted_rate"] == pytest.approx(right / count)
        assert row["total_variation"] == pytest.approx(wrong / count)
        assert (row["lines"], row["tokens"]) == (64, count)
    # The inequality as the paper prints it would have accepted everything at l = 1.
    assert rows[0]["total_variation"] == 0


@pytest.mark.parametrize("lenience", [1.0, 0.3])
def test_the_loop_emits_the_lenient_law(lenience):
    """What `total_variation` is the distance of: the first token of the compiled loop."""
    rows = 20_000
    asked = request(
        rows, key=jax.random.key(2), max_tokens=1, settings=sampling(rows, temperature=1.0)
    )
    options = Options(max_tokens=1, gamma=1, lenience=lenience)
    draft, source = ModelDraft(toys.Table(DRAFT)), toys.sources(np.zeros(rows))
    decoded = speculative(toys.Table(TARGET), draft, source, asked, options)
    p, q = toys.standard(TARGET[0])[0], toys.standard(DRAFT[0])[0]
    counts = toys.histogram(decoded.tokens, V)
    assert toys.fit(counts, lenient(p, q, lenience)) > 1e-4
    assert lenience == 1 or toys.fit(counts, p) < 1e-6


def test_the_distance_of_lines_is_that_of_their_tokens(pair):
    way = dataclasses.replace(WAY, temperature=1.0, lenience=0.5)

    def line(*tokens):
        return Line("s", "", list(tokens), [], Finish.LENGTH, 1, 1, 1, 1, None)

    p, q = toys.standard(TARGET[0]), toys.standard(DRAFT[0])
    far = np.abs(lenient(p, q, 0.5) - p).sum(-1) / 2
    found = total_variation(pair, [line(2, 3, 1), line(4), line()], way, prefix="")
    assert found == pytest.approx(far[[0, 2, 3, 0]].mean(), rel=1e-4)
    assert total_variation(pair, [line()], way, prefix="") is None
    exact = dataclasses.replace(way, lenience=1.0)
    assert total_variation(pair, [line(2, 3)], exact, prefix="") < 1e-6
    # One-hot distributions leave the loop's rule nothing to be lenient about.
    greedy = dataclasses.replace(way, temperature=0.0)
    assert total_variation(pair, [line(2, 3)], greedy, prefix="") == 0
    with pytest.raises(SpecdecError, match="needs a draft"):
        total_variation(toy_pair(None), [line(2)], way, prefix="")


def test_one_run_over_a_text_is_a_guess_behind_every_slot():
    """Also through a state that remembers every token: `propose` must rewind and go on."""
    draft = toys.pairs()[1]
    rows, width = np.array([3, 60, 199]), 10
    sequence = np.random.default_rng(0).integers(0, 6, (3, width + 1))
    sequence[:, 0] = 0
    sequence = jnp.asarray(sequence, jnp.int32)
    one = model_logits(draft.model, toys.sources(rows), sequence[:, :-1])
    each = proposed_logits(draft, toys.sources(rows), sequence)
    assert one.shape == each.shape == (3, width, 6)
    np.testing.assert_array_equal(one, each)


def test_a_guess_does_not_see_what_comes():
    draft = LookupDraft(NGramDraft(jnp.arange(1.0, 7.0) / 21))
    source = jnp.array([[2, 3, 4, 5, 1, 0]], jnp.int32)
    before = jnp.array([[0, 2, 3, 2, 5, 3, 1]], jnp.int32)
    found = proposed_logits(draft, source, before)[0]
    for slot in range(6):
        after = before.at[:, slot + 1 :].set(4)
        np.testing.assert_array_equal(
            proposed_logits(draft, source, after)[0, : slot + 1], found[: slot + 1]
        )
    # Behind 2 the source goes on with 3, for certain; where nothing matches, the unigram speaks.
    assert found[1].tolist() == [-np.inf, -np.inf, -np.inf, 0.0, -np.inf, -np.inf]
    np.testing.assert_allclose(jax.nn.softmax(found[0]), np.arange(1, 7) / 21, rtol=1e-6)


def test_errors_are_those_of_lines():
    mean, error = ratio(np.array([1.0, 3.0, 0.0]), np.array([2.0, 4.0, 0.0]))
    assert mean == pytest.approx(4 / 6)
    # Residuals 1 - 4/3 and 3 - 8/3.
    assert error == pytest.approx(np.sqrt(2 * (2 / 9)) / 6)
    assert ratio(np.array([1.0]), np.array([2.0])) == (0.5, None)


def test_too_few_lines_are_told(pair):
    with pytest.raises(SpecdecError, match=r"The 2 lines gave \d+ tokens .* but 500 were asked"):
        list(outputs(pair, LINES[:2], WAY, prefix="", tokens=500, progress=False))
    with pytest.raises(SpecdecError, match="no lines"):
        list(outputs(pair, [], WAY, prefix="", progress=False))


def test_outputs_are_every_line_s_own(pair):
    """Whatever batch a line is in, and in which order the batches come."""
    way = dataclasses.replace(WAY, temperature=1.0)
    lines = ["x" * (number % 7) for number in range(70)]

    def by_line(**options):
        found = {}
        for batch in outputs(pair, lines, way, prefix="", progress=False, **options):
            for row in np.flatnonzero(batch.lengths):
                assert int(batch.lines[row]) not in found
                found[int(batch.lines[row])] = batch.tokens[row].tolist()
        return found

    everything = by_line()
    assert sorted(everything) == list(range(70))
    assert len({tuple(tokens) for tokens in everything.values()}) > 10
    some = by_line(tokens=80)
    assert len(some) > 0
    assert all(everything[line] == tokens for line, tokens in some.items())


@pytest.mark.parametrize(
    ("options", "told"),
    [({"leniences": [0.0]}, "lenience is 0.0"), ({"drafts": {}}, "no draft to measure")],
)
def test_what_cannot_be_measured_is_told(pair, options, told):
    given = {"drafts": {"d": pair.draft}, "lines": LINES, "settings": WAY} | options
    with pytest.raises(SpecdecError, match=told):
        alphas(pair, task="t", prefix="", **given)


def test_tables_have_the_paper_s_form():
    def row(draft, temperature, lenience, alpha):
        return {
            "task": "ende",
            "draft": draft,
            "temperature": temperature,
            "lenience": lenience,
            "rule": "rejection",
            "lossy": lenience < 1,
            "tokens": 10_240,
            "lines": 400,
            "alpha": alpha,
            "alpha_se": 0.004,
            "accepted_rate": 0.7,
            "accepted_rate_se": None,
            "total_variation": 0.125,
            "total_variation_se": 0.001,
        }

    found = module.render([row("small", 1.0, 1.0, 0.62), row("small", 1.0, 0.5, 0.71)])
    assert "| ende | small | 0.620 ± 0.004 | 0.700 | 10,240 |" in found
    assert "LOSSY" in found
    assert "| ende | small | 1 | rejection | 0.620 ± 0.004 | 0.710 ± 0.004 (0.125) |" in found
    assert "LOSSY" not in module.render([row("small", 1.0, 1.0, 0.62)])


@pytest.mark.slow
def test_the_loop_accepts_what_the_passes_say():
    """The shipped pair, guess by guess: greedy ones exactly, sampled ones by their chance."""
    pair, words = load_pair(), text.prefix("ende")
    lines = [source for source, _ in demo.sentences()][:8]
    way = Settings(gamma=3, max_tokens=32, batch_size=8, record=True)
    (batch,) = outputs(pair, lines, way, prefix=words, progress=False)
    surprise, spread, tested_in_all = 0.0, 0.0, 0
    for temperature, judge in ((0.0, judge_argmax), (1.0, judge_rejection)):
        here = dataclasses.replace(way, temperature=temperature)
        decoded = decode(
            pair, batch.source, here, numbers=batch.lines, limits=np.full(8, way.max_tokens)
        )
        sequence = jnp.pad(decoded.tokens, ((0, 0), (1, 0)))[:, :-1]
        logits = [
            model_logits(model, jnp.asarray(batch.source), sequence)
            for model in (pair.target, pair.draft.model)
        ]
        settings = here.sampling(8), here.draft_sampling(8)
        judged = judge(*logits, settings, jnp.zeros((2, 8, way.max_tokens)), (1.0,))
        beta, rounds = np.asarray(judged.beta[0]), jax.device_get(decoded.rounds)
        accepted = int(decoded.counters.accepted.sum())
        expected = 0.0
        for row in range(8):
            slot, length = 0, int(decoded.lengths[row])
            for taken in rounds.accepted[row, : int(decoded.counters.target_runs[row])]:
                # The accepted guesses, and the one that was rejected, if any was reached.
                tested = beta[row, slot : min(slot + min(taken + 1, way.gamma), length)]
                expected += tested.sum()
                spread += (tested * (1 - tested)).sum()
                tested_in_all += len(tested)
                slot += taken + 1
        if temperature == 0:
            # Whatever alpha is: the same guesses were right.
            assert accepted == expected
            assert tested_in_all == int(decoded.counters.tested.sum())
        else:
            surprise = accepted - expected
    assert abs(surprise) < 4 * np.sqrt(spread)
