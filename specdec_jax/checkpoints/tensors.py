"""What every format is read into: named arrays, still on disk, and what is known of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from specdec_jax.errors import SpecdecError
from specdec_jax.t5.config import T5Config

FLOATS = ("float32", "bfloat16", "float16")
"""The dtypes that parameters may have on disk and in memory."""
ALIGNMENT = 64
"""Of what JAX takes over without a copy, in bytes."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An array that is read when it is asked for.

    Attributes:
        shape: of what `read` returns.
        dtype: of what `read` returns.
        read: a fresh array at each call, so that a caller who drops it holds nothing.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def map(self, function: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...]) -> Tensor:
        """Return the tensor that `function` makes of this one, as lazily; the dtype stays."""
        return Tensor(shape, self.dtype, lambda: function(self.read()))

    @classmethod
    def of(cls, array: Any) -> Tensor:
        """Wrap an array that is in memory already."""
        return cls(tuple(array.shape), np.dtype(array.dtype), lambda: np.asarray(array))


Tensors = Mapping[str, Tensor]
"""By name, parts joined by ``/``; in T5X's names once a format has been read."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model on disk, whatever its format was.

    Attributes:
        format: as `specdec_jax.checkpoints.FORMATS` names it.
        path: the folder.
        config: sizes.
        tensors: T5X's names and token-major shapes.
        vocab_size: ids in use, at most ``config.vocab_size``.
        vocabulary: the vocabulary's file, ``"bytes"`` for byT5's, None where the folder has none.
        extra: what the writer wanted to be remembered.
        detail: what else a reader should know of the form on disk, in words.
    """

    format: str
    path: Path
    config: T5Config
    tensors: Tensors
    vocab_size: int
    vocabulary: Path | str | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    detail: str = ""


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array to be filled that JAX takes over as it lies, without a copy."""
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    data = np.empty(count + ALIGNMENT, np.uint8)
    start = -data.ctypes.data % ALIGNMENT
    return data[start : start + count].view(dtype).reshape(shape)


def float_dtype(name: Any) -> np.dtype:
    """Return the numpy dtype of one of `FLOATS`.

    Raises:
        SpecdecError: for any other.
    """
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = None
    if dtype is None or dtype.name not in FLOATS:
        raise SpecdecError(f"Parameters can be {', '.join(FLOATS)}; {name!r} is none of these.")
    return dtype


def cast(array: np.ndarray, dtype: np.dtype, *, name: str) -> np.ndarray:
    """Convert one parameter, refusing to turn a number into an infinity.

    Raises:
        SpecdecError: a finite element has no finite image; float16 ends at 65504, and T5's
            weights, or their sums, are known to pass it.
    """
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        image = array.astype(dtype)
    if dtype.itemsize < array.dtype.itemsize or dtype.name == "float16":
        lost = ~np.isfinite(image) & np.isfinite(array)
        if lost.any():
            worst = np.abs(array[lost].astype(np.float32)).max()
            raise SpecdecError(
                f"{name} holds {worst:.4g}, {dtype.name} ends at {ml_dtypes.finfo(dtype).max:.4g}; "
                "use bfloat16 or float32."
            )
    return image


def require_finite(array: np.ndarray, *, name: str, where: Path) -> None:
    """Refuse a parameter that holds NaN or an infinity.

    Raises:
        SpecdecError: with the number of such elements.
    """
    bad = int(array.size - np.isfinite(array).sum())
    if bad:
        raise SpecdecError(
            f"{where}: {name} has {bad} of {array.size} elements that are NaN or infinite; "
            "the training that wrote it diverged, or it was saved in float16 and overflowed."
        )
