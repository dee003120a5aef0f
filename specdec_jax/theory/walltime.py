"""Wall time: the gain of Theorem 3.8, with the cost of verification, and the gamma that suits it.

Times are in units of one target step of one token. A round costs `gamma c + v`: gamma draft steps
and one verifying call of gamma + 1 tokens. The paper takes v = 1; where reading weights does not
hide the arithmetic (a CPU, a large batch) v grows with gamma + 1 and has to be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType

import numpy as np

from specdec_jax.errors import SpecdecError
from specdec_jax.theory import arguments
from specdec_jax.theory.arguments import Real, Result, namespace
from specdec_jax.theory.expected import alpha_from_tokens, expected_tokens


def cost_ratio(draft: Real, *, target: Real) -> Result:
    """One draft step over one target step: c from times, c_hat from operation counts.

    Args:
        draft: of the draft, > 0: seconds per step, or arithmetic operations per token.
        target: of the target, > 0, in the same unit.

    Returns:
        c (Definition 3.7) or c_hat (Definition 3.10), without unit, > 0.

    Raises:
        SpecdecError: where an argument is not positive.

    Reference: arXiv:2211.17192, Definitions 3.7 and 3.10.
    """
    xp = namespace(draft, target)
    draft = arguments.real(xp, draft, name="draft", meaning="the draft's cost", above=True)
    target = arguments.real(xp, target, name="target", meaning="the target's cost", above=True)
    return draft / target


def verify_cost(measured: Mapping[int, Real]) -> Callable[[Real], Real]:
    """The curve v(n) through measured costs of target calls of n tokens.

    Piecewise linear through (1, 1) and the points; past the last point it goes on with the slope of
    the last piece, and never falls below that point.

    Args:
        measured: tokens per call, >= 2 -> time of that call / time of a call of one token, > 0.

    Returns:
        A function from tokens per call, >= 1, number or NumPy array, to v of the same shape.

    Raises:
        SpecdecError: where no point is given, or one is outside its range.

    Example:
        >>> v = verify_cost({4: 1.26, 8: 1.49})
        >>> [round(float(v(n)), 3) for n in (1, 2, 8, 12)]
        [1.0, 1.087, 1.49, 1.72]
    """
    if not measured:
        raise SpecdecError("measured is empty and must hold one call length and its cost at least.")
    for length, cost in measured.items():
        meaning = "a number of tokens per call; one token costs 1 by definition"
        arguments.real(np, length, name="measured", meaning=meaning, low=2.0, whole=True)
        meaning = "the cost of that call in steps of one token"
        arguments.real(np, cost, name=f"measured[{length}]", meaning=meaning, above=True)
    lengths = np.array([1, *sorted(measured)], dtype=float)
    costs = np.array([1.0] + [measured[length] for length in sorted(measured)])
    slope = max(0.0, (costs[-1] - costs[-2]) / (lengths[-1] - lengths[-2]))

    def v(tokens: Real) -> Real:
        past = np.maximum(np.asarray(tokens, dtype=float) - lengths[-1], 0.0)
        return np.interp(tokens, lengths, costs) + slope * past

    return v


def walltime_improvement_from_tokens(
    tokens: Real, *, gamma: Real, c: Real, v: Real = 1.0
) -> Result:
    """Factor by which decoding gets faster, from the tokens that a round yields on average.

    `tokens / (gamma c + v)`: plain decoding pays one target step per token. The tokens may be
    measured, or those of `expected_tokens` or `expected_tokens_from_betas`. Rounds are assumed
    many, so that the last, which overshoots the end, does not count.

    Args:
        tokens: mean tokens per run of the target, >= 1.
        gamma: tokens drafted per round, whole, >= 0.
        c: one draft step / one target step, >= 0.
        v: verifying call of gamma + 1 tokens / one target step, > 0; 1 in the paper.

    Returns:
        The speedup: plain decoding's time over this one's; below 1 is slower.

    Raises:
        SpecdecError: where an argument is outside its range.

    Reference: arXiv:2211.17192, Theorem 3.8 and its proof.
    """
    xp = namespace(tokens, gamma, c, v)
    meaning = "the mean number of tokens per run of the target"
    tokens = arguments.real(xp, tokens, name="tokens", meaning=meaning, low=1.0)
    gamma = arguments.draft_length(xp, gamma)
    return tokens / (gamma * _c(xp, c) + _v(xp, v))


def walltime_improvement(alpha: Real, *, gamma: Real, c: Real, v: Real = 1.0) -> Result:
    """Expected factor by which decoding gets faster.

    Theorem 3.8: `(1 - alpha^(gamma + 1)) / ((1 - alpha) (gamma c + 1))`, with the 1 of the
    verifying call generalised to v: `E[tokens] / (gamma c + v)`.

    Args:
        alpha: mean acceptance probability, in [0, 1].
        gamma: tokens drafted per round, whole, >= 0.
        c: one draft step / one target step, >= 0.
        v: verifying call of gamma + 1 tokens / one target step, > 0; 1 in the paper.

    Returns:
        The speedup: plain decoding's time over this one's; below 1 is slower.

    Raises:
        SpecdecError: where an argument is outside its range.

    Example:
        >>> f"{walltime_improvement(0.75, gamma=7, c=0.02):.2f}"
        '3.16'

    Reference: arXiv:2211.17192, Theorem 3.8, column EXP of Table 4.
    """
    tokens = expected_tokens(alpha, gamma=gamma)
    return walltime_improvement_from_tokens(tokens, gamma=gamma, c=c, v=v)


def guaranteed_improvement(alpha: Real, *, c: Real) -> Result:
    """What the best gamma gains at least: `(1 + alpha) / (1 + c)` where alpha > c, else 1.

    Corollary 3.9: the gain at gamma = 1. Where alpha <= c no gamma gains anything, and plain
    decoding, gamma = 0, is the best.

    Args:
        alpha: mean acceptance probability, in [0, 1].
        c: one draft step / one target step, >= 0.

    Returns:
        A lower bound, >= 1, of the speedup at `optimal_gamma`, for v = 1.

    Raises:
        SpecdecError: where an argument is outside its range.

    Reference: arXiv:2211.17192, Corollary 3.9.
    """
    xp = namespace(alpha, c)
    return xp.maximum((1 + arguments.acceptance(xp, alpha)) / (1 + _c(xp, c)), 1.0)


def optimal_gamma(
    alpha: Real,
    *,
    c: Real,
    v: Real | Callable[[Real], Real] = 1.0,
    max_gamma: int = 256,
) -> Result:
    """The whole gamma of the greatest expected gain, by search over 0 .. max_gamma.

    Args:
        alpha: [...], mean acceptance probability, in [0, 1].
        c: [...], one draft step / one target step, >= 0. At c = 0 and v constant the gain grows
            with gamma for ever, and the result is `max_gamma` or, where rounding no longer tells
            gains apart, the least gamma of the greatest.
        v: [...], cost of every verifying call in target steps, or that cost as a function of the
          tokens per call (see `verify_cost`).
        max_gamma: the greatest gamma searched, >= 0.

    Returns:
        [...], int; 0 where plain decoding is fastest, the least of equals.

    Raises:
        SpecdecError: where an argument is outside its range.

    Example:
        >>> [int(optimal_gamma(0.8, c=c)) for c in (0.01, 0.02, 0.05, 0.1)]
        [14, 11, 8, 6]

    Reference: arXiv:2211.17192, section 3.5 and Figure 3.
    """
    xp = namespace(alpha, c) if callable(v) else namespace(alpha, c, v)
    arguments.draft_length(np, max_gamma)
    gamma = np.arange(max_gamma + 1)
    cost = v(gamma + 1) if callable(v) else _v(xp, v)[..., None]
    # Without a draft there is nothing to verify: a step of the target costs 1 whatever v is.
    cost = xp.where(gamma == 0, 1.0, xp.asarray(cost, dtype=float))
    gain = walltime_improvement(
        arguments.acceptance(xp, alpha)[..., None], gamma=gamma, c=_c(xp, c)[..., None], v=cost
    )
    return xp.argmax(gain, axis=-1)


def oracle_improvement(alpha: Real, *, c: Real, v: Real = 1.0) -> Result:
    """Expected gain of a draft that stops exactly where the target would reject it.

    Section 3.5: such an oracle gamma yields `1 / (1 - alpha)` tokens per run and drafts
    `alpha / (1 - alpha)` of them, so the gain is `1 / (v (1 - alpha) + alpha c)`. It bounds every
    rule that varies gamma and verifies with the target.

    Args:
        alpha: mean acceptance probability, in [0, 1].
        c: one draft step / one target step, >= 0.
        v: one verifying call, of whatever length, / one target step, > 0; 1 in the paper.

    Returns:
        The speedup; infinite at alpha = 1, c = 0.

    Raises:
        SpecdecError: where an argument is outside its range.

    Reference: arXiv:2211.17192, section 3.5; the cost of the drafts is ours.
    """
    xp = namespace(alpha, c, v)
    alpha = arguments.acceptance(xp, alpha)
    cost = _v(xp, v) * (1 - alpha) + alpha * _c(xp, c)
    return xp.where(cost > 0, 1 / xp.where(cost > 0, cost, 1.0), np.inf)[()]


def break_even_alpha(*, gamma: Real, c: Real, v: Real = 1.0) -> Result:
    """The alpha at which speculation with this gamma is exactly as fast as plain decoding.

    Eq. (1) solved for `E[tokens] = gamma c + v`. For gamma = 1 and v = 1 it is c, the condition of
    Corollary 3.9; no other gamma breaks even earlier there.

    Args:
        gamma: tokens drafted per round, whole, >= 1.
        c: one draft step / one target step, >= 0.
        v: verifying call of gamma + 1 tokens / one target step, > 0; 1 in the paper.

    Returns:
        alpha in [0, 1]; infinity where not even alpha = 1 would pay.

    Raises:
        SpecdecError: where an argument is outside its range.

    Reference: arXiv:2211.17192, Theorem 3.8 and Corollary 3.9.
    """
    xp = namespace(gamma, c, v)
    gamma = arguments.draft_length(xp, gamma, low=1.0)
    cost = gamma * _c(xp, c) + _v(xp, v)
    alpha = alpha_from_tokens(xp.clip(cost, 1.0, gamma + 1), gamma=gamma)
    return xp.where(cost > gamma + 1, np.inf, alpha)[()]


def _c(xp: ModuleType, c: Real) -> Result:
    return arguments.real(xp, c, name="c", meaning="the time of a draft step over a target step")


def _v(xp: ModuleType, v: Real) -> Result:
    meaning = "the time of a verifying call over a target step"
    return arguments.real(xp, v, name="v", meaning=meaning, above=True)
