"""Debian's indices and binary packages, through apt's own client.

The system's sources, keys, pins and proxy are used as they are. Lists and archives live in a
folder of our own and the hooks that follow an update are switched off, so nothing of the system
changes and no privilege is needed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from specdec_jax.errors import SpecdecError

# Read by apt after the system's own files, hence the last word: images often set the languages to
# "none", and a desktop fetches icons and file lists with its indices. Indices are kept unpacked.
_CONFIGURATION = """\
Dir::State::lists "{work}/lists";
Dir::State::status "/dev/null";
Dir::State::extended_states "/dev/null";
Dir::Cache::archives "{work}/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::GzipIndexes "false";
#clear Acquire::Languages;
Acquire::Languages {{ "en"; "de"; }};
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb-src;
#clear Acquire::IndexTargets::deb::CNF;
#clear Acquire::IndexTargets::deb::Contents-deb;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::DEP-11-icons;
#clear Acquire::IndexTargets::deb::DEP-11-icons-hidpi;
#clear Acquire::IndexTargets::deb::DEP-11-icons-large;
#clear Acquire::IndexTargets::deb::DEP-11-icons-large-hidpi;
#clear Acquire::IndexTargets::deb::DEP-11-icons-small;
"""

INDEX_MEGABYTES = 250
"""Room that the unpacked indices need, with apt's temporary copies."""


def need_space(folder: Path, megabytes: int) -> None:
    """Refuses, before a long download, a file system that has too little room for it.

    Raises:
        SpecdecError: less than `megabytes` are free where `folder` lies.
    """
    free = shutil.disk_usage(folder).free // 2**20
    if free < megabytes:
        raise SpecdecError(
            f"{folder} has {free} MB free, {megabytes} MB are needed: make room or choose "
            "another folder."
        )


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise SpecdecError(
            f"{name} is not on this system: build the corpus on Debian or Ubuntu (a container of "
            "either will do) and copy the files."
        )
    return path


class Archive:
    """The package archive that this system's apt sources name, with its state in `work`.

    Raises:
        SpecdecError: this system has no apt.
    """

    def __init__(self, work: Path):
        self._apt = _program("apt-get")
        self._work = work.resolve()
        self._packages = self._work / "packages"
        for folder in ("lists/partial", "archives/partial", "packages"):
            (self._work / folder).mkdir(parents=True, exist_ok=True)
        self._configuration = self._work / "apt.conf"
        self._configuration.write_text(_CONFIGURATION.format(work=self._work))

    def _run(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        # stdin closed and C locale: apt must neither ask nor translate the lines read below.
        done = subprocess.run(
            [self._apt, "-c", str(self._configuration), *arguments],
            cwd=folder,
            env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise SpecdecError(
                f"apt-get {arguments[0]} failed with status {done.returncode} "
                f"({_complaint(done.stderr)}): see that apt-get works here and try again."
            )
        return done

    def update(self) -> None:
        """Fetches the indices: packages, and descriptions in English and German.

        Raises:
            SpecdecError: apt fails, or its sources hold no German descriptions.
        """
        need_space(self._work, INDEX_MEGABYTES)
        done = self._run("update", folder=self._work)
        # apt calls an unreachable source a warning, and succeeds.
        for ending, what in (
            ("_Packages", "package index"),
            ("_Translation-en", "English descriptions"),
            ("_Translation-de", "German descriptions"),
        ):
            if not self._lists(ending):
                raise SpecdecError(
                    f"apt-get update brought no {what} ({_complaint(done.stderr)}): see that this "
                    "system's sources name a full Debian archive and can be reached."
                )

    def _lists(self, ending: str) -> list[Path]:
        return sorted((self._work / "lists").glob(f"*{ending}"))

    def index(self, ending: str) -> str:
        """All indices whose names end so, e.g. `_Packages` or `_Translation-de`, joined."""
        return "\n\n".join(path.read_text(errors="replace") for path in self._lists(ending))

    def releases(self) -> list[dict[str, str]]:
        """Origin, suite, codename, version and date of each release in use."""
        fields = re.compile(r"^(Origin|Suite|Codename|Version|Date): (.*)$", re.M)
        # `Release` stands for `InRelease` where a mirror still serves the signature apart.
        found = [dict(fields.findall(path.read_text())) for path in self._lists("Release")]
        return sorted(found, key=lambda release: sorted(release.items()))

    def download(self, names: Iterable[str]) -> dict[str, Path]:
        """Fetches the binary packages `names`, those already here excepted.

        Raises:
            SpecdecError: apt fails or the disk is too small.
        """
        # Apt lists what the current folder lacks, so this must not be the packages' own.
        listed = self._run("download", "--print-uris", *names, folder=self._work).stdout
        wanted = re.findall(r"^'[^']*' (\S+_\S+\.deb) (\d+)", listed, re.M)
        missing = {
            file: int(size)
            for file, size in wanted
            if not self._is_complete(self._packages / file, int(size))
        }
        if missing:
            need_space(self._work, sum(missing.values()) // 2**20 + 1)
            missing_names = [file.split("_")[0] for file in missing]
            self._run("download", "-qq", *missing_names, folder=self._packages)
        return {file.split("_")[0]: self._packages / file for file, _ in sorted(wanted)}

    @staticmethod
    def _is_complete(path: Path, size: int) -> bool:
        return path.is_file() and path.stat().st_size == size


def _complaint(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.startswith(("E:", "W:", "Err:"))]
    return (lines or stderr.splitlines() or ["it gave no reason"])[-1].strip()


def members(package: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Path and content of the regular files of a binary package that are `wanted`.

    The package is read as a stream: nothing is unpacked to disk.

    Raises:
        SpecdecError: no dpkg-deb, or it cannot read the package.
    """
    command = [_program("dpkg-deb"), "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reader:
        assert reader.stdout is not None
        try:
            with tarfile.open(fileobj=reader.stdout, mode="r|") as tree:
                for entry in tree:
                    path = entry.name.removeprefix("./")
                    if entry.isreg() and wanted(path):
                        content = tree.extractfile(entry)
                        assert content is not None
                        yield path, content.read()
        except tarfile.TarError as error:
            raise SpecdecError(
                f"{package} cannot be read as a Debian package ({error}): remove it and try again."
            ) from error
