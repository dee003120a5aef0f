"""Arrays that TensorStore holds (zarr, in files or in an OCDBT database), opened but not read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts

from specdec_jax.checkpoints.tensors import FLOATS, Tensor, aligned
from specdec_jax.errors import SpecdecError

_CHUNK_BYTES = 64 * 2**20  # T5X's size of a file
# No cache: every array is read once. No sync: one for each of a thousand files takes longer than
# writing them, and the folder gets its name after all.
_CONTEXT = ts.Context({"cache_pool": {"total_bytes_limit": 0}, "file_io_sync": False})


def open_arrays(
    specs: Mapping[str, Mapping[str, Any]], *, where: Path, zeros_are_stored: bool
) -> dict[str, Tensor]:
    """Open arrays, all at once, and read their metadata.

    Args:
        specs: name -> TensorStore specification.
        where: the checkpoint, for the text of errors.
        zeros_are_stored: whether the writer stored chunks of zeros too. TensorStore reads a chunk
            that is not there as zeros, which for a lost file would be a wrong model without a
            word; so a lost chunk in plain files is an error.

    Raises:
        SpecdecError: an array or one of its chunks is missing, or has no float dtype.
    """
    # Assumed metadata would be trusted, and a folder that is gone would read as zeros.
    futures = {
        n: ts.open(dict(s), context=_CONTEXT, read=True, open=True) for n, s in specs.items()
    }
    tensors = {}
    for name, future in futures.items():
        try:
            array = future.result()
        except (ValueError, RuntimeError, OSError) as error:
            raise SpecdecError(
                f"{where}: the array {name} cannot be opened ({_first_line(error)}); the "
                "checkpoint is damaged or was copied in part."
            ) from error
        dtype = array.dtype.numpy_dtype
        if dtype == np.uint16:
            # Before 2021 TensorStore knew no bfloat16, and T5X stored its bits.
            dtype = np.dtype("bfloat16")
        if dtype.name not in FLOATS:
            raise SpecdecError(
                f"{where}: {name} has dtype {dtype.name}; parameters are one of "
                f"{', '.join(FLOATS)}."
            )
        kvstore = specs[name]["kvstore"]
        if kvstore["driver"] == "file" and zeros_are_stored:
            _require_chunks(array, Path(kvstore["path"]), name=name, where=where)
        tensors[name] = _tensor(array, dtype, name=name, where=where)
    return tensors


def _tensor(array: ts.TensorStore, dtype: np.dtype, *, name: str, where: Path) -> Tensor:
    def read() -> np.ndarray:
        try:
            # Into memory of ours: what TensorStore allocates JAX would have to copy.
            into = aligned(tuple(array.shape), array.dtype.numpy_dtype)
            ts.array(into).write(array).result()
            return into.view(dtype)
        except (ValueError, RuntimeError, OSError) as error:
            raise SpecdecError(
                f"{where}: the array {name} cannot be read ({_first_line(error)}); the checkpoint "
                "is damaged or was copied in part."
            ) from error

    return Tensor(tuple(array.shape), dtype, read)


def _require_chunks(array: ts.TensorStore, folder: Path, *, name: str, where: Path) -> None:
    chunk = array.chunk_layout.write_chunk.shape or array.shape
    wanted = math.prod(-(-n // (c or n)) for n, c in zip(array.shape, chunk, strict=True))
    found = sum(
        1 for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "zarr"))
    )
    if found != wanted:
        raise SpecdecError(
            f"{where}: the array {name} has {found} of its {wanted} chunk files in {folder.name}; "
            "copy the checkpoint again."
        )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def write_array(folder: Path, name: str, array: np.ndarray) -> dict[str, Any]:
    """Write one zarr array under a folder and return its specification, relative to it.

    Not compressed: trained weights shrink little, and reading would be bound by unpacking. Chunks
    of zeros are written, so that a lost file is seen.

    Raises:
        OSError: TensorStore could not write.
    """
    rows = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
    spec = {
        "driver": "zarr",
        "dtype": array.dtype.name,
        "kvstore": {"driver": "file", "path": name},
        "metadata": {
            "shape": list(array.shape),
            "chunks": [min(rows, array.shape[0]), *array.shape[1:]],
            "compressor": None,
        },
    }
    absolute = {"driver": "file", "path": str((folder / name).resolve())}
    whole = {**spec, "kvstore": absolute, "store_data_equal_to_fill_value": True}
    try:
        ts.open(whole, create=True, context=_CONTEXT).result().write(array).result()
    except (ValueError, RuntimeError) as error:
        raise OSError(_first_line(error)) from error
    return spec
