"""Axis letters, and the array types written with them.

====== ==============================================================================
letter axis
====== ==============================================================================
B      rows of a batch
G      tokens that a draft proposes in one round (gamma)
N      tokens that a model reads in one call (gamma + 1 in verification)
S      source (encoder) length
T      length of the decoder's buffer: start token, prompt, generated tokens, slack
L      generated tokens that a result has room for
V      vocabulary
H      attention heads
K      features of one head
D      features of the residual stream
F      features of the feed-forward layer
====== ==============================================================================

The package needs jaxtyping for its tests, where every signature is checked at run time, and not
for its use; without it the names below stand for plain arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int, Key, PyTree
else:
    try:
        from jaxtyping import Array, Bool, Float, Int, Key, PyTree
    except ModuleNotFoundError:

        class _Unchecked:
            def __class_getitem__(cls, item):
                return jax.Array

        Array = jax.Array
        Bool = Float = Int = Key = PyTree = _Unchecked

__all__ = ["Array", "Bool", "Float", "Int", "Key", "PyTree"]
