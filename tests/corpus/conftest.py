"""A stand-in for apt and dpkg-deb, so that no test needs Debian or a network."""

import hashlib
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

# Does what the tests need of `apt-get -c FILE COMMAND ...`, and no more: `update` copies the
# indices, `download` lists or copies packages. What it was asked stands in `calls`.
_APT = r"""#!/bin/sh
archive="{archive}"
echo "$@" >> "$archive/calls"
lists=$(sed -n 's/^Dir::State::lists "\(.*\)";$/\1/p' "$2")
shift 2
command=$1
shift
if [ -e "$archive/failure" ]; then cat "$archive/failure" >&2; exit 100; fi
case $command in
  update) cp "$archive"/lists/* "$lists"/; cat "$archive/warning" >&2 2>/dev/null; exit 0;;
  download)
    for name in "$@"; do
      for deb in "$archive/pool/$name"_*.deb; do
        file=$(basename "$deb")
        case $1 in
          --print-uris) [ -e "$file" ] || [ ! -e "$deb" ] || \
            echo "'mirror:/$file' $file $(wc -c < "$deb" | tr -d ' ') SHA256:0";;
          *) [ ! -e "$deb" ] || cp "$deb" .;;
        esac
      done
    done;;
esac
"""
# A package of the pool is the plain tar file of its content.
_DPKG_DEB = '#!/bin/sh\ncat "$2"\n'


class FakeArchive:
    """An archive in a folder: indices in `lists`, packages in `pool`."""

    def __init__(self, folder: Path, programs: Path):
        self.folder = folder
        (folder / "lists").mkdir(parents=True)
        (folder / "pool").mkdir()
        programs.mkdir()
        for name, text in (("apt-get", _APT), ("dpkg-deb", _DPKG_DEB)):
            program = programs / name
            program.write_text(text.replace("{archive}", str(folder)))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def put_index(self, name: str, text: str) -> None:
        (self.folder / "lists" / f"archive_{name}").write_text(text)

    def put_package(self, file: str, content: dict[str, bytes]) -> None:
        with tarfile.open(self.folder / "pool" / file, "w") as tree:
            for path, data in content.items():
                entry = tarfile.TarInfo(f"./{path}")
                entry.size = len(data)
                tree.addfile(entry, io.BytesIO(data))

    def put_descriptions(self, rows: list[tuple[str, str, str, str, str]]) -> None:
        """Rows of package, English synopsis and paragraph, German synopsis and paragraph."""
        packages, english, german = [], [], []
        for package, synopsis, body, synopsis_de, body_de in rows:
            checksum = hashlib.md5(body.encode()).hexdigest()
            head = f"Package: {package}\nDescription-md5: {checksum}\n"
            packages.append(f"Package: {package}\nVersion: 1\n")
            english.append(f"{head}Description-en: {synopsis}\n {body}\n")
            german.append(f"{head}Description-de: {synopsis_de}\n {body_de}\n")
        self.put_index("main_binary-all_Packages", "\n".join(packages))
        self.put_index("main_i18n_Translation-en", "\n".join(english))
        self.put_index("main_i18n_Translation-de", "\n".join(german))
        self.put_index(
            "InRelease",
            "Origin: Debian\nSuite: stable\nCodename: trixie\nVersion: 13.0\n"
            "Date: Sat, 9 Aug 2025\n",
        )


@pytest.fixture
def archive(tmp_path, monkeypatch):
    programs = tmp_path / "programs"
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return FakeArchive(tmp_path / "archive", programs)
