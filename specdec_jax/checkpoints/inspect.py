"""What a checkpoint is, from its headers alone."""

from __future__ import annotations

import collections
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec_jax.checkpoints import native, open_checkpoint, report, tree
from specdec_jax.checkpoints.tensors import Checkpoint
from specdec_jax.t5.config import PRESETS, T5Config

_SIZES = (
    "emb_dim",
    "num_heads",
    "head_dim",
    "mlp_dim",
    "num_encoder_layers",
    "num_decoder_layers",
    "mlp_activations",
    "logits_via_embedding",
)


def inspect(path_or_name: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what the headers of a checkpoint tell; no weight is read.

    Returns:
        JSON values: ``path``, ``format``, ``detail``, ``family``, ``preset`` (or None),
        ``config`` (fields), ``sizes`` (one line), ``parameters``, ``bytes``, ``dtypes`` (name ->
        parameters), ``vocabulary`` (file, ``"bytes"`` or None), ``vocab_size`` (ids in use),
        ``missing``, ``surplus``, ``wrong_shape`` (name -> shapes), ``notes``.

    Raises:
        SpecdecError: see `specdec_jax.checkpoints.open_checkpoint`.
    """
    checkpoint = open_checkpoint(path_or_name)
    config = checkpoint.config
    found = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    differences = report.compare(tree.shapes(config), found)
    dtypes: collections.Counter[str] = collections.Counter()
    for tensor in checkpoint.tensors.values():
        dtypes[tensor.dtype.name] += tensor.size
    size = sum(t.size * t.dtype.itemsize for t in checkpoint.tensors.values())
    vocabulary = checkpoint.vocabulary
    return {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "detail": checkpoint.detail,
        "family": family(config),
        "preset": preset_of(config),
        "config": dict(native.config_fields(config)),
        "sizes": config.describe(),
        "parameters": sum(dtypes.values()),
        "bytes": size,
        "dtypes": dict(dtypes),
        "vocabulary": str(vocabulary) if vocabulary else None,
        "vocab_size": checkpoint.vocab_size,
        "missing": {n: list(s) for n, s in differences.missing.items()},
        "surplus": {n: list(s) for n, s in differences.surplus.items()},
        "wrong_shape": {n: [list(w), list(f)] for n, (w, f) in differences.wrong_shape.items()},
        "notes": _notes(checkpoint, dtypes),
    }


def family(config: T5Config) -> str:
    """Return which T5 the sizes are of; LM-adapted and Flan-T5 have the sizes of T5 1.1."""
    if config.relative_bias_per_layer:
        return "umT5"
    tied, gated = config.logits_via_embedding, len(config.mlp_activations) > 1
    if config.vocab_size == 384:
        return "byT5"
    if config.vocab_size == 250112:
        return "mT5"
    return {(True, False): "T5 1.0", (False, True): "T5 1.1"}.get((tied, gated), "T5 of mixed form")


def preset_of(config: T5Config) -> str | None:
    """Return the preset with these sizes, of whatever vocabulary; None when there is none."""

    def sizes(of: T5Config) -> tuple[Any, ...]:
        return tuple(getattr(of, name) for name in _SIZES)

    return next((name for name, known in PRESETS.items() if sizes(known) == sizes(config)), None)


def _notes(checkpoint: Checkpoint, dtypes: Mapping[str, int]) -> list[str]:
    notes = []
    if "float16" in dtypes:
        notes.append(
            "float16 on disk: T5's sums pass 65504, so compute in float32 or bfloat16, and load "
            "with the finite check."
        )
    if checkpoint.vocab_size < checkpoint.config.vocab_size:
        padding = checkpoint.config.vocab_size - checkpoint.vocab_size
        notes.append(f"{padding} rows of the embedding are padding and are never emitted.")
    return notes


def render(found: Mapping[str, Any]) -> str:
    """Return the result of `inspect` as lines for people."""
    detail = f" ({found['detail']})" if found["detail"] else ""
    dtypes = ", ".join(
        name if len(found["dtypes"]) == 1 else f"{name} {count:,}"
        for name, count in found["dtypes"].items()
    )
    vocabulary = found["vocabulary"] or "none in the folder"
    lines = [
        found["path"],
        f"  format      {found['format']}{detail}",
        f"  family      {found['family']}, preset {found['preset'] or 'none'}",
        f"  sizes       {found['sizes']}",
        f"  parameters  {found['parameters']:,} in {dtypes}, {found['bytes'] / 2**20:,.1f} MiB",
        f"  vocabulary  {found['vocab_size']} ids in use of {found['config']['vocab_size']}; "
        f"{Path(vocabulary).name}",
    ]
    lines += [f"  note        {note}" for note in found["notes"]]
    differences = report.Differences(
        {n: tuple(s) for n, s in found["missing"].items()},
        {n: tuple(s) for n, s in found["surplus"].items()},
        {n: (tuple(w), tuple(f)) for n, (w, f) in found["wrong_shape"].items()},
    )
    return "\n".join([*lines, differences.text() or "  complete    nothing missing or surplus"])
