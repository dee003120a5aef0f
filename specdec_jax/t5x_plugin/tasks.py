"""The tasks of the gin files: two of the paper, and three that run offline.

========================== =================================== =======================
task                       examples                            vocabulary
========================== =================================== =======================
specdec_wmt_ende           TFDS wmt_t2t_translate/de-en        T5's
specdec_cnn_dailymail      TFDS cnn_dailymail                  T5's
specdec_debian_ende        debian_ende.{split}.tsv             the shipped pair's
specdec_descriptions_ende  descriptions_ende.{split}.tsv       the shipped pair's
specdec_debian_synopsis    debian_synopsis.{split}.tsv         the shipped pair's
========================== =================================== =======================

The first two are T5's `wmt_t2t_ende_v003` and `cnn_dailymail_v002` (arXiv:1910.10683, appendix D):
same data, words before the source, vocabulary and metrics. Nothing is downloaded, and no
vocabulary read, before a task is used. The TSV files are made by scripts/build_data.sh; their
folder is the environment's SPECDEC_DATA, or data in the current one, or an argument of `local_task`
in gin.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import seqio
import tensorflow as tf

from specdec_jax import text
from specdec_jax.errors import SpecdecError

SPLITS = ("train", "validation", "test")
_SPLIT = re.compile(r"(\w+)(?:\[(\d*):(\d*)\])?")
T5_VOCABULARY = "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"


def t5_vocabulary() -> seqio.Vocabulary:
    """Return the vocabulary of T5 1.0 and 1.1: 32000 pieces and 100 sentinels."""
    return seqio.SentencePieceVocabulary(T5_VOCABULARY)


def shipped_vocabulary() -> seqio.Vocabulary:
    """Return the vocabulary of the shipped pair; it has no sentinels."""
    path = resources.files("specdec_jax").joinpath("models/ende_target/vocabulary.model")
    return seqio.SentencePieceVocabulary(str(path), extra_ids=0)


def _lines(
    split: str,
    shuffle_files: bool,
    seed: int | None = None,
    *,
    corpus: str,
    folder: str | None,
) -> Any:
    """Read a split of a local corpus, or "split[a:b]" of it: source TAB target, as tensors.

    Raises:
        SpecdecError: the file is not there, or the split is written otherwise.
    """
    del shuffle_files, seed  # One file: seqio shuffles examples itself.
    parts = _SPLIT.fullmatch(split)
    if parts is None:
        raise SpecdecError(f"The split is {split!r}: write {', '.join(SPLITS)}, or test[a:b].")
    path = Path(folder or os.environ.get("SPECDEC_DATA", "data")) / f"{corpus}.{parts[1]}.tsv"
    if not path.is_file():
        raise SpecdecError(
            f"No file {path}: make it with scripts/build_data.sh, or set SPECDEC_DATA to the "
            "folder that it is in."
        )
    columns = tf.data.experimental.CsvDataset(
        str(path), [tf.string, tf.string], field_delim="\t", use_quote_delim=False
    )
    dataset = columns.map(lambda source, target: {"inputs": source, "targets": target})
    first = int(parts[2] or 0)
    dataset = dataset.skip(first)
    return dataset.take(max(int(parts[3]) - first, 0)) if parts[3] else dataset


def _renamed(dataset: Any, *, source: str, target: str, prefix: str) -> Any:
    """Return a dataset of texts, the source behind the words that tell T5 its task."""

    def example(columns: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "inputs": tf.strings.join([prefix, columns[source]]),
            "targets": columns[target],
        }

    return dataset.map(example, num_parallel_calls=tf.data.experimental.AUTOTUNE)


def bleu(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return corpus BLEU as T5 reports it (sacrebleu, international tokenization)."""
    import sacrebleu

    score = sacrebleu.corpus_bleu(
        list(predictions), [list(targets)], smooth_method="exp", tokenize="intl"
    )
    return {"bleu": float(score.score)}


def rouge(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return the mean ROUGE F-measures in percent; sentences of the last one end at newlines."""
    from rouge_score import rouge_scorer

    names = ["rouge1", "rouge2", "rougeLsum"]
    scorer = rouge_scorer.RougeScorer(names, use_stemmer=False)
    scores = [scorer.score(t, p) for t, p in zip(targets, predictions, strict=True)]
    return {
        name: 100 * sum(score[name].fmeasure for score in scores) / max(len(scores), 1)
        for name in names
    }


def local_task(corpus: str, folder: str | None = None) -> seqio.Task:
    """Return the task of a local corpus; in gin, what MIXTURE_OR_TASK_NAME may be bound to.

    Args:
        corpus: "debian_ende", "descriptions_ende" or "debian_synopsis".
        folder: of the TSV files; None asks the environment when they are read.

    Raises:
        SpecdecError: for another corpus.
    """
    if corpus not in _LOCAL:
        raise SpecdecError(f"no local corpus {corpus!r}: choose one of {', '.join(_LOCAL)}.")
    reader = functools.partial(_lines, corpus=corpus, folder=folder)
    return _task(
        f"specdec_{corpus}",
        seqio.FunctionDataSource(reader, splits=SPLITS),
        ("inputs", "targets"),
        text.prefix(corpus),
        shipped_vocabulary(),
        _LOCAL[corpus],
    )


def _task(
    name: str,
    source: seqio.DataSource,
    columns: tuple[str, str],
    prefix: str,
    vocabulary: seqio.Vocabulary,
    metric: Callable[..., dict[str, float]],
) -> seqio.Task:
    feature = seqio.Feature(vocabulary=vocabulary, add_eos=True)
    return seqio.Task(
        name,
        source=source,
        preprocessors=[
            functools.partial(_renamed, source=columns[0], target=columns[1], prefix=prefix),
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={"inputs": feature, "targets": feature},
        metric_fns=[metric],
    )


_LOCAL = {"debian_ende": bleu, "descriptions_ende": bleu, "debian_synopsis": rouge}

for _new in (
    _task(
        "specdec_wmt_ende",
        seqio.TfdsDataSource(tfds_name="wmt_t2t_translate/de-en:1.0.0"),
        ("en", "de"),
        text.prefix("ende"),
        t5_vocabulary(),
        bleu,
    ),
    _task(
        "specdec_cnn_dailymail",
        seqio.TfdsDataSource(tfds_name="cnn_dailymail:3.4.0"),
        ("article", "highlights"),
        text.prefix("summarize"),
        t5_vocabulary(),
        rouge,
    ),
    *map(local_task, _LOCAL),
):
    if _new.name not in seqio.TaskRegistry.names():  # It is, after a reload of this module.
        seqio.TaskRegistry.add_provider(_new.name, _new)
