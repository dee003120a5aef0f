"""What a trained target is worth: its greedy outputs beside the references."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import sacrebleu
from rouge_score import rouge_scorer

from specdec_jax.decoding import Options, autoregressive
from specdec_jax.t5 import T5Config, t5
from specdec_jax.text import Vocabulary
from specdec_jax.training.batched import decoded

Example = tuple[list[int], list[int]]
Pair = tuple[str, str]

ROWS = 64


def score(task: str, outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the task's usual scores, all in [0, 100].

    BLEU and chrF (sacrebleu) for translation; the F measure of ROUGE-L with stemming
    (rouge-score), averaged over the pairs, for summarization.
    """
    if task.endswith("ende"):
        return {
            "bleu": round(sacrebleu.corpus_bleu(outputs, [references]).score, 2),
            "chrf": round(sacrebleu.corpus_chrf(outputs, [references]).score, 2),
        }
    rouge = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=True)
    each = [rouge.score(r, o)["rougeL"].fmeasure for r, o in zip(references, outputs, strict=True)]
    return {"rouge_l": round(100 * float(np.mean(each)), 2)}


def limit(source: Sequence[int], room: int) -> int:
    """Return how long an output may be: enough for any good one, and a bad one soon ends.

    It depends on the source alone, since a limit that knew the reference would flatter the scores.
    """
    return min(room, 2 * len(source) + 16)


def scorer(
    config: T5Config,
    vocabulary: Vocabulary,
    task: str,
    examples: Sequence[Example],
    pairs: Sequence[Pair],
    *,
    room: int,
) -> Callable[[Any], dict[str, float]]:
    """Return a function from parameters to the scores of greedy outputs.

    Args:
        config: of the model.
        vocabulary: of the ids.
        task: names the scores.
        examples: the pairs' ids.
        pairs: (source, reference) texts.
        room: most tokens of an output.
    """
    sources = [source for source, _ in examples]
    lengths = np.array([len(source) for source in sources])
    limits = [limit(source, room) for source in sources]
    options = Options(max_tokens=room, eos_id=vocabulary.eos_id)

    def of(params: Any) -> dict[str, float]:
        outputs = [""] * len(examples)
        batches = decoded(
            functools.partial(autoregressive, t5(params, config)),
            sources,
            limits,
            options,
            order=np.argsort(lengths, kind="stable"),
            rows=ROWS,
            width=int(lengths.max()),
            key=jax.random.key(0),
        )
        for part, found in batches:
            for row, i in enumerate(part):
                outputs[i] = vocabulary.decode(found.tokens[row, : found.lengths[row]])
        return score(task, outputs, [reference for _, reference in pairs])

    return of
