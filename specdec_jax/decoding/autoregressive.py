"""Plain decoding, one token for each run of the target: the baseline."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from specdec_jax.decoding import loop
from specdec_jax.decoding.contract import LanguageModel
from specdec_jax.decoding.outcome import Decoded
from specdec_jax.decoding.request import Options, Request
from specdec_jax.sampling import adjust, argmax
from specdec_jax.sampling.types import Array, Bool, Float, Int


@partial(jax.jit, static_argnames="options")
def autoregressive(
    target: LanguageModel, source: Int[Array, "B S"], request: Request, options: Options
) -> Decoded:
    """Decode with the target alone.

    Args:
        target: the model; its parameters are traced.
        source: int32 [B, S], 0 is padding.
        request: traced.
        options: static; gamma and the verification rule play no part.

    Returns:
        Tokens, scores and counters; one target run for each token.
    """
    options = _plain(options)
    return loop.decode(step(target, request, options), target, None, source, request, options)


def _plain(options: Options) -> Options:
    return Options(
        max_tokens=options.max_tokens,
        eos_id=options.eos_id,
        adjusted_scores=options.adjusted_scores,
        record=options.record,
    )


def step(
    target: LanguageModel, request: Request, options: Options
) -> Callable[[loop.Progress], loop.Round]:
    """Return the round of plain decoding: read the last token, choose the next."""

    def plain_round(progress: loop.Progress) -> loop.Round:
        position = progress.position
        last = jnp.take_along_axis(progress.sequence, position[:, None], axis=1)
        logits, state = target.extend(progress.target, last, position)
        adjusted = adjust(logits, request.sampling)
        tokens = choose(adjusted, request, position[:, None] + 1)
        scores, finite = judge(logits, adjusted, tokens, options)
        return loop.Round(
            tokens=tokens,
            accepted=jnp.zeros_like(position),
            scores=scores,
            guesses=jnp.zeros((position.shape[0], 0), jnp.int32),
            finite=finite[:, 0],
            target=state,
            draft=progress.draft,
        )

    return plain_round


def choose(
    adjusted: Float[Array, "B N V"], request: Request, slot: Int[Array, "B N"]
) -> Int[Array, "B N"]:
    """Choose the tokens of slots: argmax(adjusted logits + the slots' noise), lowest id on ties."""
    noisy = jax.lax.cond(
        jnp.all(request.sampling.greedy),
        lambda x: x,
        lambda x: x + request.noise.gumbel(slot, x.shape[-1]),
        adjusted,
    )
    return argmax(noisy)


def judge(
    logits: Float[Array, "B N V"],
    adjusted: Float[Array, "B N V"],
    tokens: Int[Array, "B N"],
    options: Options,
) -> tuple[Float[Array, "B N"], Bool[Array, "B N"]]:
    """Return the log-probability of tokens, and whether the target's logits can be trusted."""
    judged = adjusted if options.adjusted_scores else logits
    picked = jnp.take_along_axis(judged, tokens[..., None], axis=-1)[..., 0]
    scores = picked - jax.nn.logsumexp(judged, axis=-1)
    # NaN and +inf show in the largest value; -inf elsewhere is a mask and allowed.
    return scores, jnp.isfinite(jnp.max(logits, axis=-1))
