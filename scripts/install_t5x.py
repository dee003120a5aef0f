"""Installs T5X into the Python environment that runs this script.

T5X is not on the package index under its own name. A project that bundles it is, so the pinned
wheel of that project is fetched by pip without its dependencies (whose pins do not fit), its
SHA-256 is checked, and its `t5x`, `airio` and `jestimator` become top-level packages. A dist-info
beside them says where they came from, and lets pip remove them: `pip uninstall t5x`.

    python scripts/install_t5x.py                 fetch and install
    python scripts/install_t5x.py --wheel FILE    install a wheel that is already here

A T5X that can be imported already is left alone. What T5X needs (JAX, seqio, ..) is in README.md.
"""

import argparse
import base64
import hashlib
import importlib.machinery
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

BUNDLE = "mt3_audio2midi"
VERSION = "0.2.0"
SHA256 = "482303ab3cdc6fd6a7cde6d9e7da5cb2d42b5c4f6f7f704903e4ec538a87109c"
PACKAGES = ("t5x", "airio", "jestimator")
# T5X's own number does not tell one commit from another; a local version says that this is a copy.
INSTALLED_VERSION = f"0.0.0+{BUNDLE.replace('_', '.')}.{VERSION}"
FROM_REPOSITORY = (
    "Or, with access to T5X's repository, `pip install --no-deps` it from there, with airio and "
    "jestimator from theirs."
)

_MENTION = re.compile(rf"\b{BUNDLE}\.(?=(?:{'|'.join(PACKAGES)})\b)")
_TEXT = {".py", ".gin"}


class InstallError(Exception):
    """What went wrong and what to do, in one message."""


def installed(name: str, path: list[str] | None = None) -> str | None:
    """Return the file or folder of a package that can be imported, without importing it."""
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), name)


def fetch(folder: Path) -> Path:
    """Download the pinned wheel with pip, by name and version.

    Raises:
        InstallError: pip is missing, or found nothing.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--dest", str(folder), f"{BUNDLE}=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
        raise InstallError(
            f"pip could not download {BUNDLE}=={VERSION} ({said[0]}). Is pip installed here, and "
            f"can it reach a package index? If another machine can, download the wheel there and "
            f"give it as --wheel FILE. {FROM_REPOSITORY}"
        )
    return wheels[0]


def verify(wheel: Path, sha256: str = SHA256) -> None:
    """Check that the wheel is the one that was read and tested.

    Raises:
        InstallError: it is missing, or another.
    """
    if not wheel.is_file():
        raise InstallError(f"There is no file {wheel}: give the path of the downloaded wheel.")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != sha256:
        raise InstallError(
            f"{wheel.name} has the SHA-256 {found}, expected {sha256}: the download is damaged or "
            f"not the pinned release, and nothing was installed. Delete it and fetch it again. "
            f"{FROM_REPOSITORY}"
        )


def unpack(wheel: Path, site: Path) -> int:
    """Write the three packages and their dist-info below `site`; returns the number of files.

    Raises:
        InstallError: one of the packages is there already, perhaps a half of another T5X.
    """
    taken = [site / name for name in PACKAGES if (site / name).exists()]
    if taken:
        raise InstallError(
            f"{', '.join(map(str, taken))} exists, but no t5x can be imported: remove it and run "
            "this again."
        )
    files = _files(wheel)
    info = f"t5x-{INSTALLED_VERSION}.dist-info"
    files |= {f"{info}/{name}": text.encode() for name, text in _dist_info().items()}
    record = f"{info}/RECORD"
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    for name, data in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return len(files)


def _files(wheel: Path) -> dict[str, bytes]:
    """Return the packages' files under their new names, mentions of the bundle taken out."""
    files = {}
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.namelist():
            parts = Path(entry).parts
            if len(parts) < 3 or parts[0] != BUNDLE or parts[1] not in PACKAGES:
                continue
            data = archive.read(entry)
            if Path(entry).suffix in _TEXT:
                data = _MENTION.sub("", data.decode()).encode()
            files["/".join(parts[1:])] = data
    return files


def _dist_info() -> dict[str, str]:
    metadata = (
        f"Metadata-Version: 2.1\nName: t5x\nVersion: {INSTALLED_VERSION}\n"
        "Summary: T5X, with the parts of airio and jestimator that it imports\n"
        f"License: Apache-2.0\n\nThe folders {', '.join(PACKAGES)} of {BUNDLE} {VERSION} "
        f"(wheel with SHA-256 {SHA256}), renamed by scripts/install_t5x.py of specdec-jax.\n"
    )
    return {
        "METADATA": metadata,
        "WHEEL": "Wheel-Version: 1.0\nGenerator: install_t5x\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        "INSTALLER": "scripts/install_t5x.py\n",
        "top_level.txt": "\n".join(PACKAGES) + "\n",
    }


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(description="Install T5X into this Python environment.")
    parser.add_argument("--wheel", type=Path, help="use this wheel instead of downloading it")
    options = parser.parse_args(arguments)
    found = installed("t5x")
    if found:
        print(f"T5X is installed already ({found}); nothing was changed.")
        return 0
    site = Path(sysconfig.get_path("purelib"))
    try:
        with tempfile.TemporaryDirectory() as folder:
            wheel = options.wheel or fetch(Path(folder))
            verify(wheel)
            count = unpack(wheel, site)
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {site} cannot be written: {error}.", file=sys.stderr)
        return 1
    print(f"T5X installed: {count} files below {site}; `pip uninstall t5x` removes them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
