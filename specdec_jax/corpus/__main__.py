"""Command line of the corpus build."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from specdec_jax.corpus.build import QUICK_TASKS, TASKS, build
from specdec_jax.errors import SpecdecError


def main(arguments: list[str] | None = None) -> int:
    """Builds the corpora; returns the exit status: 0, 2 on a user's error, 130 on Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m specdec_jax.corpus",
        description="Build En-De and summarisation corpora from Debian's package archive.",
    )
    parser.add_argument("--out", type=Path, default=Path("data"), help="folder of the corpora")
    parser.add_argument("--work", type=Path, help="folder of the downloads (default: OUT/work)")
    parser.add_argument(
        "--wide",
        action="store_true",
        help="debian_ende too: message catalogs, help and man pages (300 MB to fetch)",
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing while it works")
    options = parser.parse_args(arguments)
    try:
        build(
            options.out,
            options.work or options.out / "work",
            tasks=TASKS if options.wide else QUICK_TASKS,
            progress=not options.quiet,
        )
    except SpecdecError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "interrupted: downloads are kept; corpora are complete where corpus.json is",
            file=sys.stderr,
        )
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
