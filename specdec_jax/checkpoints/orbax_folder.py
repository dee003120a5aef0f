"""Orbax checkpoints, as T5X writes them now and as Flax programs write them.

Read by TensorStore, one array at a time: Orbax itself restores whole trees and takes seconds to be
imported. Written by Orbax.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from specdec_jax.checkpoints import layouts, native, tree
from specdec_jax.checkpoints.arrays import open_arrays
from specdec_jax.checkpoints.folder import new_folder
from specdec_jax.checkpoints.t5x_legacy import step_of
from specdec_jax.checkpoints.tensors import Checkpoint, cast, float_dtype
from specdec_jax.errors import SpecdecError

FORMAT = "orbax"
_METADATA = "_METADATA"
_ITEMS = ("", "state", "default", "params", "model")
# Where a training run keeps its parameters' moving average, that is the model to use.
_ROOTS = ("target/", "average/", "params/params/", "params/", "")
_EMBEDDING = "token_embedder/embedding"


def is_orbax(path: Path) -> bool:
    """Return whether a folder, or an item's folder in it, is Orbax's."""
    return _item(path) is not None


def _item(path: Path) -> Path | None:
    return next((path / i for i in _ITEMS if (path / i / _METADATA).is_file()), None)


def read(path: Path) -> Checkpoint:
    """Open a step's folder, or an item's: the metadata of its parameters.

    Raises:
        SpecdecError: the metadata is damaged, an array is missing, or no T5 is in the tree.
    """
    item = _item(path)
    assert item is not None
    metadata = native.read_json(item / _METADATA)
    try:
        entries = [
            tuple(str(k["key"]) for k in entry["key_metadata"])
            for entry in metadata["tree_metadata"].values()
            if not entry["value_metadata"].get("skip_deserialize")
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise SpecdecError(f"{item / _METADATA} is not Orbax's metadata.") from error
    keys = {"/".join(entry): ".".join(entry) for entry in entries}
    root = next((r for r in _ROOTS if r + _EMBEDDING in keys), None)
    if root is None:
        roots = ", ".join(r or "the root" for r in _ROOTS)
        inside = [n for n in keys if n.endswith(_EMBEDDING)] or list(keys)
        raise SpecdecError(
            f"{item} is not a T5's checkpoint: no {_EMBEDDING} under {roots}; "
            f"found {', '.join(inside[:4]) or 'nothing'}."
        )
    plain = {n.removeprefix(root): k for n, k in keys.items() if n.startswith(root)}
    driver = "zarr3" if metadata.get("use_zarr3") else "zarr"
    base = item.resolve()
    if metadata.get("use_ocdbt", (item / "manifest.ocdbt").is_file()):
        store = {"driver": "ocdbt", "base": f"file://{base}/"}
        specs = {
            n: {"driver": driver, "kvstore": {**store, "path": f"{k}/"}} for n, k in plain.items()
        }
    else:
        specs = {
            n: {"driver": driver, "kvstore": {"driver": "file", "path": f"{base / k}/"}}
            for n, k in plain.items()
        }
    opened = open_arrays(
        specs,
        where=path,
        zeros_are_stored=bool(metadata.get("store_array_data_equal_to_fill_value")),
    )
    tensors, detail = layouts.canonical(opened)
    config = tree.config_of({n: t.shape for n, t in tensors.items()}, where=path)
    return Checkpoint(
        format=FORMAT,
        path=path,
        config=config,
        tensors=tensors,
        vocab_size=tree.ids_in_use(config.vocab_size),
        detail=detail,
    )


def write(path: str | os.PathLike[str], checkpoint: Checkpoint, *, dtype: Any) -> None:
    """Write a step's folder in the form of T5X's Orbax manager, whole or not at all.

    Orbax takes a whole tree: the parameters are held once, in `dtype`, while it writes. The form is
    `t5x_legacy.write`'s.

    Args:
        path: must end in ``checkpoint_N``, from which T5X takes the step.
        checkpoint: to be written.
        dtype: of the parameters on disk.

    Raises:
        SpecdecError: another name, a number overflows, or the file system refuses.
    """
    # Late: seconds of import that reading does without.
    import orbax.checkpoint as ocp

    step, to = step_of(path), float_dtype(dtype)
    tensors = layouts.for_t5x(checkpoint.tensors, checkpoint.config)
    target = {name: cast(tensor.read(), to, name=name) for name, tensor in tensors.items()}
    state = {"target": tree.nest(target), "state": {"step": np.int32(step)}}
    with new_folder(path, ours=is_orbax) as folder:
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=True)
        with ocp.Checkpointer(handler) as checkpointer:
            try:
                checkpointer.save(folder.resolve() / "state", args=ocp.args.PyTreeSave(state))
            except (ValueError, RuntimeError) as error:  # so TensorStore tells of a full disk
                raise OSError(str(error).splitlines()[0][:200]) from error
        # T5X's manager looks for this file to know that the step is complete and what is in it.
        items = {"state": f"{type(handler).__module__}.{type(handler).__qualname__}"}
        (folder / "_CHECKPOINT_METADATA").write_text(
            json.dumps({"item_handlers": items}) + "\n", encoding="utf-8"
        )
