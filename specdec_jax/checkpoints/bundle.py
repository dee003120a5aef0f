"""A model in memory to a folder and back."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specdec_jax.checkpoints import native, report, tree
from specdec_jax.checkpoints.tensors import (
    Checkpoint,
    Tensor,
    Tensors,
    cast,
    float_dtype,
    require_finite,
)
from specdec_jax.t5.model import T5, t5


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A model and what its folder said about it.

    Attributes:
        model: token-major parameters on JAX's default device.
        vocabulary_path: a sentencepiece model, or None: byT5's bytes, or none in the folder.
        byte_vocabulary: whether the vocabulary is byT5's.
        extra: what `save` was given, empty in other formats.
    """

    model: T5
    vocabulary_path: Path | None
    byte_vocabulary: bool
    extra: Mapping[str, Any]


def save(
    path: str | os.PathLike[str],
    model: T5,
    *,
    dtype: Any = "bfloat16",
    vocabulary: Path | str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a model in our own format, whole or not at all; an older one at `path` is replaced.

    Args:
        path: the folder.
        model: in either layout.
        dtype: of the parameters on disk, one of float32, bfloat16, float16.
        vocabulary: a sentencepiece model to copy into the folder, or ``"bytes"`` for byT5's.
        extra: JSON values to be given back by `load`.

    Raises:
        SpecdecError: `path` is something else, a number overflows `dtype`, or the disk is full.
    """
    if vocabulary is not None and vocabulary != native.BYTES:
        vocabulary = Path(vocabulary)
    native.write(path, _of_model(Path(path), model, vocabulary, extra or {}), dtype=dtype)


def load(
    path: str | os.PathLike[str], *, dtype: Any = "float32", require_finite: bool = False
) -> Loaded:
    """Read a model in our own format; `specdec_jax.checkpoints.load` reads every format."""
    return model_of(native.read(Path(path)), dtype=dtype, finite=require_finite)


def model_of(checkpoint: Checkpoint, *, dtype: Any = "float32", finite: bool = False) -> Loaded:
    """Read the parameters of an open checkpoint, one at a time.

    Args:
        checkpoint: of any format.
        dtype: of the parameters in memory.
        finite: also look at every number, and refuse NaN and infinities.

    Raises:
        SpecdecError: the parameters are not those of the configuration (all differences in one
            text), a file is damaged, or `finite` finds something.
    """
    to = float_dtype(dtype)
    wanted = tree.shapes(checkpoint.config)
    found = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    model = f"a T5 of {checkpoint.config.describe()}"
    report.check(wanted, found, where=checkpoint.path, model=model)
    leaves = {}
    for name, array in _read_ahead(checkpoint.tensors):
        if finite:
            require_finite(array, name=name, where=checkpoint.path)
        # Not jnp.asarray, which copies. This takes an array over that is contiguous and aligned,
        # and it is ours alone: `read` gives a fresh one.
        leaves[name] = jax.device_put(cast(array, to, name=name))
    vocabulary = checkpoint.vocabulary
    return Loaded(
        model=t5(tree.nest(leaves), checkpoint.config, checkpoint.vocab_size),
        vocabulary_path=vocabulary if isinstance(vocabulary, Path) else None,
        byte_vocabulary=vocabulary == native.BYTES,
        extra=checkpoint.extra,
    )


def _read_ahead(tensors: Tensors) -> Iterator[tuple[str, np.ndarray]]:
    """Yield arrays in order, and read the next one while the caller is busy; two are held."""
    ready: list[tuple[str, futures.Future[np.ndarray]]] = []
    with futures.ThreadPoolExecutor(1) as thread:
        for name, tensor in tensors.items():
            ready.append((name, thread.submit(tensor.read)))
            if len(ready) == 2:
                before, future = ready.pop(0)
                yield before, future.result()
                del future  # it holds the array
        for name, future in ready:
            yield name, future.result()


def _of_model(
    path: Path, model: T5, vocabulary: Path | str | None, extra: Mapping[str, Any]
) -> Checkpoint:
    tensors = {}
    for name, leaf in tree.flatten(model.params):
        tensor = Tensor.of(leaf)
        if model.config.layout == "feature_major" and name.endswith("kernel"):
            tensor = tensor.map(lambda a: a.T, tensor.shape[::-1])
        tensors[name] = tensor
    report.check(
        tree.shapes(model.config),
        {name: tensor.shape for name, tensor in tensors.items()},
        where="the model to be saved",
        model=f"a T5 of {model.config.describe()}",
    )
    return Checkpoint(
        format=native.FORMAT,
        path=path,
        config=dataclasses.replace(model.config, layout="token_major"),
        tensors=tensors,
        vocab_size=model.vocab_size,
        vocabulary=vocabulary,
        extra=extra,
    )
