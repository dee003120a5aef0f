"""Acceptance under other rules: lenience (section A.5) and classical rejection (section A.2).

Lenience below 1 is lossy: no token becomes more likely than `p / lenience`, and a token may become
less likely without bound.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from specdec_jax.errors import SpecdecError
from specdec_jax.theory import arguments
from specdec_jax.theory.arguments import Real, Result, namespace


def lenient_alpha(p: Real, q: Real, *, lenience: Real) -> Result:
    """Probability that a token drafted from q is accepted when q is scaled by the lenience.

    Section A.5: a token x is kept with probability `min(1, p(x) / (l q(x)))`, hence
    `beta = sum_x min(p(x) / l, q(x))`. Its mean over prefixes is the alpha of Table 5.

    Args:
        p: [..., V], the target's adjusted distribution.
        q: [..., V], the draft's.
        lenience: [...], l in [0, 1]; 1 is the exact rule, 0 accepts everything.

    Returns:
        [...], in [0, 1].

    Raises:
        SpecdecError: where an argument is outside [0, 1].

    Reference: arXiv:2211.17192, section A.5 and Table 5.
    """
    xp = namespace(p, q, lenience)
    target, draft = _distributions(xp, p, q)
    factor = _lenience(xp, lenience)[..., None]
    kept = target >= factor * draft
    # At l = 0 every token is kept; the division is for the others, whose l is positive.
    return xp.where(kept, draft, target / xp.where(factor > 0, factor, 1.0)).sum(axis=-1)


def argmax_lenience_accepts(p: Real, *, token: Real, lenience: Real) -> Result:
    """Whether a greedy run with lenience keeps a drafted token.

    Kept where `p(token) >= l max(p)`, with p *before* it is turned into an argmax, for afterwards
    nothing is left to be lenient about. The paper prints the inequality the other way round,
    which at l = 1 would accept every token; at l = 1 this rule is the exact one.

    Args:
        p: [..., V], the target's softmax at temperature 1.
        token: [...], whole numbers in [0, V): the draft's argmax.
        lenience: [...], l in [0, 1].

    Returns:
        [...], booleans; their mean over positions is alpha.

    Raises:
        SpecdecError: where an argument is outside its range.

    Reference: arXiv:2211.17192, section A.5.
    """
    xp = namespace(p, token, lenience)
    target = arguments.probability(xp, p, name="p", meaning="the target's distribution")
    meaning = "a drafted token, an index of the vocabulary"
    last = float(target.shape[-1] - 1)
    index = arguments.real(xp, token, name="token", meaning=meaning, high=last, whole=True)
    # A sum over one token, where indexing would not broadcast.
    chosen = xp.where(
        xp.arange(target.shape[-1], dtype=index.dtype) == index[..., None], target, 0.0
    ).sum(axis=-1)
    return chosen >= _lenience(xp, lenience) * target.max(axis=-1)


def rejection_sampling_acceptance(p: Real, q: Real) -> Result:
    """Acceptance of classical rejection sampling from q: the bound that speculation improves on.

    Section A.2: with `M = max_x p(x) / q(x)` a token is kept with probability `p(x) / (M q(x))`,
    `1 / M = min_x q(x) / p(x)` on average. Speculative sampling never accepts less, since
    `sum_x min(p, q) = sum_x p min(1, q / p)`.

    Args:
        p: [..., V], the target's adjusted distribution.
        q: [..., V], the draft's.

    Returns:
        [...], in [0, 1]; 0 where q misses a token that p allows.

    Raises:
        SpecdecError: where an argument is outside [0, 1].

    Reference: arXiv:2211.17192, section A.2.
    """
    xp = namespace(p, q)
    target, draft = _distributions(xp, p, q)
    # A token that p excludes sets no bound on M.
    allowed = target > 0
    return xp.where(allowed, draft / xp.where(allowed, target, 1.0), np.inf).min(axis=-1)


def _distributions(xp: ModuleType, p: Real, q: Real) -> tuple[Any, Any]:
    target = arguments.probability(xp, p, name="p", meaning="the target's distribution")
    draft = arguments.probability(xp, q, name="q", meaning="the draft's distribution")
    if target.shape[-1:] != draft.shape[-1:] or target.ndim == 0:
        raise SpecdecError(
            f"p has shape {target.shape} and q has shape {draft.shape}, and the last axis of both "
            "must be the one vocabulary that target and draft share."
        )
    return target, draft


def _lenience(xp: ModuleType, lenience: Real) -> Result:
    meaning = "the factor on q before the comparison with p, 1 for exact decoding"
    return arguments.probability(xp, lenience, name="lenience", meaning=meaning)
