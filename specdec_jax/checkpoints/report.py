"""One report of how the parameters that were found differ from those that were wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from specdec_jax.errors import SpecdecError

Shape = tuple[int, ...]
SHOWN = 8
"""Names of a kind that a report spells out; the rest are counted."""


@dataclasses.dataclass(frozen=True)
class Differences:
    """Names, sorted, that one side lacks or has in another shape.

    Attributes:
        missing: wanted and not found, with the shape wanted.
        surplus: found and not wanted, with the shape found.
        wrong_shape: name -> (shape wanted, shape found).
    """

    missing: Mapping[str, Shape]
    surplus: Mapping[str, Shape]
    wrong_shape: Mapping[str, tuple[Shape, Shape]]

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus or self.wrong_shape)

    def text(self) -> str:
        """Return the three kinds, each on its lines, at most `SHOWN` names of a kind."""
        kinds = [
            ("missing", [f"{name} {shape}" for name, shape in self.missing.items()]),
            ("surplus", [f"{name} {shape}" for name, shape in self.surplus.items()]),
            (
                "wrong shape",
                [f"{name} wanted {w}, found {f}" for name, (w, f) in self.wrong_shape.items()],
            ),
        ]
        lines = []
        for kind, entries in kinds:
            if entries:
                lines.append(f"{kind} ({len(entries)}):")
                lines += [f"  {entry}" for entry in entries[:SHOWN]]
                if len(entries) > SHOWN:
                    lines.append(f"  and {len(entries) - SHOWN} more")
        return "\n".join(lines)


def compare(wanted: Mapping[str, Shape], found: Mapping[str, Shape]) -> Differences:
    """Compare two sets of named shapes.

    Example:
        >>> print(compare({"a": (2,), "b": (3,)}, {"b": (4,)}).text())
        missing (1):
          a (2,)
        wrong shape (1):
          b wanted (3,), found (4,)
    """
    both = sorted(wanted.keys() & found.keys())
    return Differences(
        missing={name: wanted[name] for name in sorted(wanted.keys() - found.keys())},
        surplus={name: found[name] for name in sorted(found.keys() - wanted.keys())},
        wrong_shape={n: (wanted[n], found[n]) for n in both if wanted[n] != found[n]},
    )


def check(
    wanted: Mapping[str, Shape], found: Mapping[str, Shape], *, where: object, model: str
) -> None:
    """Refuse parameters that are not exactly those wanted.

    Args:
        wanted: name -> shape that the model has.
        found: name -> shape that the checkpoint has.
        where: the checkpoint, for the text.
        model: what the shapes wanted belong to, for the text.

    Raises:
        SpecdecError: with both sides of all three kinds.
    """
    differences = compare(wanted, found)
    if differences:
        raise SpecdecError(
            f"{where} does not hold the parameters of {model}: it has {len(found)} arrays, "
            f"{len(wanted)} are wanted.\n{differences.text()}\n"
            "Give the checkpoint of a T5 whole, and the configuration that it was trained with."
        )
