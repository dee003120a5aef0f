"""The one error that the package raises for a user's mistake, and how a program tells it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")
USAGE = 2
"""Exit status after a user's mistake."""


class SpecdecError(ValueError):
    """Bad input, told in one sentence: what was given, what was needed, and the remedy.

    The command line prints the sentence alone and exits with status 2; a traceback would hide it.
    """


def told(main: Callable[P, int]) -> Callable[P, int]:
    """Return a `main` that prints the sentence of a `SpecdecError` and returns status 2."""

    @functools.wraps(main)
    def run(*arguments: P.args, **named: P.kwargs) -> int:
        try:
            return main(*arguments, **named)
        except SpecdecError as error:
            print(f"error: {error}", file=sys.stderr)
            return USAGE

    return run
