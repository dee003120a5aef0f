"""One guess at every prefix: how likely it is kept, and how far what is emitted is from the target.

One run of a model over given text yields its distribution behind every prefix; the rest is
arithmetic on two arrays of logits.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax import theory
from specdec_jax.decoding import Draft, LanguageModel
from specdec_jax.sampling import Sampling, argmax, divergence, residual, standardize
from specdec_jax.sampling.types import Array, Float, Int, Key


class Judged(NamedTuple):
    """What became of one guess at every prefix, for each of K leniences."""

    beta: Float[Array, "K B T"]
    """The probability that a guess is kept: sum_x min(p / l, q) (Corollary 3.6, section A.5)."""
    kept: Float[Array, "K B T"]
    """1 where the one guess that was drawn from q was kept, else 0."""
    distance: Float[Array, "K B T"]
    """The total variation between the law of the token that a lenient round then emits, as guess
    or in its place, and p; 0 at l = 1."""


@jax.jit
def model_logits(
    model: LanguageModel, source: Int[Array, "B S"], sequence: Int[Array, "B T"]
) -> Float[Array, "B T V"]:
    """Return a model's logits behind every slot of a given sequence, in one run."""
    state = model.start(source, sequence.shape[1])
    start = jnp.zeros(sequence.shape[:1], jnp.int32)
    return model.extend(state, sequence, start)[0].astype(jnp.float32)


@jax.jit
def proposed_logits(
    draft: Draft, source: Int[Array, "B S"], sequence: Int[Array, "B T"]
) -> Float[Array, "B N V"]:
    """Return the logits of a draft's first guess behind every slot but the last.

    Args:
        draft: is asked for one guess behind every slot in turn, as the loop would ask.
        source: int32, 0 is padding.
        sequence: int32 [B, N + 1], start token first.
    """

    def hand_back(index: int, logits: Float[Array, "B V"]):
        del index
        return jnp.argmax(logits, axis=-1).astype(jnp.int32), logits

    def ask(state: Any, slot: Int[Array, ""]):
        position = jnp.full(sequence.shape[:1], slot, jnp.int32)
        proposal, state = draft.propose(state, sequence, position, hand_back, 1)
        return state, proposal.probs[:, 0]

    slots = jnp.arange(sequence.shape[1] - 1, dtype=jnp.int32)
    state = draft.start(source, sequence[:, :1], sequence.shape[1] + 1)
    return jnp.moveaxis(lax.scan(ask, state, slots)[1], 0, 1)


@functools.partial(jax.jit, static_argnames=("leniences", "rule"))
def judge_part(
    logits: tuple[Float[Array, "B T V"], Float[Array, "B T V"]],
    rows: Int[Array, " P"],
    slots: Int[Array, " P"],
    settings: tuple[Sampling, Sampling],
    key: Key[Array, ""],
    *,
    leniences: tuple[float, ...],
    rule: str,
) -> Float[Array, "3 K P"]:
    """Judge guesses behind some of the prefixes.

    Args:
        logits: the target's and the draft's, behind every prefix.
        rows: of each prefix that is judged.
        slots: likewise.
        settings: of the target and of the draft.
        key: for the guess and its test.
        leniences: static.
        rule: static; argmax or rejection.

    Returns:
        The three arrays of `Judged`.
    """
    judge = judge_argmax if rule == "argmax" else judge_rejection
    target, guessed = (whole[rows, slots][None] for whole in logits)
    uniforms = jax.random.uniform(key, (2, 1, rows.shape[0]))
    return jnp.stack(judge(target, guessed, settings, uniforms, leniences))[:, :, 0]


def judge_rejection(
    target: Float[Array, "B T V"],
    guessed: Float[Array, "B T V"],
    settings: tuple[Sampling, Sampling],
    uniforms: Float[Array, "2 B T"],
    leniences: tuple[float, ...],
) -> Judged:
    """Judge guesses by Algorithm 1, q scaled by the lenience (section A.5).

    Args:
        target: the target's logits behind every prefix.
        guessed: the draft's.
        settings: of the target and of the draft.
        uniforms: chances, in [0, 1): with one the guess is drawn, with the other it is tested.
        leniences: static.
    """
    p, q = standardize(target, settings[0]), standardize(guessed, settings[1])
    # The inverse of the distribution function: a Gumbel for every id of every prefix takes longer.
    mass = jnp.cumsum(q, axis=-1)
    guess = jnp.sum(mass <= uniforms[0][..., None] * mass[..., -1:], axis=-1, keepdims=True)
    p_guess, q_guess = (jnp.take_along_axis(x, guess, axis=-1)[..., 0] for x in (p, q))
    found = []
    for lenience in leniences:
        kept = jnp.minimum(p / lenience, q)
        beta = jnp.sum(kept, axis=-1)
        law = kept + (1.0 - beta)[..., None] * residual(p, lenience * q)
        tested = uniforms[1] * (lenience * q_guess) < p_guess
        found.append((beta, tested.astype(jnp.float32), divergence(p, law)))
    return Judged(*(jnp.stack(part) for part in zip(*found, strict=True)))


def judge_argmax(
    target: Float[Array, "B T V"],
    guessed: Float[Array, "B T V"],
    settings: tuple[Sampling, Sampling],
    uniforms: Float[Array, "2 B T"],
    leniences: tuple[float, ...],
) -> Judged:
    """Judge greedy guesses by p(guess) >= l max p, p not yet turned into an argmax (section A.5).

    Chance and settings play no part; see `judge_rejection` for the arguments.
    """
    del settings, uniforms
    p, guess = jax.nn.softmax(target, axis=-1), argmax(guessed)
    other = guess != argmax(target)
    found = []
    for lenience in leniences:
        kept = theory.argmax_lenience_accepts(p, token=guess, lenience=lenience)
        found.append((kept, kept, kept & other))
    return Judged(*(jnp.stack(part).astype(jnp.float32) for part in zip(*found, strict=True)))
