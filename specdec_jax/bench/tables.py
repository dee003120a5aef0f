"""Tables for a reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def markdown(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table.

    Example:
        >>> print(markdown(["a", "b"], [(1, 2)]))
        | a | b |
        | --- | --- |
        | 1 | 2 |
    """
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)
