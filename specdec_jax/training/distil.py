"""The target's own outputs, which are what a draft has to predict.

A draft is asked about prefixes that the target wrote, so it learns from such: sources of the
training set with the target's outputs in place of the references.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from tqdm import tqdm

from specdec_jax.decoding import Options, autoregressive, request
from specdec_jax.sampling import sampling
from specdec_jax.t5.model import T5
from specdec_jax.training.examples import LENGTHS

Example = tuple[list[int], list[int]]


def target_outputs(
    target: T5,
    examples: Sequence[Example],
    *,
    temperature: float = 0.0,
    rows: int = 128,
    seed: int = 0,
    eos_id: int = 1,
    progress: bool = True,
) -> list[Example]:
    """Decode every source with the target.

    Args:
        target: in the layout that is fast for batches (token-major).
        examples: (source ids, reference ids); references only tell how much room to give.
        temperature: 0 for greedy outputs, 1 for samples.
        rows: of a batch.
        seed: of the samples.
        eos_id: the end token.
        progress: whether to show a bar.

    Returns:
        (source ids, output ids) in the order given. Left out are examples beyond the last of
        `LENGTHS`, and outputs that found no end in twice the length of their bucket (or in that
        last length): a draft should not learn to ramble.
    """
    found: dict[int, Example] = {}
    longest = np.array([max(len(s), len(t)) for s, t in examples])
    groups = np.searchsorted(LENGTHS, longest)
    key = jax.random.key(seed)
    with tqdm(
        total=len(examples), desc="target outputs", disable=not progress, mininterval=5
    ) as bar:
        for group, length in enumerate(LENGTHS):
            members = np.flatnonzero(groups == group)
            room = min(2 * length, LENGTHS[-1])
            options = Options(max_tokens=room, eos_id=eos_id)
            for start in range(0, len(members), rows):
                part = members[start : start + rows]
                source = np.zeros((rows, length), np.int32)
                for row, index in enumerate(part):
                    ids = examples[index][0]
                    source[row, : len(ids)] = ids
                asked = request(
                    rows,
                    key=jax.random.fold_in(jax.random.fold_in(key, group), start),
                    max_tokens=room,
                    limits=np.where(np.arange(rows) < len(part), room, 0),
                    settings=sampling(rows, temperature=temperature),
                )
                decoded = jax.device_get(autoregressive(target, source, asked, options))
                for row, index in enumerate(part):
                    ids = decoded.tokens[row, : decoded.lengths[row]].tolist()
                    if ids and ids[-1] == eos_id:
                        found[int(index)] = (examples[index][0], ids)
                bar.update(len(part))
    return [found[i] for i in sorted(found)]
