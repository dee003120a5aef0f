"""Reading and writing the parameters of a T5 in every format that people have them in.

Each format is a module with `read` (headers only, to a `Checkpoint` of lazy tensors in T5X's
names) and `write` (tensor by tensor). This file finds the format, or a shipped model's name.
"""

from __future__ import annotations

import os
import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec_jax.checkpoints import huggingface, native, orbax_folder, t5x_legacy
from specdec_jax.checkpoints.tensors import Checkpoint
from specdec_jax.errors import SpecdecError

if TYPE_CHECKING:
    from specdec_jax.checkpoints.bundle import Loaded

FORMATS = (native.FORMAT, t5x_legacy.FORMAT, orbax_folder.FORMAT, huggingface.FORMAT)
_STEP = re.compile(r"(checkpoint_)?\d+")


def shipped() -> dict[str, Path]:
    """Return the folders of the models in this package, by name."""
    root = Path(str(resources.files("specdec_jax") / "models"))
    return {p.parent.name: p.parent for p in sorted(root.glob("*/config.json"))}


def locate(path_or_name: str | os.PathLike[str]) -> Path:
    """Return the folder of a checkpoint; a folder that exists goes before a shipped name.

    Raises:
        SpecdecError: nothing is there, or a file is.
    """
    path = Path(path_or_name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise SpecdecError(f"{path} is a file; give the folder of the checkpoint that it is in.")
    models = shipped()
    if str(path_or_name) in models:
        return models[str(path_or_name)]
    names = ", ".join(models) or "none"
    raise SpecdecError(
        f"No checkpoint at {path} (looked from {Path.cwd()}), and no shipped model of that name; "
        f"shipped: {names}."
    )


def open_checkpoint(path_or_name: str | os.PathLike[str]) -> Checkpoint:
    """Find a checkpoint's format and read its headers.

    Raises:
        SpecdecError: no checkpoint, an unknown format, or a damaged one.
    """
    path = locate(path_or_name)
    if native.is_native(path):
        return native.read(path)
    if huggingface.is_huggingface(path):
        return huggingface.read(path)
    if orbax_folder.is_orbax(path):
        return orbax_folder.read(path)
    if t5x_legacy.is_t5x(path):
        return t5x_legacy.read(path)
    steps = sorted(
        (p.name for p in path.iterdir() if p.is_dir() and _STEP.fullmatch(p.name)),
        key=lambda name: int(name.removeprefix("checkpoint_")),
    )
    if steps:
        raise SpecdecError(
            f"{path} is a training run with the steps {', '.join(steps)}; "
            f"give one of them, as {path / steps[-1]}."
        )
    raise SpecdecError(f"{path} holds no checkpoint of a known format ({', '.join(FORMATS)}).")


def load(
    path_or_name: str | os.PathLike[str], *, dtype: Any = "float32", finite: bool = False
) -> Loaded:
    """Load a target or a draft from a folder of any format, or by a shipped model's name.

    Args:
        path_or_name: a folder, or one of `shipped`.
        dtype: of the parameters in memory: float32, bfloat16 or float16.
        finite: also look at every number, and refuse NaN and infinities.

    Raises:
        SpecdecError: see `open_checkpoint` and `specdec_jax.checkpoints.bundle.model_of`.
    """
    # Late: it brings Flax, which a look at the headers (`inspect`) must not wait for.
    from specdec_jax.checkpoints.bundle import model_of

    return model_of(open_checkpoint(path_or_name), dtype=dtype, finite=finite)
