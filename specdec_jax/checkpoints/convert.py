"""From one format to another, tensor by tensor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from specdec_jax.checkpoints import (
    FORMATS,
    huggingface,
    native,
    open_checkpoint,
    orbax_folder,
    report,
    t5x_legacy,
    tree,
)
from specdec_jax.checkpoints.tensors import FLOATS
from specdec_jax.errors import SpecdecError

WRITERS = {
    native.FORMAT: native.write,
    t5x_legacy.FORMAT: t5x_legacy.write,
    orbax_folder.FORMAT: orbax_folder.write,
    huggingface.FORMAT: huggingface.write,
}


def convert(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    format: str,
    dtype: Any = None,
) -> None:
    """Write a checkpoint anew in another format, tensor by tensor.

    The values stay bit for bit when the dtype stays.

    Args:
        source: a folder of any format, or a shipped model's name.
        destination: a new folder; ``checkpoint_N`` for T5X's two formats.
        format: one of `specdec_jax.checkpoints.FORMATS`.
        dtype: of the parameters written; the widest that the source has when None.

    Raises:
        SpecdecError: an unknown format, an incomplete source, the same folder twice, or what the
            format's writer raises.
    """
    if format not in WRITERS:
        raise SpecdecError(f"No format is called {format!r}; the formats are {', '.join(FORMATS)}.")
    checkpoint = open_checkpoint(source)
    if checkpoint.path.resolve() == Path(destination).resolve():
        raise SpecdecError(f"{destination} is the source itself; give another folder.")
    found = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    model = f"a T5 of {checkpoint.config.describe()}"
    report.check(tree.shapes(checkpoint.config), found, where=checkpoint.path, model=model)
    if dtype is None:
        stored = {tensor.dtype.name for tensor in checkpoint.tensors.values()}
        # bfloat16 beside float16: only float32 holds both.
        dtype = stored.pop() if len(stored) == 1 else FLOATS[0]
    WRITERS[format](destination, checkpoint, dtype=dtype)
