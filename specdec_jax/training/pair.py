"""The shipped pair, from text to checkpoints: every number of its recipe is in this file.

Stages, each kept in the run's folder and skipped when it is there:

1. vocabulary: a sentencepiece model of the training text;
2. alignment: a word-translation table, to guide the target's attention;
3. target: cross-entropy on the references;
4. outputs: the target's own translations of the training sources;
5. draft: distilled from the target on those.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax.numpy as jnp

from specdec_jax.errors import SpecdecError
from specdec_jax.t5 import T5, T5Config, t5
from specdec_jax.text import Vocabulary, prefix
from specdec_jax.training import alignment, distil
from specdec_jax.training.examples import Batch, Batches, encode_pairs, read_pairs
from specdec_jax.training.fit import Guide, Recipe, Teacher, fit
from specdec_jax.training.initial import initial_parameters

VOCABULARY = 2048
TARGET = T5Config(
    vocab_size=VOCABULARY,
    emb_dim=128,
    num_heads=4,
    head_dim=32,
    mlp_dim=768,
    num_encoder_layers=3,
    num_decoder_layers=4,
    mlp_activations=("gelu", "linear"),
    logits_via_embedding=True,
    dropout_rate=0.1,
)
# One wide layer: each further one costs latency, and the logits are most of the step anyway. The
# encoder runs once for a text, so its layers are cheap.
DRAFT = dataclasses.replace(
    TARGET,
    emb_dim=64,
    num_heads=4,
    head_dim=16,
    mlp_dim=128,
    num_encoder_layers=3,
    num_decoder_layers=1,
    dropout_rate=0.0,
)
TARGET_RECIPE = Recipe(steps=7500, rate=2e-3, warmup=200, evaluate_every=500)
DRAFT_RECIPE = Recipe(steps=6000, rate=3e-3, warmup=200, hard=0.5, evaluate_every=1000)
GUIDED_LAYER = {"target": 2, "draft": 0}


@dataclasses.dataclass(frozen=True)
class Run:
    """Where a run's text is and where its stages are kept."""

    data: Path
    folder: Path
    task: str = "descriptions_ende"
    progress: bool = True

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """Read one split of the task, compressed or not."""
        plain = self.data / f"{self.task}.{split}.tsv"
        return read_pairs(plain if plain.is_file() else plain.with_suffix(".tsv.xz"))


def train_pair(run: Run, *, seed: int = 0) -> tuple[T5, T5, Path]:
    """Train target and draft, resuming where an earlier run was stopped.

    Returns:
        Target, draft, and the vocabulary's file.
    """
    run.folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _vocabulary(run)
    train = encode_pairs(run.pairs("train"), vocabulary, prefix(run.task))
    validation = _batches(encode_pairs(run.pairs("validation"), vocabulary, prefix(run.task)))

    table = jnp.asarray(alignment.load_or_count(run.folder / "alignment.npy", train, VOCABULARY))
    params = fit(
        TARGET,
        initial_parameters(TARGET, seed),
        Batches(train, seed=seed),
        dataclasses.replace(TARGET_RECIPE, seed=seed),
        run.folder / "target",
        validation=validation,
        guide=Guide(table, layer=GUIDED_LAYER["target"]),
        progress=run.progress,
    )
    target = t5(params, TARGET)

    outputs = _kept_outputs(run, target, train)
    heldout = distil.target_outputs(
        target,
        encode_pairs(run.pairs("validation"), vocabulary, prefix(run.task)),
        progress=run.progress,
    )
    params = fit(
        DRAFT,
        initial_parameters(DRAFT, seed + 1),
        Batches(outputs, seed=seed),
        dataclasses.replace(DRAFT_RECIPE, seed=seed),
        run.folder / "draft",
        validation=_batches(heldout),
        teacher=Teacher(target.params, TARGET),
        guide=Guide(table, layer=GUIDED_LAYER["draft"]),
        progress=run.progress,
    )
    return target, t5(params, DRAFT), vocabulary.path


def _vocabulary(run: Run) -> Vocabulary:
    path = run.folder / "vocabulary.model"
    if not path.is_file():
        from specdec_jax.corpus.build import train_vocabulary

        lines = [text for pair in run.pairs("train") for text in pair]
        train_vocabulary(lines, path, size=VOCABULARY)
    return Vocabulary(path)


def _batches(examples: list[distil.Example]) -> list[Batch]:
    batches = Batches(examples, tokens=2048)
    return [batches(step) for step in range(batches.per_epoch)]


def _kept_outputs(run: Run, target: T5, train: list[distil.Example]) -> list[distil.Example]:
    path = run.folder / "outputs.json"
    if not path.is_file():
        found = distil.target_outputs(target, train, progress=run.progress)
        if not found:
            raise SpecdecError(
                "The target ended none of its outputs, so there is nothing to distil: "
                f"train it longer (see {run.folder / 'target' / 'log.jsonl'})."
            )
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(found), encoding="utf-8")
        partial.rename(path)
    return [(s, t) for s, t in json.loads(path.read_text(encoding="utf-8"))]
