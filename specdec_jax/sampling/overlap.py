"""How much two distributions have in common, which is how much a draft is accepted.

Symbols as in arXiv:2211.17192, section 3: beta is the acceptance after one prefix, alpha its mean.
"""

from __future__ import annotations

import jax.numpy as jnp

from specdec_jax.sampling.types import Array, Bool, Float


def overlap(
    p: Float[Array, "*leading V"], q: Float[Array, "*leading V"]
) -> Float[Array, "*leading"]:
    """The probability that a guess from q is kept: beta = sum_x min(p, q) (Theorem 3.5).

    Args:
        p: the target's distribution over the last axis.
        q: the draft's.

    Returns:
        Values in [0, 1], the last axis summed away.

    Example:
        >>> float(overlap(jnp.array([0.5, 0.5, 0.0]), jnp.array([0.25, 0.25, 0.5])))
        0.5
    """
    return jnp.sum(jnp.minimum(p, q), axis=-1)


def divergence(
    p: Float[Array, "*leading V"], q: Float[Array, "*leading V"]
) -> Float[Array, "*leading"]:
    """D_LK(p, q) = sum_x |p(x) - M(x)| with M = (p + q) / 2 (Definition 3.2).

    Since p - M = (p - q) / 2 it is the total variation distance, and 1 - `overlap` for
    distributions (Lemma 3.3).

    Args:
        p: the target's distribution over the last axis.
        q: the draft's.

    Returns:
        Values in [0, 1], the last axis summed away: 0 if p = q, 1 if nothing is shared.
    """
    return jnp.sum(jnp.abs(p - q), axis=-1) / 2


def alpha(
    p: Float[Array, "*leading V"],
    q: Float[Array, "*leading V"],
    where: Bool[Array, "*leading"] | None = None,
) -> Float[Array, ""]:
    """The mean acceptance over prefixes: alpha = E(sum_x min(p, q)) (Corollary 3.6).

    Args:
        p: the target's distributions, one for each prefix.
        q: the draft's.
        where: which prefixes count; all by default. Padding must not.

    Returns:
        A scalar in [0, 1]; NaN if no prefix counts.
    """
    return jnp.mean(overlap(p, q), where=where)
