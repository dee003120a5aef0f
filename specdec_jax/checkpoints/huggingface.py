"""Folders of Hugging Face's transformers: safetensors in one file or in shards, or torch files."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from specdec_jax.checkpoints import native, safetensors_file, tree
from specdec_jax.checkpoints.folder import new_folder
from specdec_jax.checkpoints.hf_names import (
    UNUSED,
    config_from_hf,
    config_to_hf,
    hf_name,
    scales_output,
)
from specdec_jax.checkpoints.tensors import FLOATS, Checkpoint, Tensor, Tensors, float_dtype
from specdec_jax.errors import SpecdecError
from specdec_jax.t5.config import T5Config

FORMAT = "hf"
_SAFE = "model.safetensors"
_TORCH = "pytorch_model.bin"
_PIECES = ("spiece.model", "sentencepiece.model")
_SHARD_BYTES = 5 * 10**9  # transformers' own limit
_HEAD = "lm_head.weight"


def is_huggingface(path: Path) -> bool:
    """Return whether a folder's ``config.json`` names a model type."""
    config = path / "config.json"
    return config.is_file() and "model_type" in native.read_json(config)


def read(path: Path) -> Checkpoint:
    """Open a folder: its configuration, and the headers of its files.

    Raises:
        SpecdecError: another architecture, a shard is missing or damaged, or the weights are in a
            torch file and torch is not installed.
    """
    content = native.read_json(path / "config.json")
    config = config_from_hf(content, where=path)
    found = _weights(path)
    if "shared.weight" not in found and "encoder.embed_tokens.weight" in found:
        found["shared.weight"] = found["encoder.embed_tokens.weight"]
    if scales_output(content):
        # Tied: what lies under the head's name is a copy that transformers does not read either.
        config = dataclasses.replace(config, logits_via_embedding=True)
        found.pop(_HEAD, None)
    elif _HEAD not in found and "shared.weight" in found:
        # Tied without the scale, which is T5 1.1 with the embedding as its output matrix.
        found[_HEAD] = found["shared.weight"]
    wanted = {hf_name(name)[0]: (name, hf_name(name)[1]) for name in tree.shapes(config)}
    tensors: Tensors = {}
    for name, tensor in found.items():
        if name in wanted:
            ours, turned = wanted[name]
            tensors[ours] = _transposed(tensor) if turned else tensor
        elif name not in UNUSED:
            tensors[name] = tensor
    vocabulary, used = _vocabulary(path, config)
    return Checkpoint(
        format=FORMAT,
        path=path,
        config=config,
        tensors=tensors,
        vocab_size=used,
        vocabulary=vocabulary,
    )


def _transposed(tensor: Tensor) -> Tensor:
    return tensor.map(lambda array: array.T, tensor.shape[::-1])


def _weights(path: Path) -> dict[str, Tensor]:
    for single, reader in ((_SAFE, safetensors_file.read), (_TORCH, _torch_file)):
        if (path / single).is_file():
            return reader(path / single)
        index = path / f"{single}.index.json"
        if index.is_file():
            return _sharded(index, reader)
    raise SpecdecError(
        f"{path} has a config.json but neither {_SAFE} nor its index, nor {_TORCH}; "
        "copy the weights too."
    )


def _sharded(index: Path, reader: Any) -> dict[str, Tensor]:
    weight_map = native.read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise SpecdecError(f"{index} has no 'weight_map'; it is not an index of shards.")
    # The names alone: an index cannot lead out of its folder.
    files = {name: Path(str(file)).name for name, file in weight_map.items()}
    absent = sorted({f for f in files.values() if not (index.parent / f).is_file()})
    if absent:
        raise SpecdecError(
            f"{index.parent} lacks {len(absent)} of its {len(set(files.values()))} shards: "
            f"{', '.join(absent[:8])}; copy them too."
        )
    opened = {file: reader(index.parent / file) for file in sorted(set(files.values()))}
    return {name: opened[f][name] for name, f in files.items() if name in opened[f]}


def _torch_file(path: Path) -> dict[str, Tensor]:
    """Open a torch file by torch's loader that runs no code, mapped into memory where it can be.

    Raises:
        SpecdecError: torch is not installed, or refuses the file.
    """
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise SpecdecError(
            f"{path} is a torch pickle, which only torch can read safely, and torch is not "
            "installed; install torch, or save the model with save_pretrained of a transformers "
            "that writes safetensors."
        ) from error
    try:
        # Before version 1.6 torch wrote no archives, which alone can be mapped: the first T5s.
        mapped = zipfile.is_zipfile(path)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # torch raises many kinds for a damaged or a forbidden pickle
        raise SpecdecError(
            f"{path} is damaged, or holds more than weights, which is never loaded "
            f"({str(error).splitlines()[0][:120]})."
        ) from error
    return {name: _of_torch(tensor, name=name, where=path) for name, tensor in state.items()}


def _of_torch(tensor: Any, *, name: str, where: Path) -> Tensor:
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in FLOATS:
        raise SpecdecError(f"{where}: {name} has dtype {kind}; parameters are floats.")
    dtype = np.dtype(kind)

    def load() -> np.ndarray:
        # float32 holds every bfloat16 and float16; numpy has no bfloat16 that torch knows.
        return tensor.float().numpy().astype(dtype)

    return Tensor(tuple(tensor.shape), dtype, load)


def _vocabulary(path: Path, config: T5Config) -> tuple[Path | str | None, int]:
    """Return the vocabulary, and how many ids of the embedding it uses, sentinels included."""
    vocab_size = config.vocab_size
    settings = path / "tokenizer_config.json"
    tokenizer = native.read_json(settings) if settings.is_file() else {}
    file = next((path / name for name in _PIECES if (path / name).is_file()), None)
    if file is None:
        if str(tokenizer.get("tokenizer_class", "")).startswith("ByT5"):
            return native.BYTES, vocab_size
        return None, tree.ids_in_use(vocab_size)
    # Late, with the text room's own dependency: T5X's formats have no vocabulary in the folder.
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor()
    try:
        pieces.Load(str(file))
    except (RuntimeError, OSError) as error:
        raise SpecdecError(f"{file} is not a sentencepiece model ({error}).") from error
    count = pieces.GetPieceSize()
    # mT5's file has the sentinels among its pieces; then the sum passes the embedding.
    sentinels = 300 if config.relative_bias_per_layer else 100  # umT5's; T5's and mT5's
    used = count + int(tokenizer.get("extra_ids", sentinels))
    return file, used if used <= vocab_size else tree.ids_in_use(vocab_size)


def write(path: str | os.PathLike[str], checkpoint: Checkpoint, *, dtype: Any) -> None:
    """Write a folder that transformers reads, whole or not at all, one tensor at a time.

    Raises:
        SpecdecError: Hugging Face has no such T5, a number overflows, or the file system refuses.
    """
    to = float_dtype(dtype)
    config = config_to_hf(checkpoint.config, dtype=to.name)
    tensors = {}
    for name, tensor in checkpoint.tensors.items():
        theirs, turned = hf_name(name)
        tensors[theirs] = _transposed(tensor) if turned else tensor
    with new_folder(path, ours=is_huggingface) as folder:
        _write_weights(folder, tensors, dtype=to)
        (folder / "config.json").write_text(_json(config), encoding="utf-8")
        _write_vocabulary(folder, checkpoint)


def _write_weights(folder: Path, tensors: Tensors, *, dtype: np.dtype) -> None:
    shards = list(_split(tensors, dtype.itemsize))
    if len(shards) == 1:
        safetensors_file.write(folder / _SAFE, tensors, dtype=dtype, metadata={"format": "pt"})
        return
    weight_map = {}
    for i, names in enumerate(shards, start=1):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        part = {name: tensors[name] for name in names}
        safetensors_file.write(folder / file, part, dtype=dtype, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(names, file)
    total = sum(t.size for t in tensors.values()) * dtype.itemsize
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / f"{_SAFE}.index.json").write_text(_json(index), encoding="utf-8")


def _split(tensors: Tensors, itemsize: int) -> Iterable[list[str]]:
    shard, held = [], 0
    for name, tensor in tensors.items():
        if shard and held + tensor.size * itemsize > _SHARD_BYTES:
            yield shard
            shard, held = [], 0
        shard.append(name)
        held += tensor.size * itemsize
    yield shard


def _write_vocabulary(folder: Path, checkpoint: Checkpoint) -> None:
    vocabulary = checkpoint.vocabulary
    if vocabulary is None:
        return
    settings: dict[str, Any] = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    if isinstance(vocabulary, Path):
        from sentencepiece import SentencePieceProcessor

        shutil.copyfile(vocabulary, folder / _PIECES[0])
        pieces = SentencePieceProcessor(model_file=str(vocabulary)).GetPieceSize()
        settings |= {"tokenizer_class": "T5Tokenizer", "extra_ids": checkpoint.vocab_size - pieces}
    else:
        settings |= {"tokenizer_class": "ByT5Tokenizer", "extra_ids": checkpoint.vocab_size - 259}
    settings["extra_ids"] = max(settings["extra_ids"], 0)
    (folder / "tokenizer_config.json").write_text(_json(settings), encoding="utf-8")


def _json(content: Any) -> str:
    return json.dumps(content, indent=2) + "\n"
