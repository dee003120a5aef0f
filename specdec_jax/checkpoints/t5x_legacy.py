"""T5X's own checkpoints: an index in msgpack, and one zarr array for each parameter.

``checkpoint_N/checkpoint`` holds ``{'version', 'optimizer': {'target', 'state'}}``, where a leaf is
an array or a TensorStore specification whose path is relative to the folder. Written without T5X,
and readable by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from specdec_jax.checkpoints import layouts, tree
from specdec_jax.checkpoints.arrays import open_arrays, write_array
from specdec_jax.checkpoints.folder import new_folder
from specdec_jax.checkpoints.tensors import (
    FLOATS,
    Checkpoint,
    Tensor,
    Tensors,
    cast,
    float_dtype,
)
from specdec_jax.errors import SpecdecError

FORMAT = "t5x"
INDEX = "checkpoint"
_VERSION = 3
_NDARRAY, _SCALAR = 1, 3  # msgpack extension types of flax.serialization
_TENSORFLOW = b"model_checkpoint_path"
_MAX_BIN = 2**31 - 1


def is_t5x(path: Path) -> bool:
    """Return whether a folder has an index that msgpack or TensorFlow wrote."""
    return (path / INDEX).is_file()


def read(path: Path) -> Checkpoint:
    """Open a step's folder: the index, and the metadata of each array.

    Raises:
        SpecdecError: the index is damaged or TensorFlow's, or an array is missing.
    """
    found = _target(path)
    specs, tensors = {}, {}
    for name, leaf in found.items():
        if isinstance(leaf, np.ndarray):
            if leaf.dtype.name not in FLOATS:
                raise SpecdecError(f"{path}: {name} has dtype {leaf.dtype.name}, not a float's.")
            tensors[name] = Tensor.of(leaf)
        else:
            specs[name] = _located(leaf, path, name)
    tensors |= open_arrays(specs, where=path, zeros_are_stored=True)
    ordered: Tensors = {name: tensors[name] for name in found}
    ordered, detail = layouts.canonical(ordered)
    config = tree.config_of({n: t.shape for n, t in ordered.items()}, where=path)
    return Checkpoint(
        format=FORMAT,
        path=path,
        config=config,
        tensors=ordered,
        vocab_size=tree.ids_in_use(config.vocab_size),
        detail=detail,
    )


def _target(path: Path) -> dict[str, Any]:
    """Return name -> array or specification of what lies under ``target``."""
    try:
        data = (path / INDEX).read_bytes()
    except OSError as error:
        raise SpecdecError(f"{path / INDEX} cannot be read: {error.strerror or error}.") from error
    if data.startswith(_TENSORFLOW):
        raise SpecdecError(
            f"{path} is a TensorFlow checkpoint (Mesh TensorFlow's T5); convert it with T5X's "
            "convert_tf_checkpoint first."
        )
    try:
        content = msgpack.unpackb(data, ext_hook=_decode, raw=False, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise SpecdecError(
            f"{path / INDEX} is cut short or is not T5X's index ({type(error).__name__}); "
            "copy it again."
        ) from error
    content = content.get("optimizer", content) if isinstance(content, dict) else {}
    target = content.get("target")
    if not isinstance(target, dict):
        raise SpecdecError(
            f"{path / INDEX} has no 'target' (it has {', '.join(map(str, content)) or 'nothing'}); "
            "it is not T5X's index."
        )
    return dict(_leaves(target))


def _leaves(node: Mapping[str, Any], prefix: str = ""):
    for key, value in node.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and "__msgpack_chunked_array__" in value:
            yield name, _join(value)
        elif isinstance(value, dict) and not {"driver", "kvstore"} <= value.keys():
            yield from _leaves(value, f"{name}/")
        else:
            yield name, value


def _join(chunked: Mapping[str, Any]) -> np.ndarray:
    # Flax writes arrays beyond a gibibyte in pieces, under the keys '0', '1', ..
    shape, chunks = chunked["shape"], chunked["chunks"]
    shape = [shape[str(i)] for i in range(len(shape))] if isinstance(shape, dict) else shape
    return np.concatenate([chunks[str(i)] for i in range(len(chunks))]).reshape(shape)


def _decode(code: int, data: bytes) -> Any:
    if code not in (_NDARRAY, _SCALAR):
        raise ValueError(f"unknown extension type {code}")
    shape, dtype, buffer = msgpack.unpackb(data, raw=True, max_bin_len=_MAX_BIN)
    return np.frombuffer(buffer, np.dtype(dtype.decode())).reshape(shape)


def _located(spec: Any, path: Path, name: str) -> dict[str, Any]:
    """Return where an array lies: of the entry only the name is taken, so none can send us out."""
    relative = None
    if isinstance(spec, dict) and spec.get("driver") == "zarr":
        relative = spec["kvstore"].get("path", spec.get("path"))
    if not isinstance(relative, str):
        raise SpecdecError(f"{path / INDEX}: the entry of {name} is not an array's.")
    folder = (path / relative).resolve()
    if path.resolve() not in folder.parents:
        raise SpecdecError(f"{path / INDEX}: {name} lies at {relative}, outside of the checkpoint.")
    return {"driver": "zarr", "kvstore": {"driver": "file", "path": str(folder)}}


def write(path: str | os.PathLike[str], checkpoint: Checkpoint, *, dtype: Any) -> None:
    """Write a step's folder, whole or not at all, one array at a time.

    In the form of T5X's plain network, or of ``scalable_t5`` where each layer has its own biases.

    Args:
        path: must end in ``checkpoint_N``, from which T5X takes the step.
        checkpoint: to be written.
        dtype: of the parameters on disk.

    Raises:
        SpecdecError: another name, a number overflows, or the file system refuses.
    """
    step, to = step_of(path), float_dtype(dtype)
    with new_folder(path, ours=is_t5x) as folder:
        index = {}
        for name, tensor in layouts.for_t5x(checkpoint.tensors, checkpoint.config).items():
            array = cast(tensor.read(), to, name=name)
            index[name] = write_array(folder, f"target.{name.replace('/', '.')}", array)
        state = {"step": msgpack.ExtType(_NDARRAY, _pack(((), "int32", np.int32(step).tobytes())))}
        content = {
            "version": _VERSION,
            "optimizer": {"state": state, "target": tree.nest(index)},
        }
        (folder / INDEX).write_bytes(_pack(content))


def _pack(content: Any) -> bytes:
    packed = msgpack.packb(content, use_bin_type=True)
    assert packed is not None  # None is for a packer that keeps its buffer
    return packed


def step_of(path: str | os.PathLike[str]) -> int:
    """Return N of a path that ends in ``checkpoint_N``, as T5X wants it.

    Raises:
        SpecdecError: it ends otherwise.
    """
    match = re.fullmatch(r"checkpoint_(\d+)", Path(path).name)
    if match is None:
        raise SpecdecError(
            f"T5X reads folders whose name is checkpoint_N, not {Path(path).name}; "
            f"write to {Path(path) / 'checkpoint_0'}."
        )
    return int(match[1])
