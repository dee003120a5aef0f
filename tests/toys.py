"""Language models and drafts whose whole truth is known, and references to hold a decode against.

Every model is a pytree that obeys `specdec_jax.decoding.contract`. The first id of a row's source
chooses among the model's tables, so one batch holds as many different models as it has rows.
"""

import dataclasses
import importlib
import itertools
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats

from specdec_jax.decoding import (
    Options,
    Proposal,
    autoregressive,
    loop,
    request,
    speculative,
)
from specdec_jax.drafts import ModelDraft
from specdec_jax.sampling import RULES, argmax

EOS = 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Table:
    """Markov: the next token depends on the source and on the token before it."""

    logits: jax.Array  # [K, V, V]

    @property
    def vocab_size(self):
        return self.logits.shape[-1]

    def start(self, source, length):
        del length
        return source[:, 0]

    def extend(self, state, tokens, position):
        del position
        return self.logits[state[:, None], tokens], state


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class History:
    """The next token depends on every token so far, as the STATE remembers them.

    A slot that was skipped, left over from a rejected guess or written at the wrong place shows in
    all that follows, as it would in a network's cache. From slot `since` on the logits are NaN.
    """

    logits: jax.Array  # [K, C, V]
    since: jax.Array  # [K]

    @property
    def vocab_size(self):
        return self.logits.shape[-1]

    def start(self, source, length):
        return source[:, 0], jnp.full((source.shape[0], length), -1, jnp.int32)

    def extend(self, state, tokens, position):
        which, slots = state
        write = jax.vmap(lambda row, new, at: jax.lax.dynamic_update_slice(row, new, (at,)))
        slots = write(slots, tokens, position)
        read = position[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)
        codes = jnp.take_along_axis(jnp.cumsum(self._weigh(slots), axis=1), read, axis=1)
        logits = self.logits[which[:, None], codes % self.logits.shape[1]]
        broken = read >= self.since[which][:, None]
        return jnp.where(broken[..., None], jnp.nan, logits), (which, slots)

    @staticmethod
    def _weigh(slots):
        at = np.arange(slots.shape[1], dtype=np.int32)
        return (slots + 2) * (3 * at * at + 5 * at + 1)

    def codes(self, sequence):
        """Which of the C rows of a table speaks at each slot, from the sequence itself."""
        return np.cumsum(self._weigh(np.asarray(sequence)), axis=1) % self.logits.shape[1]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Script:
    """Certain of a given text: the token of slot s + 1 is tokens[source, s], come what may."""

    tokens: jax.Array  # [K, T]
    vocab_size: int = dataclasses.field(metadata={"static": True})

    def start(self, source, length):
        del length
        return source[:, 0]

    def extend(self, state, tokens, position):
        read = position[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)
        text = self.tokens[state[:, None], jnp.minimum(read, self.tokens.shape[1] - 1)]
        return certain(text, self.vocab_size), state


def counter(ends, vocab_size):
    """The `Script` that counts 2, 3, .. and from token number `ends[k]` on says EOS for ever."""
    at = np.arange(32)
    text = np.where(at + 1 < np.asarray(ends)[:, None], 2 + at % (vocab_size - 2), EOS)
    return Script(jnp.asarray(text, jnp.int32), vocab_size)


def certain(tokens, vocab_size):
    """Logits of one possible token; finite, as a network's are, and exp(-1e9) is 0."""
    return jnp.where(jnp.arange(vocab_size) == tokens[..., None], 0.0, -1e9)


def favourite(index, logits):
    """A `Choose` that also counts: q is one-hot."""
    del index
    token = argmax(logits[:, None])[:, 0]
    return token, jax.nn.one_hot(token, logits.shape[-1])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ScriptedDraft:
    """Guesses what a `Script` will say, but guess g of a round is wrong unless right[source, g].

    A wrong guess is EOS wherever that is wrong: what is rejected must not end a row.
    """

    script: Script
    right: jax.Array  # bool [K, G]

    @property
    def vocab_size(self):
        return self.script.vocab_size

    def start(self, source, prompt, length):
        del prompt, length
        return source[:, 0]

    def propose(self, state, sequence, position, choose, gamma):
        del sequence
        guesses = []
        for index in range(gamma):
            at = jnp.minimum(position + index, self.script.tokens.shape[1] - 1)
            token = self.script.tokens[state, at]
            wrong = jnp.where(token == EOS, 0, EOS)
            token = jnp.where(self.right[state, index], token, wrong)
            guesses.append(choose(index, certain(token, self.vocab_size)))
        tokens, probs = (jnp.stack(part, axis=1) for part in zip(*guesses, strict=True))
        return Proposal(tokens, probs), state


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Strict:
    """A model that an id outside its vocabulary poisons, as long as any slot holds it.

    So does an embedding that answers with NaN: a mask is added, and NaN stays what it is.
    """

    model: Any

    @property
    def vocab_size(self):
        return self.model.vocab_size

    def start(self, source, length):
        return self.model.start(source, length), jnp.zeros((source.shape[0], length))

    def extend(self, state, tokens, position):
        inner, slots = state
        logits, inner = self.model.extend(inner, tokens, position)
        known = (tokens >= 0) & (tokens < self.vocab_size)
        write = jax.vmap(lambda row, new, at: jax.lax.dynamic_update_slice(row, new, (at,)))
        slots = write(slots, jnp.where(known, 0.0, jnp.nan), position)
        return logits + jnp.sum(slots, axis=1)[:, None, None], (inner, slots)


class Tally:
    """What a `Counted` model was asked to do: (tokens read, position of row 0) of each call."""

    def __init__(self):
        self.calls = []

    def note(self, width, position):
        self.calls.append((int(width), int(position)))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Counted:
    """A model that reports every call of `extend` at run time."""

    model: Any
    tally: Tally = dataclasses.field(metadata={"static": True})

    @property
    def vocab_size(self):
        return self.model.vocab_size

    def start(self, source, length):
        return self.model.start(source, length)

    def extend(self, state, tokens, position):
        jax.debug.callback(self.tally.note, tokens.shape[1], position[0], ordered=True)
        return self.model.extend(state, tokens, position)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Forbidden:
    """A draft that must not be called, not even while the program is traced."""

    vocab_size: int = dataclasses.field(metadata={"static": True})

    def start(self, *args):
        raise AssertionError("the draft was started")

    def propose(self, *args):
        raise AssertionError("the draft was asked")


def normal(seed, *shape):
    """NumPy's: one compilation less for each shape."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def sources(ids, width=1):
    """One source for each row: its id, then padding."""
    ids = jnp.asarray(ids, jnp.int32)[:, None]
    return jnp.pad(ids, ((0, 0), (0, width - 1)))


def standard(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The adjusted distribution of the last axis, by sorting and in float64."""
    x = np.asarray(logits, np.float64)
    if temperature <= 1e-4:
        return (np.arange(x.shape[-1]) == x.argmax(-1)[..., None]).astype(np.float64)
    x = x / temperature
    if top_k:
        x = np.where(x >= np.sort(x, -1)[..., [-min(top_k, x.shape[-1])]], x, -np.inf)
    probs = scipy.special.softmax(x, axis=-1)
    if top_p < 1:
        order = np.sort(probs, -1)[..., ::-1]
        last = (np.cumsum(order, -1) < top_p).sum(-1, keepdims=True)
        probs = np.where(probs >= np.take_along_axis(order, last, -1), probs, 0.0)
    return probs / probs.sum(-1, keepdims=True)


def joint_law(table, depth, start=0, eos=EOS):
    """P(output) of a Markov table of probabilities [V, V], as an array (V,) * depth.

    After the end token an output is 0; id 0 is a token like any other before it.
    """
    V = len(table)
    law = np.zeros((V,) * depth)
    for text in itertools.product(range(V), repeat=depth):
        probability, last, ended = 1.0, start, False
        for token in text:
            probability *= float(token == 0) if ended else table[last, token]
            ended, last = ended or token == eos, token
        law[text] = probability
    return law


def histogram(tokens, V):
    """Counts of whole outputs [rows, depth], as an array (V,) * depth."""
    tokens = np.asarray(tokens)
    depth = tokens.shape[1]
    codes = np.ravel_multi_index(tuple(tokens.T), (V,) * depth)
    return np.bincount(codes, minlength=V**depth).reshape((V,) * depth)


def fit(counts, law):
    """The p-value of counts under a law: chi-square, cells that expect fewer than 5 in one pool."""
    counts, law = np.ravel(counts), np.ravel(law)
    assert counts[law == 0].sum() == 0, "something impossible was drawn"
    expected = law * counts.sum()
    small = expected < 5
    counts = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    if expected[-1] < 5:
        order = np.argsort(expected[:-1])[0]
        counts[order], expected[order] = counts[order] + counts[-1], expected[order] + expected[-1]
        counts, expected = counts[:-1], expected[:-1]
    assert len(counts) > 1, "one cell alone cannot fail"
    return scipy.stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue


ROWS, TOKENS, GAMMA, WIDTH = 200, 12, 3, 4
KINDS = ("plain", *RULES)


def pairs(seed=0):
    """A target and a draft for each of `ROWS` sources: from twins to strangers, then enemies.

    The last 40 drafts give no probability to the target's favourite after any prefix.
    """
    logits = 2 * normal(seed, ROWS, 11, 6)
    spread = jnp.linspace(0.0, 4.0, ROWS)[:, None, None]
    guesses = logits + spread * normal(seed + 1, ROWS, 11, 6)
    favourite = logits == jnp.max(logits, axis=-1, keepdims=True)
    enemy = (jnp.arange(ROWS) >= ROWS - 40)[:, None, None]
    guesses = jnp.where(enemy & favourite, -1e9, guesses)
    never = jnp.full((ROWS,), 1000, jnp.int32)
    return History(logits, never), ModelDraft(History(guesses, never))


def ask(seed=0, **kwargs):
    """A request of one shape for all tests of `pairs`, so that they share compiled programs."""
    kwargs.setdefault("prompt", jnp.zeros((ROWS, WIDTH), jnp.int32))
    kwargs.setdefault("prompt_lengths", jnp.ones(ROWS, jnp.int32))
    kwargs.setdefault("key", jax.random.key(seed))
    return request(ROWS, max_tokens=TOKENS, **kwargs)


def run(kind, target, draft, asked, which=None, **options):
    """Decode all pairs, or those that `which` names for each row, plainly or with a rule."""
    source = sources(np.arange(ROWS) if which is None else which)
    options = {"max_tokens": TOKENS, "record": True} | options
    if kind == "plain":
        return autoregressive(target, source, asked, Options(**options))
    return speculative(target, draft, source, asked, Options(gamma=GAMMA, rule=kind, **options))


@partial(jax.jit, static_argnames="options")
def begin(target, draft, source, asked, options):
    """The `Progress` with which `decode` enters its loop."""
    held = []

    def hold(running, body, progress):
        del running, body
        held.append(progress)
        return progress

    with mock.patch.object(loop.lax, "while_loop", hold):
        loop.decode(_step(target, draft, asked, options), target, draft, source, asked, options)
    return held[0]


@partial(jax.jit, static_argnames="options")
def advance(progress, target, draft, asked, options):
    """One turn of the loop."""
    found = _step(target, draft, asked, options)(progress)
    return loop._commit(progress, found, options.eos_id)


def _step(target, draft, asked, options):
    # The package's name for the function hides the module.
    module = importlib.import_module("specdec_jax.decoding.speculative")
    return module.step(target, draft, asked, options)
