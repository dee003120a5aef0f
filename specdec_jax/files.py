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
    """Write a text file whole or not at all.

    A file that is replaced keeps its permissions, and a link keeps pointing to it. What is no file
    (a device or a pipe, as in ``/dev/stdout``) cannot be replaced and is written to.

    Raises:
        SpecdecError: when the folder is missing, the path is a folder or the disk is full.
    """
    final = Path(os.path.realpath(path))
    try:
        if final.exists() and not final.is_file():
            final.write_text(content, encoding="utf-8")
            return
        handle, partial = tempfile.mkstemp(dir=final.parent, prefix=f".{final.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content)
            Path(partial).chmod(_mode(final))
            Path(partial).replace(final)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SpecdecError(
            f"Cannot write {path} ({error.strerror}); nothing was written: "
            "choose a folder that exists and has room."
        ) from error


def require_folder(path: Path | str | None) -> None:
    """Refuse a path that cannot become a file, before the work whose result it is to take.

    Raises:
        SpecdecError: when the path is a folder, or the folder that it names is missing.
    """
    if path is None:
        return
    path = Path(path)
    if path.is_dir():
        raise SpecdecError(f"Cannot write {path}, which is a folder: give the path of a file.")
    if not path.parent.is_dir():
        raise SpecdecError(f"Cannot write {path}, since there is no folder {path.parent}: make it.")


def _mode(path: Path) -> int:
    """Return the permissions of a file that is there, or of any that the user creates."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
