"""Speculative decoding: the draft guesses gamma tokens, the target verifies them in one run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from specdec_jax.decoding import loop
from specdec_jax.decoding.autoregressive import autoregressive, choose, judge, mend
from specdec_jax.decoding.contract import Draft, LanguageModel, Proposal
from specdec_jax.decoding.outcome import Decoded
from specdec_jax.decoding.randomness import round_keys
from specdec_jax.decoding.request import Options, Request
from specdec_jax.errors import SpecdecError
from specdec_jax.sampling import (
    Verdict,
    accept_block,
    adjust,
    draw,
    match,
    reject,
    standardize,
)
from specdec_jax.sampling.types import Array, Float, Int


@partial(jax.jit, static_argnames="options")
def speculative(
    target: LanguageModel,
    draft: Draft,
    source: Int[Array, "B S"],
    request: Request,
    options: Options,
) -> Decoded:
    """Decode with a target and a draft; the output is the target's.

    With the rejection and block rules samples follow the target's distribution; with the coupled
    rule they are the very tokens of `autoregressive` with the same request. At temperature 0 all
    three give those.

    Args:
        target: the model M_p; its parameters are traced.
        draft: the model M_q, or anything else that guesses.
        source: int32 [B, S], 0 is padding.
        request: traced.
        options: static. With gamma = 0 this is `autoregressive`; with `gammas`, the batch chooses
            before each round how many tokens are guessed (`specdec_jax.decoding.adaptive`).

    Returns:
        Tokens, scores and counters.

    Raises:
        SpecdecError: when the two vocabularies differ, or there are gammas to choose from and
            `request.pace` does not say what each costs.
    """
    if options.gamma == 0:
        return autoregressive(target, source, request, options)
    if target.vocab_size != draft.vocab_size:
        raise SpecdecError(
            f"The target's vocabulary has {target.vocab_size} ids and the draft's "
            f"{draft.vocab_size}; a draft must speak the target's language: "
            "choose one trained with the same vocabulary."
        )
    known = 0 if request.pace is None else request.pace.costs.shape[0]
    if options.gammas and known != len(options.gammas):
        raise SpecdecError(
            f"There are {len(options.gammas)} gammas to choose from and the costs of {known}: "
            "give the request a pace made for the gammas of the options."
        )
    return loop.decode(
        step(target, draft, request, options), target, draft, source, request, options
    )


def step(
    target: LanguageModel, draft: Draft, request: Request, options: Options
) -> Callable[[loop.Progress, int], loop.Round]:
    """Return the round of Algorithm 1: propose, verify, and one token more."""
    verify = _coupled if options.rule == "coupled" else _sampled

    def speculative_round(progress: loop.Progress, gamma: int = options.gamma) -> loop.Round:
        return verify(progress, target, draft, request, options, gamma)

    return speculative_round


def _sampled(
    progress: loop.Progress,
    target: LanguageModel,
    draft: Draft,
    request: Request,
    options: Options,
    gamma: int,
) -> loop.Round:
    """The rejection and block rules: chances of their own for guess, acceptance and extra token."""
    keys = round_keys(request.keys, progress.position, gamma)

    def guess(index: int, logits: Float[Array, "B V"]):
        logits, _ = mend(logits)
        q = standardize(logits[:, None], request.draft_sampling)
        return draw(keys.guesses[:, index, None], q)[:, 0], q[:, 0]

    proposal, draft_state = _propose(progress, draft, guess, gamma)
    logits, finite, target_state = _verify(progress, target, proposal.tokens)
    p = standardize(logits, request.sampling)
    evidence = (p, proposal.probs, proposal.tokens, keys.uniforms)
    verdict: Verdict = (
        accept_block(*evidence)
        if options.rule == "block"
        else reject(*evidence, lenience=options.lenience)
    )
    extra = draw(keys.extra[:, None], verdict.extra[:, None])[:, 0]
    tokens = _append_extra(proposal.tokens, verdict.accepted, extra)
    judged = adjust(logits, request.sampling) if options.adjusted_scores else logits
    return loop.Round(
        tokens=tokens,
        accepted=verdict.accepted,
        scores=judge(judged, tokens),
        guesses=proposal.tokens,
        finite=finite,
        target=target_state,
        draft=draft_state,
    )


def _coupled(
    progress: loop.Progress,
    target: LanguageModel,
    draft: Draft,
    request: Request,
    options: Options,
    gamma: int,
) -> loop.Round:
    """The coupled rule: both models choose with the noise that plain decoding would use."""

    def guess(index: int, logits: Float[Array, "B V"]):
        logits, _ = mend(logits)
        adjusted = adjust(logits[:, None], request.draft_sampling)
        slot = progress.position[:, None] + 1 + index
        token = choose(adjusted, request.draft_sampling, request.noise, slot)
        # Verification asks for equality, not for q; the one-hot form costs nothing unread.
        return token[:, 0], jax.nn.one_hot(token[:, 0], logits.shape[-1], dtype=jnp.float32)

    proposal, draft_state = _propose(progress, draft, guess, gamma)
    logits, finite, target_state = _verify(progress, target, proposal.tokens)
    adjusted = adjust(logits, request.sampling)
    slots = progress.position[:, None] + 1 + jnp.arange(gamma + 1, dtype=jnp.int32)
    chosen = choose(adjusted, request.sampling, request.noise, slots)
    return loop.Round(
        tokens=chosen,
        accepted=match(chosen, proposal.tokens),
        scores=judge(adjusted if options.adjusted_scores else logits, chosen),
        guesses=proposal.tokens,
        finite=finite,
        target=target_state,
        draft=draft_state,
    )


def _propose(progress: loop.Progress, draft: Draft, guess, gamma: int):
    if gamma == 0:
        batch = progress.position.shape[0]
        none = jnp.zeros((batch, 0), jnp.int32)
        probs = jnp.zeros((batch, 0, draft.vocab_size), jnp.float32)
        return Proposal(none, probs), progress.draft
    return draft.propose(progress.draft, progress.sequence, progress.position, guess, gamma)


def _verify(progress: loop.Progress, target: LanguageModel, guesses: Int[Array, "B G"]):
    """Run the target on the last token and the guesses: p_1 .. p_{gamma+1} in one call."""
    last = jnp.take_along_axis(progress.sequence, progress.position[:, None], axis=1)
    block = jnp.concatenate([last, guesses], axis=1)
    logits, state = target.extend(progress.target, block, progress.position)
    return *mend(logits), state


def _append_extra(
    guesses: Int[Array, "B G"], accepted: Int[Array, " B"], extra: Int[Array, " B"]
) -> Int[Array, "B N"]:
    index = jnp.arange(guesses.shape[1] + 1)
    padded = jnp.pad(guesses, ((0, 0), (0, 1)))
    return jnp.where(index == accepted[:, None], extra[:, None], padded)
