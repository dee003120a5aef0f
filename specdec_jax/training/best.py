"""The best of what a summarizer says itself, by the reference: what its last stage learns from.

Cross-entropy on references asks for the one wording that an author chose, and a small model that
cannot know it hedges: between wordings, and in greedy decoding between ending and going round once
more. Its own outputs are wordings that it can reach. Of several for a source, the one closest to
the reference is worth repeating.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rouge_score import rouge_scorer

from specdec_jax.t5.model import T5
from specdec_jax.training import distil
from specdec_jax.training.distil import Example
from specdec_jax.training.examples import SHAPES, Shapes

TEMPERATURE = 0.6
"""Of the draws: at 1 a small model's are far from its best, near 0 they are all alike."""
_FIRST_SEED = 100  # of the draws, apart from those that the drafts learn from


def rouge_l() -> Callable[[str, str], float]:
    """Return a function from (output, reference) to the F measure of ROUGE-L, in [0, 1].

    A loop costs it precision. It knows English words alone.
    """
    rouge = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=True)
    return lambda output, reference: rouge.score(reference, output)["rougeL"].fmeasure


def closest(
    examples: Sequence[Example],
    candidates: Sequence[Sequence[Example]],
    decode: Callable[[list[int]], str],
    measure: Callable[[str, str], float],
) -> list[Example]:
    """Return sources with the candidate output that is closest to the reference.

    Args:
        examples: (source ids, reference ids).
        candidates: lists of (source ids, output ids); none has all sources, see
            `distil.target_outputs`.
        decode: ids to text.
        measure: (output, reference) -> how close they are; more is closer.

    Returns:
        One (source ids, output ids) for each source that has a candidate, in the order of
        `examples`; of equals, the earlier list's.
    """
    found: dict[tuple[int, ...], list[list[int]]] = {}
    for outputs in candidates:
        for source, output in outputs:
            found.setdefault(tuple(source), []).append(output)
    kept = []
    for source, reference in examples:
        outputs = found.get(tuple(source))
        if outputs:
            text = decode(reference)
            kept.append((source, max(outputs, key=lambda ids: measure(decode(ids), text))))
    return kept


def own_best(
    target: T5,
    examples: Sequence[Example],
    decode: Callable[[list[int]], str],
    *,
    draws: int,
    seed: int = 0,
    shapes: Shapes = SHAPES,
    progress: bool = True,
) -> list[Example]:
    """Return sources with the best of what the target says of them, greedily or drawn.

    Args:
        target: token-major.
        examples: (source ids, reference ids).
        decode: ids to text.
        draws: outputs drawn for each source, beside the greedy one.
        seed: of the draws.
        shapes: padded lengths of source and output.
        progress: whether to show bars.
    """
    candidates = [
        distil.target_outputs(
            target,
            examples,
            temperature=TEMPERATURE if number else 0.0,
            seed=seed + _FIRST_SEED + number - 1 if number else seed,
            shapes=shapes,
            progress=progress,
        )
        for number in range(1 + draws)
    ]
    return closest(examples, candidates, decode, rouge_l())
