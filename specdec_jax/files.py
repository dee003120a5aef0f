"""Output files that are whole or not there."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from specdec_jax.errors import SpecdecError


def write_json(path: Path | str, record: Any) -> None:
    """Write JSON whole or not at all.

    Raises:
        SpecdecError: when the folder is missing or the disk is full.
    """
    write_text(path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path | str, content: str) -> None:
    """Write a text file whole or not at all."""
    path = Path(path)
    try:
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content)
            # mkstemp makes private files; an output is as readable as any the user creates.
            mask = os.umask(0)
            os.umask(mask)
            Path(partial).chmod(0o666 & ~mask)
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SpecdecError(
            f"Cannot write {path} ({error.strerror}); nothing was written: "
            "choose a folder that exists and has room."
        ) from error
