"""What a draft learns from: the target's own outputs, and what the target thinks at each position.

A draft is asked about prefixes that the target wrote, so it learns from such: sources of the
training set with the target's outputs in place of the references. The target need not run again
beside every step of the draft: its distribution at a position is one product of its last hidden
state there, and those are small enough to keep.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from specdec_jax.decoding import Options, autoregressive
from specdec_jax.sampling.types import Array, Float
from specdec_jax.t5.model import T5
from specdec_jax.t5.network import Transformer
from specdec_jax.training.batched import decoded
from specdec_jax.training.examples import SHAPES, Batch, Shapes, group, pad
from specdec_jax.training.objectives import shift_right

Example = tuple[list[int], list[int]]


def target_outputs(
    target: T5,
    examples: Sequence[Example],
    *,
    temperature: float = 0.0,
    rows: int = 128,
    seed: int = 0,
    eos_id: int = 1,
    shapes: Shapes = SHAPES,
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
        shapes: padded lengths of source and output.
        progress: whether to show a bar.

    Returns:
        (source ids, output ids) in the order given. Left out are examples that no shape holds, and
        outputs that found no end in half as many tokens again as the reference, and 8 (or in the
        longest output of any shape): a draft should not learn to ramble.
    """
    found: dict[int, Example] = {}
    groups = group(examples, shapes)
    sources = [source for source, _ in examples]
    lengths = np.array([len(t) for _, t in examples], np.int64)
    most = max(length for _, length in shapes)
    key = jax.random.key(seed)
    bar = tqdm(total=len(examples), desc="target outputs", disable=not progress, mininterval=5)
    with bar:
        for number, (width, length) in enumerate(shapes):
            members = np.flatnonzero(groups == number)
            # Outputs are about as long as their references, and a batch ends with its longest.
            members = members[np.argsort(lengths[members], kind="stable")]
            room = min(length + length // 2 + 8, most)
            batches = decoded(
                functools.partial(autoregressive, target),
                sources,
                np.minimum(lengths + lengths // 2 + 8, room),
                Options(max_tokens=room, eos_id=eos_id),
                order=members,
                rows=rows,
                width=width,
                key=jax.random.fold_in(key, number),
                temperature=temperature,
            )
            for part, outputs in batches:
                for row, index in enumerate(part):
                    ids = outputs.tokens[row, : outputs.lengths[row]].tolist()
                    if ids and ids[-1] == eos_id:
                        found[int(index)] = (examples[index][0], ids)
                bar.update(len(part))
    return [found[i] for i in sorted(found)]


def states(
    target: T5,
    examples: Sequence[Example],
    *,
    tokens: int = 4096,
    shapes: Shapes = SHAPES,
    progress: bool = True,
) -> list[Float[np.ndarray, "N D"]]:
    """Return the target's last hidden state at every position of every example, in float16.

    `readout` turns them into logits: float16 keeps 11 bits, so a logit is off by at most 2**-11 of
    the sum of its terms' sizes.

    Args:
        target: token-major.
        examples: (source ids, target ids), each held by a shape.
        tokens: padded tokens of a batch.
        shapes: padded lengths of source and target.
        progress: whether to show a bar.
    """
    found: list[Any] = [None] * len(examples)
    groups = group(examples, shapes)
    with tqdm(
        total=len(examples), desc="target states", disable=not progress, mininterval=5
    ) as bar:
        for number, shape in enumerate(shapes):
            members = np.flatnonzero(groups == number)
            rows = max(1, tokens // sum(shape))
            for start in range(0, len(members), rows):
                part = members[start : start + rows]
                # Filled from the front: one shape, one compilation.
                batch = pad([examples[i] for i in np.resize(part, rows).tolist()], shape)
                hidden = np.asarray(_states(target, batch))
                for row, i in enumerate(part.tolist()):
                    found[i] = hidden[row, : len(examples[i][1])]
                bar.update(len(part))
    return found


@jax.jit
def _states(target: T5, batch: Batch) -> Float[Array, "B N D"]:
    _, kept = Transformer(target.config).apply(
        {"params": target.params},
        batch.source,
        shift_right(batch.target),
        capture_intermediates=lambda module, _: module.name == "decoder_norm",
        mutable=["intermediates"],
    )
    (hidden,) = kept["intermediates"]["decoder"]["decoder_norm"]["__call__"]
    return jnp.asarray(hidden, jnp.float16)


def readout(target: T5) -> Float[Array, "D V"]:
    """Return the matrix that turns the target's last hidden states into its logits."""
    if target.config.logits_via_embedding:
        table = jnp.asarray(target.params["token_embedder"]["embedding"])
        return table.T / np.sqrt(target.config.emb_dim).astype(np.float32)
    return jnp.asarray(target.params["decoder"]["logits_dense"]["kernel"])
