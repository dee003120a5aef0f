"""Tokens per run of the target: Eq. (1), its law, its inverse, and its form for measured betas."""

from __future__ import annotations

import numpy as np

from specdec_jax.errors import SpecdecError
from specdec_jax.theory import arguments
from specdec_jax.theory.arguments import Real, Result, namespace


def expected_tokens(alpha: Real, *, gamma: Real) -> Result:
    """Expected tokens that one round yields, the target's own token included.

    Eq. (1): `E = (1 - alpha^(gamma + 1)) / (1 - alpha)`, the mean of a geometric variable of
    success probability `1 - alpha`, capped at `gamma + 1`. The betas are assumed independent and
    identically distributed; `expected_tokens_from_betas` assumes neither.

    Args:
        alpha: mean acceptance probability, in [0, 1].
        gamma: tokens drafted per round, whole, >= 0; infinity gives the limit `1 / (1 - alpha)`.

    Returns:
        Tokens per run of the target, in [1, gamma + 1]; `gamma + 1` at alpha = 1, the limit.

    Raises:
        SpecdecError: where alpha or gamma is outside its range.

    Example:
        >>> f"{expected_tokens(0.8, gamma=5):.3f}"
        '3.689'

    Reference: arXiv:2211.17192, Eq. (1) and Figure 2.
    """
    xp = namespace(alpha, gamma)
    alpha = arguments.acceptance(xp, alpha)
    tokens = arguments.draft_length(xp, gamma, endless=True) + 1
    inside = (alpha > 0) & (alpha < 1)
    # The powers go through expm1 of a logarithm: `1 - alpha ** n` cancels where alpha is near 1,
    # and the ends, 0/0 and log 0, are kept out of the branch that is evaluated.
    safe = xp.where(inside, alpha, 0.5)
    ratio = -xp.expm1(tokens * xp.log(safe)) / (1 - safe)
    # Rounding must not leave the range: a last bit below 1 token is no number of tokens.
    ratio = xp.clip(ratio, 1.0, tokens)
    return xp.where(inside, ratio, xp.where(alpha == 1, tokens, 1.0))[()]


def expected_tokens_from_betas(betas: Real) -> Result:
    """Expected tokens of one round whose positions are accepted with probabilities of their own.

    `E = 1 + beta_1 + beta_1 beta_2 + ... + beta_1 ... beta_gamma`, where `beta_i` is the
    probability that position i is accepted *given* that the positions before it were. It holds
    whatever the dependence between positions; equal betas give Eq. (1).

    Args:
        betas: [..., G], in [0, 1]: per position, accepted / reached, as measured.

    Returns:
        [...], tokens per run of the target, in [1, G + 1].

    Raises:
        SpecdecError: where a beta is outside [0, 1], or `betas` has no axis of positions.

    Reference: arXiv:2211.17192, Definition 3.1, without the assumption that leads to Eq. (1).
    """
    xp = namespace(betas)
    meaning = "the acceptance probability at one position"
    accepted = arguments.probability(xp, betas, name="betas", meaning=meaning)
    if accepted.ndim == 0:
        raise SpecdecError(
            "betas is a single number and must be an array whose last axis is the position in the "
            "draft: for one acceptance probability call expected_tokens."
        )
    return 1 + xp.cumprod(accepted, axis=-1).sum(axis=-1)


def tokens_distribution(alpha: Real, *, gamma: int) -> Result:
    """Probabilities that one round yields 1, 2, ..., gamma + 1 tokens.

    `P(k) = alpha^(k - 1) (1 - alpha)` for k <= gamma and `P(gamma + 1) = alpha^gamma`: the capped
    geometric law whose mean is Eq. (1).

    Args:
        alpha: [...], mean acceptance probability, in [0, 1].
        gamma: tokens drafted per round, >= 0.

    Returns:
        [..., gamma + 1], each row summing to 1.

    Raises:
        SpecdecError: where alpha or gamma is outside its range.

    Reference: arXiv:2211.17192, section 3.1.
    """
    xp = namespace(alpha)
    arguments.draft_length(np, gamma)
    accepted = arguments.acceptance(xp, alpha)[..., None]
    reached = accepted ** xp.arange(gamma + 1, dtype=accepted.dtype)
    stopped = xp.concatenate([1 - accepted] * gamma + [xp.ones_like(accepted)], axis=-1)
    return reached * stopped


def alpha_from_tokens(tokens: Real, *, gamma: Real) -> Result:
    """The alpha at which Eq. (1) gives a measured number of tokens per run of the target.

    Args:
        tokens: mean tokens per run, in [1, gamma + 1].
        gamma: tokens drafted per round, whole, >= 1.

    Returns:
        alpha, in [0, 1], to the rounding of Eq. (1) itself.

    Raises:
        SpecdecError: where tokens or gamma is outside its range.

    Example:
        >>> f"{alpha_from_tokens(3.689, gamma=5):.2f}"
        '0.80'

    Reference: the inverse of arXiv:2211.17192, Eq. (1).
    """
    xp = namespace(tokens, gamma)
    gamma = arguments.draft_length(xp, gamma, low=1.0)
    meaning = "the mean number of tokens per run of the target"
    tokens = arguments.real(xp, tokens, name="tokens", meaning=meaning, low=1.0)
    meaning = "what is left of a round, which yields gamma + 1 tokens at most"
    rest = arguments.real(xp, gamma + 1 - tokens, name="gamma + 1 - tokens", meaning=meaning)
    low = xp.zeros_like(rest)
    high = xp.ones_like(low)
    # Eq. (1) increases with alpha and has no closed inverse. Each pass halves the interval.
    for _ in range(50):
        middle = (low + high) / 2
        short = expected_tokens(middle, gamma=gamma) < tokens
        low, high = xp.where(short, middle, low), xp.where(short, high, middle)
    return ((low + high) / 2)[()]
