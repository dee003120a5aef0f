"""What every record of a measurement says about where it comes from."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

PACKAGES = ("jax", "jaxlib", "flax", "numpy")


def provenance(seed: int) -> dict[str, Any]:
    """Return commit, versions, device, seed and command."""
    device = jax.devices()[0]
    return {
        "command": _command(sys.argv),
        "commit": _commit(),
        "device": {
            "platform": device.platform,
            "kind": _processor() if device.platform == "cpu" else device.device_kind,
            "count": jax.device_count(),
            "cores": os.cpu_count(),
        },
        "python": platform.python_version(),
        "seed": seed,
        "versions": {name: metadata.version(name) for name in PACKAGES},
    }


def _command(arguments: Sequence[str]) -> str:
    """Return the command as one would type it, absolute paths cut to their last names.

    A record is published, and where its author keeps files is nobody's business.
    """
    program = Path(arguments[0]).name

    def public(argument: str) -> str:
        flag, equals, value = argument.rpartition("=")
        return f"{flag}{equals}{Path(value).name}" if Path(value).is_absolute() else argument

    shown = "specdec" if program == "__main__.py" else program
    return shlex.join([shown, *map(public, arguments[1:])])


def _commit() -> str | None:
    """Return the checkout's commit, with + when files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parents[2]

    def git(*args: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        # An installed package may lie in an environment inside of somebody else's repository.
        if not Path(git("rev-parse", "--show-toplevel")).samefile(root):
            return None
        dirty = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
