"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from specdec_jax.errors import SpecdecError


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str], *, ours: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield a hidden folder beside `path`, which takes its place when the block ends well.

    Args:
        path: the folder to make; parents are made too.
        ours: whether an existing, non-empty folder is a checkpoint of the same format, which may
            be replaced. Anything else is left alone.

    Raises:
        SpecdecError: `path` exists and is not ours, or the file system refuses (a full disk, say);
            what stood at `path` stands there still.
    """
    final = Path(path)
    try:
        if final.exists() and not (final.is_dir() and (not any(final.iterdir()) or ours(final))):
            raise SpecdecError(
                f"{final} exists and is not a checkpoint of this format; give a new folder."
            )
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{final.name}.", dir=final.parent) as scratch:
            made = Path(scratch) / "new"
            made.mkdir()
            yield made
            if final.exists():
                # Two renames: no system call swaps a folder for a full one everywhere.
                old = Path(scratch) / "old"
                final.rename(old)
                try:
                    made.rename(final)
                except OSError:
                    old.rename(final)
                    raise
            else:
                made.rename(final)
    except OSError as error:
        free = ""
        with contextlib.suppress(OSError):
            free = f" ({shutil.disk_usage(final.parent).free / 2**30:.1f} GiB free there)"
        raise SpecdecError(
            f"{final} could not be written: {error.strerror or error}{free}; nothing was changed."
        ) from error
