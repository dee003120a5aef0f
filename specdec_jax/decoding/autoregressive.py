"""Plain decoding, one token for each run of the target: the baseline."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from specdec_jax.decoding import loop
from specdec_jax.decoding.contract import LanguageModel
from specdec_jax.decoding.outcome import Decoded
from specdec_jax.decoding.randomness import Noise
from specdec_jax.decoding.request import Options, Request
from specdec_jax.sampling import Sampling, adjust, argmax
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
) -> Callable[[loop.Progress, int], loop.Round]:
    """Return the round of plain decoding: read the last token, choose the next."""

    def plain_round(progress: loop.Progress, gamma: int = 0) -> loop.Round:
        del gamma
        position = progress.position
        last = jnp.take_along_axis(progress.sequence, position[:, None], axis=1)
        logits, state = target.extend(progress.target, last, position)
        logits, finite = mend(logits)
        adjusted = adjust(logits, request.sampling)
        tokens = choose(adjusted, request.sampling, request.noise, position[:, None] + 1)
        return loop.Round(
            tokens=tokens,
            accepted=jnp.zeros_like(position),
            scores=judge(adjusted if options.adjusted_scores else logits, tokens),
            guesses=jnp.zeros((position.shape[0], 0), jnp.int32),
            finite=finite,
            target=state,
            draft=progress.draft,
        )

    return plain_round


def choose(
    adjusted: Float[Array, "B N V"], settings: Sampling, noise: Noise, slot: Int[Array, "B N"]
) -> Int[Array, "B N"]:
    """Choose the tokens of slots: argmax(adjusted logits + the slots' noise), lowest id on ties.

    `settings` are those that the logits were adjusted with; where all rows are greedy, no noise is
    made.
    """
    noisy = jax.lax.cond(
        jnp.all(settings.greedy),
        lambda x: x,
        lambda x: x + noise.gumbel(slot, x.shape[-1]),
        adjusted,
    )
    return argmax(noisy)


def mend(
    logits: Float[Array, "*leading V"],
) -> tuple[Float[Array, "*leading V"], Bool[Array, "*leading"]]:
    """Return float32 logits without NaN, and whether they are the model's own.

    NaN and +inf show in the largest value; -inf elsewhere is a mask and allowed. Where they do, all
    logits become 0. A draft that breaks down thus guesses at random, and any guess is exact; of a
    target, the loop commits nothing from there on, and no rule that looks ahead ever meets NaN.
    """
    finite = jnp.isfinite(jnp.max(logits, axis=-1))
    return jnp.where(finite[..., None], logits.astype(jnp.float32), 0.0), finite


def judge(logits: Float[Array, "B N V"], tokens: Int[Array, "B N"]) -> Float[Array, "B N"]:
    """Return the log-probability of tokens."""
    picked = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return picked - jax.nn.logsumexp(logits, axis=-1)
