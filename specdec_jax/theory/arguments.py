"""What the closed forms accept: numbers, NumPy arrays and JAX arrays, each checked by name."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array

# What may be given, and what comes back: the kind that was given, which no annotation can follow.
Real = int | float | np.integer | np.floating | np.ndarray | Array
Result = Any


def namespace(*values: Real) -> ModuleType:
    """Returns `jax.numpy` where any value is a JAX array (or a tracer), `numpy` otherwise."""
    return jnp if any(isinstance(value, jax.Array) for value in values) else np


def real(
    xp: ModuleType,
    value: Real,
    *,
    name: str,
    meaning: str,
    low: float = 0.0,
    high: float = np.inf,
    above: bool = False,
    whole: bool = False,
    endless: bool = False,
) -> Result:
    """Returns `value` as a floating array of `xp`, of the same shape, once it lies in its range.

    Args:
        xp: the namespace of the result.
        value: any shape.
        name: of the argument, for the error.
        meaning: what the argument is, for the error.
        low: the least value allowed.
        high: the greatest value allowed.
        above: whether `low` itself is excluded.
        whole: whether only whole numbers pass.
        endless: whether infinity passes too.

    Raises:
        SpecdecError: naming the argument, the first value at fault, the range and the meaning.
    """
    # `float` is the namespace's own default, float64 or JAX's, so no two arguments ever differ.
    array = xp.asarray(value, dtype=float)
    if isinstance(array, Tracer):
        return array
    found = np.asarray(array)
    # Comparisons written so that a NaN fails them.
    passes = ((found > low) if above else (found >= low)) & (found <= high)
    if whole:
        passes &= found == np.floor(found)
    if not endless:
        passes &= np.isfinite(found)
    if not passes.all():
        kind = "a whole number" if whole else "a number"
        least = "above" if above else "of at least"
        bounds = f"{least} {low:g}" if np.isinf(high) else f"from {low:g} to {high:g}"
        raise SpecdecError(
            f"{name} is {found[~passes].flat[0]:g} and must be {kind} {bounds}: it is {meaning}."
        )
    return array


def probability(xp: ModuleType, value: Real, *, name: str, meaning: str) -> Result:
    """Returns `value` as a floating array of `xp` whose values lie in [0, 1]."""
    return real(xp, value, name=name, meaning=meaning, high=1.0)


def acceptance(xp: ModuleType, alpha: Real) -> Result:
    """Returns alpha as a floating array of `xp` whose values lie in [0, 1]."""
    meaning = "the mean probability that a drafted token is accepted"
    return probability(xp, alpha, name="alpha", meaning=meaning)


def draft_length(xp: ModuleType, gamma: Real, *, low: float = 0.0, endless: bool = False) -> Result:
    """Returns gamma as a floating array of `xp` of whole numbers of at least `low`."""
    meaning = "the number of tokens drafted per round"
    return real(xp, gamma, name="gamma", meaning=meaning, low=low, whole=True, endless=endless)
