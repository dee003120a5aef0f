"""Files: what is written is whole or not there; what is read is UTF-8, or said not to be."""

from __future__ import annotations

import codecs
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
    """Write a UTF-8 file whole or not at all, see `write_bytes`."""
    write_bytes(path, content.encode())


def write_bytes(path: Path | str, content: bytes) -> None:
    """Write a file whole or not at all.

    A file that is replaced keeps its permissions, and a link keeps pointing to it. What is no file
    (a device or a pipe, as in ``/dev/stdout``) cannot be replaced and is written to.

    Raises:
        SpecdecError: when the folder is missing, the path is a folder or the disk is full.
    """
    final = Path(os.path.realpath(path))
    try:
        if final.exists() and not final.is_file():
            final.write_bytes(content)
            return
        handle, partial = tempfile.mkstemp(dir=final.parent, prefix=f".{final.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            keep_mode(Path(partial), final)
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


def keep_mode(new: Path, old: Path) -> None:
    """Give a file the permissions of the one that it replaces, or of any that the user creates."""
    if old.exists():
        mode = old.stat().st_mode & 0o777
    else:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    new.chmod(mode)


def read_lines(path: Path | str) -> list[str]:
    """Read a UTF-8 file, one source a line.

    Raises:
        SpecdecError: for a file that is missing or cannot be read, or bytes that are not UTF-8
            (with the line's number).
    """
    path = Path(path)
    if not path.is_file():
        raise SpecdecError(f"There is no file {path}; give a text file with one source a line.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SpecdecError(f"Cannot read {path} ({error.strerror}).") from error
    return split_lines(content, str(path))


def split_lines(data: bytes, name: str) -> list[str]:
    """Decode bytes as UTF-8 lines; a byte order mark before the first is left out."""
    lines = []
    for number, line in enumerate(data.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise SpecdecError(
                f"Line {number} of {name} is not UTF-8 (byte {error.start}): convert the file."
            ) from error
    return lines
