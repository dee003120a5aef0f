"""Tables 1, 4 and 5 and Figure 3 of the paper, computed, each number beside the printed one.

Rows are plain dictionaries, ready for JSON. Keys that begin with `paper_` hold what
arXiv:2211.17192 prints; `low` and `high` are the gain at the far ends of what the rounding of the
printed inputs leaves open, and `agrees` tells whether a gain between them prints as the paper's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specdec_jax import theory

Rows = list[dict[str, Any]]

# alpha, gamma, operations, speed; c = c_hat = 0.
_TABLE_1 = (
    (0.6, 2, 1.53, 1.96),
    (0.7, 3, 1.58, 2.53),
    (0.8, 2, 1.23, 2.44),
    (0.8, 5, 1.63, 3.69),
    (0.9, 2, 1.11, 2.71),
    (0.9, 10, 1.60, 6.86),
)
# Task, draft, temperature, gamma, alpha, c, EXP, EMP; the target is T5-XXL (EMP is Table 2's).
_TABLE_4 = (
    ("EnDe", "small", 0, 7, 0.75, 0.02, 3.2, 3.4),
    ("EnDe", "base", 0, 7, 0.80, 0.04, 3.3, 2.8),
    ("EnDe", "large", 0, 7, 0.82, 0.11, 2.5, 1.7),
    ("EnDe", "small", 1, 7, 0.62, 0.02, 2.3, 2.6),
    ("EnDe", "base", 1, 5, 0.68, 0.04, 2.4, 2.4),
    ("EnDe", "large", 1, 3, 0.71, 0.11, 2.0, 1.4),
    ("CNNDM", "small", 0, 5, 0.65, 0.02, 2.4, 3.1),
    ("CNNDM", "base", 0, 5, 0.73, 0.04, 2.6, 3.0),
    ("CNNDM", "large", 0, 3, 0.74, 0.11, 2.0, 2.2),
    ("CNNDM", "small", 1, 5, 0.53, 0.02, 1.9, 2.3),
    ("CNNDM", "base", 1, 3, 0.55, 0.04, 1.8, 2.2),
    ("CNNDM", "large", 1, 3, 0.56, 0.11, 1.6, 1.7),
)
_LENIENCES = (1.0, 0.5, 0.3, 0.1)
# Draft, temperature, c, gamma where it is given, the four alphas and the four stated gains, of
# which 5X is printed without a decimal.
_TABLE_5 = (
    ("unigram", 1, 0.0, None, (0.07, 0.10, 0.11, 0.16), None),
    ("bigram", 1, 0.0, None, (0.19, 0.23, 0.25, 0.32), None),
    ("small", 1, 0.015, None, (0.62, 0.71, 0.76, 0.84), (2.5, 3.1, 3.6, 5)),
    ("base", 1, 0.04, None, (0.68, 0.80, 0.83, 0.90), None),
    ("small", 0, 0.015, 8, (0.75, 0.75, 0.80, 0.87), (3.3, 3.3, 3.9, 4.9)),
)
_FIGURE_3_COSTS = (0.01, 0.02, 0.05, 0.1)
# Printed alphas have two decimals, as have the c of Table 4; the c of section A.5 has three.
_ALPHA_ROUNDING = 0.005


def table1() -> Rows:
    """Operations (Theorem 3.11) and speed (Theorem 3.8) of Table 1, both as factors."""
    return [
        {
            "alpha": alpha,
            "gamma": gamma,
            "operations": float(theory.operations_factor(alpha, gamma=gamma)),
            "speed": float(theory.walltime_improvement(alpha, gamma=gamma, c=0)),
            "paper_operations": operations,
            "paper_speed": speed,
        }
        for alpha, gamma, operations, speed in _TABLE_1
    ]


def table4() -> Rows:
    """Expected gains of Table 4, with the gain of a free draft and the gamma that suits best."""
    rows = []
    for task, draft, temperature, gamma, alpha, c, paper_exp, paper_emp in _TABLE_4:
        low, high = _rounding(alpha, gamma, c, 0.005)
        rows.append(
            {
                "task": task,
                "draft": draft,
                "temperature": temperature,
                "gamma": gamma,
                "alpha": alpha,
                "c": c,
                "exp": float(theory.walltime_improvement(alpha, gamma=gamma, c=c)),
                "low": low,
                "high": high,
                "expected_tokens": float(theory.expected_tokens(alpha, gamma=gamma)),
                "limit": float(theory.expected_tokens(alpha, gamma=np.inf)),
                "best_gamma": int(theory.optimal_gamma(alpha, c=c)),
                "agrees": _agrees(paper_exp, low, high),
                "paper_exp": paper_exp,
                "paper_emp": paper_emp,
            }
        )
    return rows


def table5() -> Rows:
    """Expected gains at the alphas of Table 5, at the stated gamma or else at the best one.

    A draft of no cost has no best gamma; its row holds the limit `1 / (1 - alpha)` and a null.
    """
    rows = []
    for draft, temperature, c, stated, alphas, speeds in _TABLE_5:
        for i, (lenience, alpha) in enumerate(zip(_LENIENCES, alphas, strict=True)):
            low, high = _rounding(alpha, stated, c, 0.0005)
            printed = speeds[i] if speeds else None
            rows.append(
                {
                    "draft": draft,
                    "temperature": temperature,
                    "lenience": lenience,
                    "alpha": alpha,
                    "c": c,
                    "gamma": stated or _best_gamma(alpha, c),
                    "speed": _gain(alpha, stated, c),
                    "low": low,
                    "high": high,
                    "agrees": None if printed is None else _agrees(printed, low, high),
                    "paper_speed": printed,
                }
            )
    return rows


def figure3() -> Rows:
    """The optimal gamma of Figure 3 at every alpha of two decimals from 0.50 to 0.90."""
    alphas = np.arange(50, 91) / 100
    return [
        {"c": c, "alpha": float(alpha), "gamma": int(gamma)}
        for c in _FIGURE_3_COSTS
        for alpha, gamma in zip(alphas, theory.optimal_gamma(alphas, c=c), strict=True)
    ]


def statements() -> Rows:
    """Numbers of the running text: where they stand, ours and the paper's."""
    rows = [
        {
            "statement": "bigram draft, alpha 0.2, gamma 3, c 0 (section 4.2)",
            "ours": float(theory.walltime_improvement(0.2, gamma=3, c=0)),
            "paper": "1.25",
        }
    ]
    for alpha, c in ((0.8, 0.02), (0.8, 0.05), (0.9, 0.05), (0.9, 0.1)):
        fixed = theory.walltime_improvement(alpha, gamma=theory.optimal_gamma(alpha, c=c), c=c)
        rows.append(
            {
                "statement": f"oracle gamma over the best fixed one, alpha {alpha}, c {c} (3.5)",
                "ours": float(theory.oracle_improvement(alpha, c=c) / fixed),
                "paper": "up to about 1.6",
            }
        )
    return rows


def _agrees(printed: int | float, low: float, high: float) -> bool:
    half = 0.5 if isinstance(printed, int) else 0.05
    return low - half <= printed <= high + half


def _best_gamma(alpha: float, c: float) -> int | None:
    return int(theory.optimal_gamma(alpha, c=c)) if c else None


def _gain(alpha: float, gamma: int | None, c: float) -> float:
    """The gain at this gamma, or at the best, which for a free draft is infinite."""
    gamma = gamma or _best_gamma(alpha, c)
    if gamma is None:
        return float(theory.expected_tokens(alpha, gamma=np.inf))
    return float(theory.walltime_improvement(alpha, gamma=gamma, c=c))


def _rounding(alpha: float, gamma: int | None, c: float, half: float) -> tuple[float, float]:
    """The gain at the two ends of what prints as alpha and as c; a c of zero means zero."""
    slack = half if c else 0.0
    return (
        _gain(alpha - _ALPHA_ROUNDING, gamma, c + slack),
        _gain(alpha + _ALPHA_ROUNDING, gamma, c - slack),
    )
