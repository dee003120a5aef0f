"""Joins a target's and a draft's checkpoint into one, for what restores a single path.

T5X's `InteractiveModel` builds its own checkpoint manager and cannot be given two. A merged
checkpoint holds the tree of `SpeculativeEncoderDecoderModel`: the target, and the draft below it.

    python -m specdec_jax.t5x_plugin.merge TARGET DRAFT OUT/checkpoint_N
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from specdec_jax.checkpoints import open_checkpoint, t5x_legacy
from specdec_jax.errors import SpecdecError, told
from specdec_jax.t5x_plugin.models import DRAFT


def merge(target: str, draft: str, destination: str, *, dtype: str = "float32") -> None:
    """Write a legacy T5X checkpoint of both models, tensor by tensor.

    Args:
        target: a checkpoint of any format that specdec_jax reads, or a shipped model's name.
        draft: likewise.
        destination: a new folder named checkpoint_N.
        dtype: of the parameters written.

    Raises:
        SpecdecError: a path is no checkpoint, the target has a draft already, or the destination
            cannot be written.
    """
    first, second = open_checkpoint(target), open_checkpoint(draft)
    if any(name.startswith(f"{DRAFT}/") for name in first.tensors):
        raise SpecdecError(f"{target} has a draft already: give the target's own checkpoint.")
    below = {f"{DRAFT}/{name}": tensor for name, tensor in second.tensors.items()}
    joint = dataclasses.replace(first, tensors={**first.tensors, **below})
    t5x_legacy.write(Path(destination), joint, dtype=dtype)


@told
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m specdec_jax.t5x_plugin.merge",
        description="Join a target's and a draft's checkpoint into one T5X checkpoint.",
    )
    parser.add_argument("target", help="the target's checkpoint, or a shipped model's name")
    parser.add_argument("draft", help="the draft's")
    parser.add_argument("destination", help="a new folder, named checkpoint_N")
    parser.add_argument("--dtype", default="float32", help="of the parameters written")
    options = parser.parse_args(arguments)
    merge(options.target, options.draft, options.destination, dtype=options.dtype)
    print(f"{options.destination}: target and draft")
    return 0


if __name__ == "__main__":
    sys.exit(main())
