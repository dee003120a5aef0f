"""One safetensors file: its header, its tensors one at a time, and writing it tensor by tensor.

The format is eight bytes (the header's length, little-endian), a JSON header naming dtype, shape
and byte range of each tensor, and the bytes. It holds no code. The reference library returns or
takes all tensors at once, or maps the file into memory; an 11B model asks for one at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specdec_jax.checkpoints.tensors import ALIGNMENT, Tensor, Tensors, aligned, cast, float_dtype
from specdec_jax.errors import SpecdecError

_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_CODES = {name: code for code, name in _DTYPES.items()}
_LONGEST_HEADER = 100_000_000  # the reference library's own limit


def read(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file, none of them read yet.

    Raises:
        SpecdecError: the file is not there, is cut short, or is not safetensors; or a tensor is
            of integers.
    """
    header, start, size = _header(path)
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            code, shape = entry["dtype"], tuple(int(n) for n in entry["shape"])
            begin, end = entry["data_offsets"]
        except (KeyError, TypeError, ValueError) as error:
            raise SpecdecError(f"{path}: the header's entry of {name} is malformed.") from error
        if code not in _DTYPES:
            raise SpecdecError(
                f"{path}: {name} has dtype {code}; parameters are one of {', '.join(_DTYPES)}."
            )
        dtype = np.dtype(_DTYPES[code])
        count = int(np.prod(shape, dtype=np.int64))
        if begin < 0 or end - begin != count * dtype.itemsize:
            raise SpecdecError(
                f"{path}: {name} of shape {shape} takes {count * dtype.itemsize} bytes, its "
                f"range has {end - begin}; the file is damaged."
            )
        if start + end > size:
            raise SpecdecError(
                f"{path} is cut short: {name} ends at byte {start + end}, the file at {size}; "
                "copy it again."
            )
        tensors[name] = _tensor(path, start + begin, shape, dtype)
    return tensors


def _tensor(path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
    def load() -> np.ndarray:
        # Not a memory map: pages of a map would count as ours until the system takes them back,
        # and a file that shrinks under a map kills the process.
        array = aligned(shape, dtype)
        data = array.reshape(-1).view(np.uint8)
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            done = 0
            while done < data.size:  # one call reads two gigabytes at most
                got = file.readinto(data[done:].data)
                if not got:
                    raise SpecdecError(f"{path} was cut short while it was read; copy it again.")
                done += got
        return array

    return Tensor(shape, dtype, load)


def _header(path: Path) -> tuple[dict[str, Any], int, int]:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if length <= min(size, _LONGEST_HEADER) else b""
    except OSError as error:
        raise SpecdecError(f"{path} cannot be read: {error.strerror or error}.") from error
    if size < 8 or len(text) < length or not length:
        raise SpecdecError(
            f"{path} ({size} bytes) is cut short or is not a safetensors file; copy it again."
        )
    try:
        header = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError):
        header = None
    if not isinstance(header, dict):
        raise SpecdecError(f"{path} is not a safetensors file: its header is not JSON.")
    return header, 8 + length, size


def write(
    path: Path, tensors: Tensors, *, dtype: Any, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors one at a time, in the order given, each in `dtype`.

    At most one tensor is held. The caller writes into a folder that nobody reads yet.

    Raises:
        SpecdecError: an element overflows `dtype`.
        OSError: from the file system.
    """
    to = float_dtype(dtype)
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.size * to.itemsize
        header[name] = {
            "dtype": _CODES[to.name],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, tensor in tensors.items():
            data = np.ascontiguousarray(cast(tensor.read(), to, name=name))
            if data.shape != tensor.shape:
                raise SpecdecError(f"{name}: read {data.shape}, its header says {tensor.shape}.")
            file.write(data.reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
