"""Targets and their drafts, from text to checkpoints.

Stages, each kept in the run's folder and skipped when it is there:

1. vocabulary: a sentencepiece model of the translation's training text;
2. alignment: a word-translation table, to guide the models' attention;
3. target: cross-entropy on the references, in several runs; the summarizer's last one also on the
   best of what it says itself;
4. outputs: the target's own texts for the training sources, greedy and drawn;
5. drafts: distilled from the target on those.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.errors import SpecdecError
from specdec_jax.files import write_text
from specdec_jax.t5 import T5, T5Config, t5
from specdec_jax.text import Vocabulary, prefix
from specdec_jax.training import alignment, best, distil, recipe
from specdec_jax.training.examples import Batch, Batches, encode_pairs, read_pairs
from specdec_jax.training.fit import Guide, Params, fit
from specdec_jax.training.initial import inherited_parameters, initial_parameters
from specdec_jax.training.scores import scorer

SCORED = 192
"""Validation pairs whose greedy outputs are scored at every evaluation of a target: the first of
those with at most 128 tokens of source and 64 of target."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Where the text is and where the stages are kept."""

    data: Path
    folder: Path
    progress: bool = True

    def pairs(self, task: recipe.Task, split: str) -> list[tuple[str, str]]:
        """Read one split of a task, compressed or not."""
        plain = self.data / f"{task.corpus}.{split}.tsv"
        return read_pairs(plain if plain.is_file() else plain.with_suffix(".tsv.xz"))

    def vocabulary(self) -> Vocabulary:
        """Return the run's vocabulary, trained first where there is none."""
        path = self.folder / "vocabulary.model"
        if not path.is_file():
            from specdec_jax.corpus.build import train_vocabulary

            self.folder.mkdir(parents=True, exist_ok=True)
            pairs = self.pairs(recipe.TASKS["ende"], "train")
            train_vocabulary([t for pair in pairs for t in pair], path, size=recipe.VOCABULARY)
        return Vocabulary(path)

    def encode(self, task: recipe.Task, split: str) -> list[distil.Example]:
        """Return one split's ids."""
        return encode_pairs(
            self.pairs(task, split), self.vocabulary(), prefix(task.corpus), longest=task.longest
        )

    def guide(self, task: recipe.Task, train: list[distil.Example], layer: int) -> Guide:
        """Return the word alignment of a task's training text, counted first where it is not."""
        path = self.folder / task.name / f"alignment_{task.corpus}.npy"
        table = alignment.load_or_count(path, train, recipe.VOCABULARY)
        return Guide(jnp.asarray(table), layer=layer)


def train_target(run: Run, task: recipe.Task, *, seed: int = 0) -> T5:
    """Train a task's target, resuming where an earlier run was stopped.

    Its parameters are rounded as they will ship, so that its drafts learn from that model.
    """
    return t5(_handed_on(_stages(run, task, len(task.stages), seed)), recipe.TARGET)


def _stages(run: Run, task: recipe.Task, count: int, seed: int) -> Params:
    """Return the average after a task's first stages, trained where they are not."""
    if task.parent is not None:
        params = _handed_on(_stages(run, recipe.TASKS[task.parent], 1, seed))
    else:
        params = initial_parameters(recipe.TARGET, seed)
    heldout = run.encode(task, "validation")
    validation = batches_of(heldout, task)
    fits = [i for i, (s, t) in enumerate(heldout) if len(s) <= 128 and len(t) <= 64][:SCORED]
    texts = run.pairs(task, "validation")
    score = scorer(
        recipe.TARGET,
        run.vocabulary(),
        task.corpus,
        [heldout[i] for i in fits],
        [texts[i] for i in fits],
        room=task.room,
    )
    learnt: dict[str, tuple[list[distil.Example], Guide]] = {}
    for number, stage in enumerate(task.stages[:count], 1):
        if number > 1:
            params = _handed_on(params)
        corpus = stage.corpus or task.corpus
        if corpus not in learnt:
            of = dataclasses.replace(task, corpus=corpus)
            train = run.encode(of, "train")
            learnt[corpus] = train, run.guide(of, train, recipe.TARGET_GUIDED_LAYER)
        train, guide = learnt[corpus]
        own = _own_best(run, task, t5(params, recipe.TARGET), train, number, stage.draws, seed)
        params = fit(
            recipe.TARGET,
            params,
            Batches(
                [*own, *train], stage.tokens, seed=stage.recipe.seed + seed, shapes=stage.shapes
            ),
            dataclasses.replace(stage.recipe, seed=stage.recipe.seed + seed),
            run.folder / task.name / f"target_{number}",
            validation=validation,
            guide=guide,
            score=score,
            progress=run.progress,
        )
    return params


def _own_best(
    run: Run,
    task: recipe.Task,
    target: T5,
    train: list[distil.Example],
    number: int,
    draws: int,
    seed: int,
) -> list[distil.Example]:
    """Return the target's own best outputs that a stage learns from; made if missing."""
    if not draws:
        return []
    path = run.folder / task.name / f"best_{number}.json"
    if not path.is_file():
        found = best.own_best(
            target,
            _some(train, seed),
            run.vocabulary().decode,
            draws=draws,
            seed=seed,
            shapes=task.shapes,
            progress=run.progress,
        )
        write_text(path, json.dumps(found))
    return _read(path)


def _some(train: list[distil.Example], seed: int) -> list[distil.Example]:
    chosen = np.random.default_rng(seed).permutation(len(train))[: recipe.SOURCES]
    return [train[i] for i in sorted(chosen)]


def _read(path: Path) -> list[distil.Example]:
    return [(s, t) for s, t in json.loads(path.read_text(encoding="utf-8"))]


def _handed_on(params: Params) -> Params:
    """Round to bfloat16, the form in which weights are kept."""
    return jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), params)


def train_drafts(run: Run, task: recipe.Task, target: T5, *, seed: int = 0) -> dict[str, T5]:
    """Distil a task's drafts from its target.

    Args:
        run: where text and stages are.
        task: what for.
        target: token-major.
        seed: of everything drawn.

    Returns:
        Drafts by name.
    """
    train, heldout = (run.encode(task, split) for split in ("train", "validation"))
    learnt = own_texts(run, task, target, train, seed)
    validation = distil.target_outputs(target, heldout, shapes=task.shapes, progress=run.progress)
    seen = distil.states(target, learnt, shapes=task.shapes, progress=run.progress)
    readout = distil.readout(target)
    guide = run.guide(task, train, layer=0)
    found = {}
    for number, (name, config) in enumerate(recipe.DRAFTS.items(), 1):
        params = fit(
            config,
            start(name, config, target, seed + number),
            Batches(learnt, seed=seed + number, shapes=task.shapes, states=seen),
            dataclasses.replace(recipe.DRAFT_RECIPES[name], seed=seed + number),
            run.folder / task.name / name,
            validation=batches_of(validation, task),
            readout=readout,
            guide=guide,
            progress=run.progress,
        )
        found[name] = t5(params, config)
    return found


def start(name: str, config: T5Config, target: T5, seed: int) -> Params:
    """Return the parameters that a draft begins with: a part of its target's, or random ones."""
    if name in recipe.INHERITED:
        return inherited_parameters(target, config, layer=recipe.INHERITED[name])
    return initial_parameters(config, seed)


def batches_of(examples: list[distil.Example], task: recipe.Task) -> list[Batch]:
    """Return held-out examples in batches, each once."""
    batches = Batches(examples, tokens=4096, shapes=task.shapes)
    return [batches(step) for step in range(batches.per_epoch)]


def own_texts(
    run: Run, task: recipe.Task, target: T5, train: list[distil.Example], seed: int
) -> list[distil.Example]:
    """Return training sources with the target's outputs, greedy and drawn; made if missing."""
    return [
        example
        for number, temperature in enumerate((0.0, 1.0))
        for example in _kept_outputs(run, task, target, train, temperature, seed + number)
    ]


def _kept_outputs(
    run: Run,
    task: recipe.Task,
    target: T5,
    train: list[distil.Example],
    temperature: float,
    seed: int,
) -> list[distil.Example]:
    path = run.folder / task.name / ("samples.json" if temperature else "outputs.json")
    if not path.is_file():
        found = distil.target_outputs(
            target,
            _some(train, seed),
            temperature=temperature,
            seed=seed,
            shapes=task.shapes,
            progress=run.progress,
        )
        if not found:
            raise SpecdecError(
                "The target ended none of its outputs, so there is nothing to distil: "
                f"train it longer (see the logs in {run.folder / task.name})."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(found))
    return _read(path)
