"""The one loop: rounds that commit tokens, until every row has ended.

What a round does (one token of the target, or gamma guesses and their verification) is a function
given to `decode`. Everything that both kinds share is here: buffers, the end token at any offset of
a block, exact length limits, rows that have ended and must not move, counters.

Where gamma is chosen before each round, the rounds of one gamma are a loop inside the loop, which
runs as long as the choice stays. XLA updates in place what a loop carries, whereas a conditional
(`lax.switch`) copies all keys and values: measured, it doubles the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax.decoding import adaptive
from specdec_jax.decoding.contract import Draft, LanguageModel
from specdec_jax.decoding.outcome import Counters, Decoded, Finish, Rounds
from specdec_jax.decoding.request import Options, Request
from specdec_jax.sampling.types import Array, Bool, Float, Int


class Progress(NamedTuple):
    """The carry of the loop."""

    # evolving
    sequence: Int[Array, "B T"]
    """Slot 0 the start token, then prompt and generated tokens; 0 after `position`."""
    position: Int[Array, " B"]
    """Slot of the last committed token."""
    scores: Float[Array, "B T"]
    """log p of the token in each slot."""
    finish: Int[Array, " B"]
    """`Finish` codes; RUNNING until the row ends."""
    target: Any
    """The target's state."""
    draft: Any
    """The draft's state."""
    estimate: adaptive.Estimate | None
    """What the choice of gamma knows; None where gamma is fixed."""
    # counters
    counters: Counters
    rounds: Rounds | None
    # fixed
    first: Int[Array, " B"]
    """Slot of the last prompt token (0 without a prompt)."""
    last: Int[Array, " B"]
    """Slot that the last token may take, by the length limit."""


class Round(NamedTuple):
    """What one round found, before the end token and the length limit have their say."""

    tokens: Int[Array, "B N"]
    """Accepted guesses, then the extra token; what follows means nothing."""
    accepted: Int[Array, " B"]
    """Accepted guesses: accepted + 1 of the tokens count."""
    scores: Float[Array, "B N"]
    """log p of the tokens."""
    guesses: Int[Array, "B G"]
    """What the draft proposed."""
    finite: Bool[Array, "B N"]
    """Whether the target's logits were, for each of the tokens."""
    target: Any
    draft: Any


def decode(
    step: Callable[[Progress, int], Round],
    target: LanguageModel,
    draft: Draft | None,
    source: Int[Array, "B S"],
    request: Request,
    options: Options,
) -> Decoded:
    """Read source and prompt, run rounds until every row has ended, cut out the result.

    `step` finds the tokens of a round of so many guesses.
    """
    length = buffer_length(request.prompt.shape[1], options.max_tokens, options.gamma)
    target_state = target.start(source, length)
    # What a caller pads with may be no id at all, and is not shown to a model.
    inside = jnp.arange(request.prompt.shape[1]) < request.prompt_lengths[:, None]
    request = request._replace(prompt=jnp.where(inside, request.prompt, 0))
    if request.prompt.shape[1] > 1:
        # All but the last token of a prompt, which the first round reads. Shorter prompts leave
        # slots of padding behind them, which the rounds overwrite before they can be seen.
        start = jnp.zeros_like(request.limits)
        _, target_state = target.extend(target_state, request.prompt[:, :-1], start)
    draft_state = None if draft is None else draft.start(source, request.prompt, length)
    progress = _begin(request, options, target_state, draft_state)

    def running(progress: Progress) -> Bool[Array, ""]:
        return jnp.any(progress.finish == Finish.RUNNING)

    def body(progress: Progress, gamma: int = options.gamma) -> Progress:
        found = step(progress, gamma)
        progress = _commit(progress, found, options.eos_id)
        if progress.estimate is None or request.pace is None:
            return progress
        going = progress.finish == Finish.RUNNING
        seen = (found.accepted, gamma, going, request.pace, options.gammas)
        return progress._replace(estimate=adaptive.learn(progress.estimate, *seen))

    def stretches(progress: Progress) -> Progress:
        for index, gamma in enumerate(options.gammas):

            def chosen(progress: Progress, index: int = index) -> Bool[Array, ""]:
                assert progress.estimate is not None
                return running(progress) & (progress.estimate.choice == index)

            progress = lax.while_loop(chosen, partial(body, gamma=gamma), progress)
        return progress

    rounds = stretches if options.gammas else body
    return _finish(lax.while_loop(running, rounds, progress), options.max_tokens)


def _begin(request: Request, options: Options, target: Any, draft: Any) -> Progress:
    """Lay out the buffers."""
    batch, width = request.prompt.shape
    length = buffer_length(width, options.max_tokens, options.gamma)
    sequence = jnp.zeros((batch, length), jnp.int32)
    sequence = sequence.at[:, :width].set(request.prompt)
    first = request.prompt_lengths - 1
    # A request made for a larger max_tokens must not write behind the buffers of this one.
    limits = jnp.minimum(request.limits, options.max_tokens)
    none = jnp.zeros((batch,), jnp.int32)
    by_guess = jnp.zeros((batch, options.gamma), jnp.int32)
    rounds = None
    if options.record:
        rounds = Rounds(
            drafted=jnp.zeros((batch, options.max_tokens, options.gamma), jnp.int32),
            gammas=jnp.zeros((batch, options.max_tokens), jnp.int32),
            accepted=jnp.zeros((batch, options.max_tokens), jnp.int32),
            extra=jnp.zeros((batch, options.max_tokens), jnp.int32),
        )
    finish = jnp.where(limits > 0, Finish.RUNNING, Finish.LENGTH)
    estimate = None
    if options.gammas and request.pace is not None:
        estimate = adaptive.begin(finish == Finish.RUNNING, request.pace, options.gammas)
    return Progress(
        sequence=sequence,
        position=first,
        scores=jnp.zeros((batch, length), jnp.float32),
        finish=finish.astype(jnp.int32),
        target=target,
        draft=draft,
        estimate=estimate,
        counters=Counters(
            target_runs=none,
            gammas=jnp.zeros((batch, options.gamma + 1), jnp.int32),
            drafted=none,
            tested=by_guess,
            accepted=by_guess,
        ),
        rounds=rounds,
        first=first,
        last=first + limits,
    )


def buffer_length(prompt_width: int, max_tokens: int, gamma: int) -> int:
    """Return T, so large that no write of a block is ever clamped.

    A running row stands at most at slot P - 1 + L - 1 and reads gamma + 1 tokens from there; a row
    that has ended stands one slot further, and keeps writing (what nobody sees) like the others.
    """
    return prompt_width + max_tokens + gamma + 1


def _commit(progress: Progress, found: Round, eos_id: int) -> Progress:
    """Append a round's tokens up to the end token and the limit; leave ended rows as they are."""
    running = progress.finish == Finish.RUNNING
    width = found.tokens.shape[1]
    gamma = width - 1
    index = jnp.arange(width, dtype=jnp.int32)

    room = progress.last - progress.position
    wanted = jnp.minimum(found.accepted + 1, room)
    # A row ends before the first token whose logits are not finite, and keeps those before it.
    sound = jnp.sum(jnp.cumprod(found.finite.astype(jnp.int32), axis=1), axis=1)
    offered = jnp.minimum(wanted, sound)
    is_end = (found.tokens == eos_id) & (index < offered[:, None])
    ended = jnp.any(is_end, axis=1)
    taken = jnp.where(ended, jnp.argmax(is_end, axis=1).astype(jnp.int32) + 1, offered)
    taken = jnp.where(running, taken, 0)

    kept = index < taken[:, None]
    # An ended row writes zeros behind its last token, where zeros are.
    sequence = _append(progress.sequence, jnp.where(kept, found.tokens, 0), progress.position)
    scores = _append(progress.scores, jnp.where(kept, found.scores, 0.0), progress.position)
    position = progress.position + taken

    finish = jnp.where(position == progress.last, Finish.LENGTH, Finish.RUNNING)
    finish = jnp.where(sound < wanted, Finish.NOT_FINITE, finish)
    finish = jnp.where(ended, Finish.END_TOKEN, finish)

    # Guess g was tested if all before it are in the output, and accepted if it is, too. Guesses
    # behind the end of the row were never needed, whatever the verification said of them.
    guess = index[:gamma]
    accepted = (guess < jnp.minimum(found.accepted, taken)[:, None]).astype(jnp.int32)
    tested = (guess < jnp.minimum(found.accepted + 1, taken)[:, None]).astype(jnp.int32)
    old = progress.counters
    made = jnp.arange(old.gammas.shape[1]) == gamma
    narrower = ((0, 0), (0, old.tested.shape[1] - gamma))
    counters = Counters(
        target_runs=old.target_runs + running.astype(jnp.int32),
        gammas=old.gammas + (running[:, None] & made).astype(jnp.int32),
        drafted=old.drafted + gamma * running.astype(jnp.int32),
        tested=old.tested + jnp.pad(tested, narrower),
        accepted=old.accepted + jnp.pad(accepted, narrower),
    )
    rounds = progress.rounds
    if rounds is not None:
        rounds = _record(rounds, old.target_runs, found, taken, running)
    return progress._replace(
        sequence=sequence,
        position=position,
        scores=scores,
        finish=jnp.where(running, finish.astype(jnp.int32), progress.finish),
        target=found.target,
        draft=found.draft,
        counters=counters,
        rounds=rounds,
    )


def _append(buffer: Array, block: Array, position: Int[Array, " B"]) -> Array:
    def row(buffer, block, start):
        return lax.dynamic_update_slice(buffer, block, (start,))

    return jax.vmap(row)(buffer, block, position + 1)


def _record(
    rounds: Rounds,
    number: Int[Array, " B"],
    found: Round,
    taken: Int[Array, " B"],
    running: Bool[Array, " B"],
) -> Rounds:
    accepted = jnp.minimum(found.accepted, taken)
    extra = jnp.take_along_axis(found.tokens, accepted[:, None], axis=1)[:, 0]
    extra = jnp.where(taken > accepted, extra, 0)
    rows = jnp.arange(number.shape[0])
    # A row that has ended must not record: its number would point behind its last round, which is
    # inside the buffer. An index outside of it is dropped.
    number = jnp.where(running, number, rounds.accepted.shape[1])
    gamma = found.guesses.shape[1]
    return Rounds(
        drafted=rounds.drafted.at[rows, number, :gamma].set(found.guesses, mode="drop"),
        gammas=rounds.gammas.at[rows, number].set(gamma, mode="drop"),
        accepted=rounds.accepted.at[rows, number].set(accepted, mode="drop"),
        extra=rounds.extra.at[rows, number].set(extra, mode="drop"),
    )


def _finish(progress: Progress, max_tokens: int) -> Decoded:
    """Cut each row's generated tokens out of its sequence, left-aligned."""

    def row(buffer, start):
        return lax.dynamic_slice(buffer, (start,), (max_tokens,))

    start = progress.first + 1
    return Decoded(
        tokens=jax.vmap(row)(progress.sequence, start),
        lengths=progress.position - progress.first,
        scores=jax.vmap(row)(progress.scores, start),
        finish=progress.finish,
        counters=progress.counters,
        rounds=progress.rounds,
    )
