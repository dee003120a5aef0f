"""Sampling with T5X's arguments and T5X's results, by a target and a draft.

T5X hands a decoding function one callable that maps one token to logits; verifying needs gamma + 1
positions at once, and a second model. So `speculative_sample` takes the two models in its place,
and is called by `SpeculativeEncoderDecoderModel`, not bound as `decode_fn`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from specdec_jax.decoding import Decoded, Options, Request, speculative
from specdec_jax.decoding.contract import LanguageModel
from specdec_jax.decoding.randomness import row_keys
from specdec_jax.drafts import ModelDraft
from specdec_jax.errors import SpecdecError
from specdec_jax.sampling import sampling
from specdec_jax.sampling.types import Array, Float, Int
from specdec_jax.t5x_plugin import noise
from specdec_jax.t5x_plugin.steering import LogitCallback, Steered


class Samples(NamedTuple):
    """T5X's pair, and how it came about; decodes of a row in the order of increasing score."""

    decodes: Int[Array, "B D L"]
    """Prompt and generated ids, end token included, 0 after it."""
    scores: Float[Array, "B D"]
    """log p of the generated tokens."""
    aux: dict[str, Array]
    """[B, D] each: `target_runs`, `drafted`, `accepted`, and `mean_accepted_length`, the generated
    tokens for each target run."""


def speculative_sample(
    inputs: Int[Array, "B L"],
    target: LanguageModel,
    draft: LanguageModel,
    source: Int[Array, "B S"],
    *,
    eos_id: int = 1,
    decode_rng: Array | None = None,
    num_decodes: int = 1,
    temperature: Any = 0.0,
    topk: Any = 0,
    topp: Any = 0.0,
    max_decode_steps: Any = None,
    max_decode_steps_hard_limit: int | None = None,
    rescale_log_probs: bool = True,
    logit_callback_fn: LogitCallback | None = None,
    prompted: bool = True,
    gamma: int = 4,
    rule: str = "rejection",
    lenience: float = 1.0,
) -> Samples:
    """Decode as T5X's `temperature_sample` does, with the target's runs saved by a draft.

    Args:
        inputs: int32. Column 0 is the start token; a nonzero token elsewhere is given, not chosen.
        target: reads B * num_decodes rows, [a, a, b, b].
        draft: likewise.
        source: int32, 0 is padding.
        eos_id: ends a row.
        decode_rng: as T5X's; key 0 when left out.
        num_decodes: D, static.
        temperature: at least 0, one value or one for each of the B sources; up to 1e-4 argmax.
        topk: 0 is off. T5X's own default is 1, which makes every temperature greedy.
        topp: 0 is off, also when it is traced (T5X's sampler then masks every token). With topk,
            the first filters what the second then weighs; T5X takes both only when they are
            traced, in the same order.
        max_decode_steps: most tokens behind the prompt; L when left out. At 0 nothing is generated,
            where T5X's result depends on the other rows.
        max_decode_steps_hard_limit: static upper bound of it; off when None or 0.
        rescale_log_probs: score by the distribution that was sampled, static.
        logit_callback_fn: see `specdec_jax.t5x_plugin.steering.Steered`; static.
        prompted: static; False promises that `inputs` is zero, and saves the work for prompts.
        gamma: guesses of a round, static; 0 decodes with the target alone.
        rule: "rejection" and "block" sample the target's distribution; "coupled" emits the very
            tokens of T5X's sampler with the same `decode_rng`. Static.
        lenience: below 1 it is lossy; static.

    Raises:
        SpecdecError: for values outside their range, where they are known.
    """
    batch, length = inputs.shape
    rows = batch * num_decodes
    if not isinstance(max_decode_steps, jax.core.Tracer) and max_decode_steps is not None:
        _check_steps(max_decode_steps, length)
    given = jnp.repeat(inputs.at[:, 0].set(0), num_decodes, axis=0)
    # The prompt is what stands before the first free slot; tokens behind that one are given, too,
    # and reached by the way.
    free = jnp.pad(given, ((0, 0), (0, 1)))[:, 1:] == 0
    prompt_lengths = jnp.argmax(free, axis=1).astype(jnp.int32) + 1
    if not prompted:
        prompt_lengths = jnp.ones_like(prompt_lengths)
    last = jnp.full((rows,), length, jnp.int32)
    if max_decode_steps is not None:
        last = _last_slot(given, max_decode_steps, max_decode_steps_hard_limit, length)
    decode_rng = jax.random.PRNGKey(0) if decode_rng is None else decode_rng
    per_row = jnp.ndim(temperature) == 1
    keys = row_keys(noise.typed(decode_rng), rows)
    settings = sampling(
        rows,
        temperature=jnp.repeat(temperature, num_decodes) if per_row else temperature,
        top_k=topk,
        top_p=_off_at_zero(topp),
    )
    request = Request(
        prompt=given if prompted else jnp.zeros((rows, 1), jnp.int32),
        prompt_lengths=prompt_lengths,
        limits=jnp.maximum(last - (prompt_lengths - 1), 0),
        sampling=settings,
        draft_sampling=settings,
        keys=keys,
        noise=noise.noise(decode_rng, length, rows=rows, shared=per_row),
    )
    options = Options(
        max_tokens=length,
        gamma=gamma,
        rule=rule,
        lenience=lenience,
        eos_id=int(eos_id),
        adjusted_scores=bool(rescale_log_probs),
    )
    if prompted or logit_callback_fn is not None:
        # A draft begins a round with two tokens.
        block = max(gamma + 1, 2)
        target = Steered(target, given, logit_callback_fn, block)
        draft = Steered(draft, given, logit_callback_fn, block)
    sources = jnp.repeat(source, num_decodes, axis=0)
    decoded = speculative(target, ModelDraft(draft), sources, request, options)
    tokens = _behind_prompt(given, decoded, prompt_lengths)
    return _sorted(tokens, decoded, batch, num_decodes)


def _check_steps(steps: Any, length: int) -> None:
    if jnp.ndim(steps) == 0 and int(steps) > length:
        raise SpecdecError(
            f"max_decode_steps is {int(steps)}, more than the {length} tokens that the targets' "
            "feature length has room for: lower it, or raise the feature length."
        )


def _last_slot(
    given: Int[Array, "R L"], steps: Any, hard_limit: int | None, length: int
) -> Int[Array, " R"]:
    """Return the last slot that each row may fill, T5X's `max_decode_len`."""
    if hard_limit:
        steps = jnp.minimum(steps, hard_limit)
    filled = jnp.sum(given != 0, axis=1).astype(jnp.int32) + jnp.asarray(steps, jnp.int32)
    return jnp.clip(filled, 0, length)


def _off_at_zero(topp: Any) -> Any:
    """Return a top-p in our convention, where 1 turns the filter off."""
    if isinstance(topp, jax.core.Tracer):
        return jnp.where(topp > 0, topp, 1.0)
    return topp or 1.0


def _behind_prompt(
    given: Int[Array, "R L"], decoded: Decoded, prompt_lengths: Int[Array, " R"]
) -> Int[Array, "R L"]:
    """Return slots 1 .. L of each row: its prompt, then what was generated."""
    length = given.shape[1]
    index = jnp.arange(length) - (prompt_lengths - 1)[:, None]
    generated = jnp.take_along_axis(decoded.tokens, jnp.maximum(index, 0), axis=1)
    prompt = jnp.pad(given, ((0, 0), (0, 1)))[:, 1:]
    return jnp.where(index < 0, prompt, generated)


def _sorted(tokens: Int[Array, "R L"], decoded: Decoded, batch: int, decodes: int) -> Samples:
    """Give every source its decodes, the best one last, as T5X does."""
    scores = jnp.sum(decoded.scores, axis=1).reshape(batch, decodes)
    order = jnp.argsort(scores, axis=1)
    counters = decoded.counters
    runs = counters.target_runs
    per_run = decoded.lengths.astype(jnp.float32) / jnp.maximum(runs, 1).astype(jnp.float32)
    aux = {
        "target_runs": runs,
        "drafted": counters.drafted,
        "accepted": jnp.sum(counters.accepted, axis=1),
        "mean_accepted_length": per_run,
    }

    def arrange(values: Array) -> Array:
        values = values.reshape(batch, decodes, *values.shape[1:])
        index = order.reshape(batch, decodes, *(1,) * (values.ndim - 2))
        return jnp.take_along_axis(values, index, axis=1)

    return Samples(
        decodes=arrange(tokens),
        scores=jnp.take_along_axis(scores, order, axis=1),
        aux={name: arrange(values) for name, values in aux.items()},
    )
