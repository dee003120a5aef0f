"""Output that grows while a long job runs, so that a second run goes on where the first was ended.

`NAME.partial` grows beside the output by whole batches of lines, each on the disk before the next
is decoded; `NAME.partial.json` says what makes them. After the last line the first takes the
output's place, and the second goes. Whatever instant a job dies at, what it leaves is one of these:

============ ================= ============================================
NAME.partial NAME.partial.json the next run
============ ================= ============================================
absent       absent            begins
empty        absent            begins
lines        there             goes on after the last whole batch
absent       there             has nothing to do: the output was in its place
============ ================= ============================================
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from io import FileIO
from pathlib import Path

from specdec_jax.errors import SpecdecError
from specdec_jax.files import keep_mode, write_json

Job = Mapping[str, str | int | float | bool | None]
"""What decides on the lines: name -> value, as a message may show them."""

_ENDS = 65536


class Growing:
    """The lines of one job, as a file that grows; a context manager.

    Attributes:
        done: lines of earlier runs: whole batches, or all lines.
    """

    def __init__(
        self, output: Path | str, job: Job, *, total: int, batch: int = 1, resume: bool = False
    ):
        """Take the output's place in its folder.

        Args:
            output: the file that is to be made; a link keeps pointing to it.
            job: of this run.
            total: lines that the output will have.
            batch: lines decoded together. What was cut amid a batch is decoded again as a whole,
                so that every batch is the one of a run without end, to the last bit.
            resume: go on after the lines of an earlier run instead of refusing them.

        Raises:
            SpecdecError: there are lines of another job, or of this one without `resume`, or
                another run is writing them, or the disk is full.
        """
        self._final = Path(os.path.realpath(output))
        self.path = self._final.with_name(f"{self._final.name}.partial")
        self._job_path = self._final.with_name(f"{self._final.name}.partial.json")
        self._total = total
        self._finished = False
        self._file: FileIO | None = None
        if resume and self._final.exists() and self._job_path.exists() and not self.path.exists():
            self._require(job, self._final)
            self.done = self.lines = total
            return
        try:
            # Appending, so that nothing is lost before it is known whose it is.
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise self._cannot_write(error) from error
        try:
            self.done = self._begin(job, batch, resume)
        except BaseException:
            self._file.close()
            raise
        self.lines = self.done
        """Lines that are on the disk."""

    def _begin(self, job: Job, batch: int, resume: bool) -> int:
        """Cut the file after the last line that can be kept, and return how many are."""
        assert self._file is not None
        _lock(self._file, self.path)
        found = kept = position = size = 0
        with self.path.open("rb") as written:
            for line in written:
                if not line.endswith(b"\n"):
                    break
                found, position = found + 1, position + len(line)
                if found % batch == 0 or found == self._total:
                    kept, size = found, position
        if found:
            if not self._job_path.is_file():
                raise SpecdecError(
                    f"{self.path} has {found} lines, but {self._job_path.name}, which says what "
                    "made them, is gone: move the first away."
                )
            if not resume:
                raise SpecdecError(
                    f"{self.path} has {found} of {self._total} lines of an earlier run: go on "
                    "after them with --resume, or delete it."
                )
            self._require(job, self.path)
        self._file.truncate(size)
        if not found:
            write_json(self._job_path, dict(job))
        return kept

    def _require(self, job: Job, made: Path) -> None:
        """Refuse to go on with what another job has made."""
        try:
            before = json.loads(self._job_path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SpecdecError(
                f"{self._job_path} cannot be read ({error}): move it and {made.name} away."
            ) from error
        for name in {**job, **before}:
            if job.get(name) != before.get(name):
                raise SpecdecError(
                    f"{made} was made with {name} {before.get(name)!r}, and this run has "
                    f"{job.get(name)!r}: repeat that run's command, or move the file away."
                )

    def append(self, lines: Sequence[str]) -> None:
        """Put lines, each without a line break, on the disk.

        Raises:
            SpecdecError: the disk is full.
        """
        assert self._file is not None
        data = memoryview("".join(f"{line}\n" for line in lines).encode())
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._cannot_write(error) from error
        self.lines += len(lines)

    def finish(self) -> None:
        """Give the file the output's name.

        Raises:
            SpecdecError: the file system refuses.
        """
        assert self.lines == self._total, f"{self.lines} of {self._total} lines"
        try:
            if self._file is not None:
                keep_mode(self.path, self._final)
                self.path.replace(self._final)
                _sync_folder(self._final.parent)
            self._job_path.unlink(missing_ok=True)
        except OSError as error:
            raise self._cannot_write(error) from error
        self._finished = True

    def _cannot_write(self, error: OSError) -> SpecdecError:
        kept = getattr(self, "lines", 0)
        return SpecdecError(
            f"Cannot write {self.path} ({error.strerror}) after {kept} whole lines: choose a "
            "folder that exists and has room, or make room and go on with --resume."
        )

    def __enter__(self) -> Growing:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave what a later run can go on with, and nothing where there is no line."""
        if self._file is None:
            return
        if not self._finished and self.lines == 0:
            self._job_path.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        self._file.close()


def _lock(file: FileIO, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # No such locks on this system.
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SpecdecError(
            f"Another run is writing {path}: wait for its end, or give another output."
        ) from None


def _sync_folder(folder: Path) -> None:
    """Put a rename on the disk, where the system has files for folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lines_digest(lines: Iterable[str]) -> str:
    """Return a digest of the lines of an input, for a `Job`."""
    digest = hashlib.sha256()
    for line in lines:
        # What cannot be UTF-8 is refused later, with its line.
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()[:16]


def path_digest(path: Path) -> str:
    """Return a digest of a checkpoint's folder, or of a file, for a `Job`, wherever it lies.

    It covers names, sizes and both ends of every file: reading tens of gigabytes to start would
    take longer than many a job.
    """
    digest = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for found in files:
        size = found.stat().st_size
        digest.update(f"{found.relative_to(path).as_posix()} {size}\n".encode())
        with found.open("rb") as file:
            digest.update(file.read(_ENDS))
            file.seek(max(size - _ENDS, 0))
            digest.update(file.read(_ENDS))
    return digest.hexdigest()[:16]
