"""Our own folder: ``config.json``, ``model.safetensors`` in T5X's names, the vocabulary's file."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec_jax.checkpoints import safetensors_file
from specdec_jax.checkpoints.folder import new_folder
from specdec_jax.checkpoints.tensors import Checkpoint
from specdec_jax.errors import SpecdecError
from specdec_jax.t5.config import T5Config

FORMAT = "specdec"
BYTES = "bytes"
WEIGHTS = "model.safetensors"
_FIELDS = [f.name for f in dataclasses.fields(T5Config) if f.name != "layout"]
_OURS = {"format", "vocab_size_used", "vocabulary", "extra"}


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        SpecdecError: no such file, or not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecdecError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise SpecdecError(f"{path} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise SpecdecError(f"{path} holds a JSON {type(value).__name__}, not an object.")
    return value


def is_native(path: Path) -> bool:
    """Return whether a folder says that it is of this format."""
    config = path / "config.json"
    return config.is_file() and read_json(config).get("format") == FORMAT


def read(path: Path) -> Checkpoint:
    """Open a folder of this format; headers only.

    Raises:
        SpecdecError: a file is missing or damaged, or a field is unknown.
    """
    content = read_json(path / "config.json")
    unknown = sorted(content.keys() - _OURS - set(_FIELDS))
    if unknown:
        raise SpecdecError(
            f"{path / 'config.json'} has the fields {', '.join(unknown)}, unknown to this version."
        )
    try:
        fields = {name: content[name] for name in _FIELDS if name in content}
        if "mlp_activations" in fields:
            fields["mlp_activations"] = tuple(fields["mlp_activations"])
        config = T5Config(**fields)
    except TypeError as error:
        raise SpecdecError(f"{path / 'config.json'} has a malformed field: {error}.") from error
    vocabulary = content.get("vocabulary")
    if vocabulary and vocabulary != BYTES:
        # The name alone: a path out of the folder would read files that nobody offered.
        vocabulary = path / Path(vocabulary).name
        if not vocabulary.is_file():
            raise SpecdecError(
                f"{path} names the vocabulary {vocabulary.name}, which is not there; "
                "copy the folder whole."
            )
    return Checkpoint(
        format=FORMAT,
        path=path,
        config=config,
        tensors=safetensors_file.read(path / WEIGHTS),
        vocab_size=content.get("vocab_size_used", config.vocab_size),
        vocabulary=vocabulary,
        extra=content.get("extra", {}),
    )


def write(path: str | os.PathLike[str], checkpoint: Checkpoint, *, dtype: Any) -> None:
    """Write a folder of this format, whole or not at all.

    Raises:
        SpecdecError: the vocabulary's file is missing, a number overflows `dtype`, `path` is taken
            by something else, or the file system refuses.
    """
    vocabulary = checkpoint.vocabulary
    if isinstance(vocabulary, Path) and not vocabulary.is_file():
        raise SpecdecError(f"No vocabulary file at {vocabulary}.")
    with new_folder(path, ours=is_native) as folder:
        if isinstance(vocabulary, Path):
            shutil.copyfile(vocabulary, folder / vocabulary.name)
            vocabulary = vocabulary.name
        safetensors_file.write(folder / WEIGHTS, checkpoint.tensors, dtype=dtype)
        content = {
            "format": FORMAT,
            **config_fields(checkpoint.config),
            "vocab_size_used": checkpoint.vocab_size,
            "vocabulary": vocabulary,
            "extra": dict(checkpoint.extra),
        }
        (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def config_fields(config: T5Config) -> Mapping[str, Any]:
    """Return a configuration as JSON values; not the layout, which files do not have."""
    values = {name: getattr(config, name) for name in _FIELDS}
    return {**values, "mlp_activations": list(config.mlp_activations), "dtype": config.dtype.name}
