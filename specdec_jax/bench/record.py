"""What every record of a measurement says about where it comes from."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

PACKAGES = ("jax", "jaxlib", "flax", "numpy")


def provenance(seed: int) -> dict[str, Any]:
    """Return commit, versions, device, seed and command."""
    device = jax.devices()[0]
    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
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


def _commit() -> str | None:
    """Return the checkout's commit, with + when files differ from it; None outside a checkout."""
    here = Path(__file__).resolve().parent

    def git(*args: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *args], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
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
