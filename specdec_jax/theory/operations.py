"""Arithmetic and memory: what speculation adds to the one and saves of the other (section 3.4)."""

from __future__ import annotations

from specdec_jax.theory import arguments
from specdec_jax.theory.arguments import Real, Result, namespace
from specdec_jax.theory.expected import expected_tokens


def operations_factor(alpha: Real, *, gamma: Real, c_hat: Real = 0.0) -> Result:
    """Factor by which the total of arithmetic operations per token grows.

    Theorem 3.11: `(1 - alpha) (gamma c_hat + gamma + 1) / (1 - alpha^(gamma + 1))`, that is the
    draft's and the target's operations of one round over Eq. (1). The operations that run at the
    same time grow by `gamma + 1` instead.

    Args:
        alpha: mean acceptance probability, in [0, 1].
        gamma: tokens drafted per round, whole, >= 0.
        c_hat: operations per token, draft / target, >= 0 (Definition 3.10).

    Returns:
        Operations per token over those of plain decoding, >= 1; 1 at gamma = 0.

    Raises:
        SpecdecError: where an argument is outside its range.

    Example:
        >>> f"{operations_factor(0.8, gamma=5):.2f}"
        '1.63'

    Reference: arXiv:2211.17192, Theorem 3.11, Table 1 and Figure 4.
    """
    xp = namespace(alpha, gamma, c_hat)
    meaning = "operations per token of the draft over those of the target"
    c_hat = arguments.real(xp, c_hat, name="c_hat", meaning=meaning)
    length = arguments.draft_length(xp, gamma)
    return (length * c_hat + length + 1) / expected_tokens(alpha, gamma=length)


def target_runs_factor(alpha: Real, *, gamma: Real) -> Result:
    """Factor by which the target's serial runs per token shrink, and with them its memory reads.

    `1 / E` with E of Eq. (1): each run reads the weights and the key-value cache once, however
    many tokens it verifies.

    Args:
        alpha: mean acceptance probability, in [0, 1].
        gamma: tokens drafted per round, whole, >= 0; infinity gives the limit `1 - alpha`.

    Returns:
        Runs of the target per token, in [1 / (gamma + 1), 1].

    Raises:
        SpecdecError: where an argument is outside its range.

    Reference: arXiv:2211.17192, section 3.4.
    """
    return 1 / expected_tokens(alpha, gamma=gamma)
