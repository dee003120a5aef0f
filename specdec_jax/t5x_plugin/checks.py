"""What can be meant: options of decoding, and a target and a draft that go together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import seqio
from flax import linen as nn

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling import check_rule
from specdec_jax.t5.model import T5, t5
from specdec_jax.t5x_plugin.network import config_of

PER_CALL = frozenset(
    {
        "decode_rng",
        "eos_id",
        "temperature",
        "topk",
        "topp",
        "max_decode_steps",
        "max_decode_steps_hard_limit",
        "rescale_log_probs",
        "logit_callback_fn",
        "gamma",
        "rule",
        "lenience",
    }
)
"""What `decoder_params` may hold."""


def checked(
    decoder_params: Mapping[str, Any] | None, options: Mapping[str, Any], rng: Any
) -> dict[str, Any]:
    """Return the options of a call.

    Args:
        decoder_params: as the call gives them; values may be traced.
        options: of the model.
        rng: the call's key.

    Raises:
        SpecdecError: for an unknown name, two keys of noise, or options out of range.
    """
    given = dict(decoder_params or {})
    unknown = sorted(given.keys() - PER_CALL)
    if unknown:
        raise SpecdecError(
            f"decoder_params has {', '.join(unknown)}, unknown to speculative decoding, "
            f"which knows {', '.join(sorted(PER_CALL))}."
        )
    if given.get("decode_rng") is not None and rng is not None:
        raise SpecdecError(
            "There is a key in decoder_params['decode_rng'] and one in rng: give one of them."
        )
    if given.keys() & {"gamma", "rule", "lenience"}:
        merged = {**options, **given}
        check_options(merged["gamma"], merged["rule"], merged["lenience"])
    return given


def check_options(gamma: Any, rule: Any, lenience: Any) -> None:
    """Refuse options of a round that cannot be meant.

    Raises:
        SpecdecError: a gamma, rule or lenience out of range.
    """
    if isinstance(gamma, bool) or not isinstance(gamma, int) or gamma < 0:
        raise SpecdecError(
            f"gamma is {gamma!r}, but is the number of guesses of a round: give a whole number, "
            "0 (no draft) or more."
        )
    check_rule(rule)
    if not 0 < lenience <= 1 or (lenience != 1 and rule != "rejection"):
        raise SpecdecError(
            f"lenience is {lenience!r} with the rule {rule!r}, but must be above 0 and at most 1, "
            "and below 1 (lossy) only with the rule 'rejection'."
        )


def described(module: nn.Module) -> T5:
    """Return a model's sizes, without parameters.

    Ids of the embedding's padding stay possible, as they are to T5X's sampler, whose noise covers
    them.
    """
    return t5({}, dataclasses.replace(config_of(module), layout="token_major"))


def check_sizes(target: T5, draft: T5) -> None:
    """Refuse models whose embeddings cannot be of one vocabulary.

    Raises:
        SpecdecError: one has twice the rows of the other.
    """
    sizes = target.vocab_size, draft.vocab_size
    if max(sizes) >= 2 * min(sizes):
        raise SpecdecError(
            f"The target's embedding has {sizes[0]} rows and the draft's {sizes[1]}, too far apart "
            "to be one vocabulary with other padding: use a draft trained with the target's "
            "vocabulary."
        )


def check_vocabularies(
    target: T5, draft: T5, vocabulary: seqio.Vocabulary, draft_vocabulary: seqio.Vocabulary | None
) -> None:
    """Refuse models that do not have all ids of the output vocabulary.

    Raises:
        SpecdecError: an embedding is too small, or the draft was said to have another vocabulary.
    """
    if draft_vocabulary is not None and draft_vocabulary != vocabulary:
        raise SpecdecError(
            f"The draft's vocabulary is {draft_vocabulary}, the target's {vocabulary}; an id must "
            "be the same piece to both: use a draft trained with the target's vocabulary."
        )
    used = vocabulary.vocab_size
    for role, model in (("target", target), ("draft", draft)):
        if model.vocab_size < used:
            raise SpecdecError(
                f"The {role}'s embedding has {model.vocab_size} rows, but the output vocabulary "
                f"{used} ids: both models must be trained with the output vocabulary."
            )
