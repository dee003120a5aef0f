"""Drafts that are trained alike but for one thing: what they learn from, or by which distance.

All begin as the same part of the target and make the same number of updates on batches of the same
size, so what they differ in is what is compared.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specdec_jax.t5 import T5, T5Config, t5
from specdec_jax.training import distil, pair, recipe
from specdec_jax.training.examples import Batches, held
from specdec_jax.training.fit import Params, fit
from specdec_jax.training.objectives import Divergence


class Variant(NamedTuple):
    """One way to train a draft.

    Attributes:
        text: what stands behind the sources: the references, the target's own outputs (greedy and
            drawn), or what the draft itself says half-way (on policy).
        divergence: from the target, beside half the cross-entropy; None is cross-entropy alone.
    """

    text: str
    divergence: Divergence | None


REFERENCES, TARGET, DRAFT = "references", "target", "draft"
VARIANTS = {
    "fine_tuned": Variant(REFERENCES, None),
    "references_forward_kl": Variant(REFERENCES, "forward_kl"),
    "word_level": Variant(TARGET, None),
    "forward_kl": Variant(TARGET, "forward_kl"),
    "reverse_kl": Variant(TARGET, "reverse_kl"),
    "jensen_shannon": Variant(TARGET, "jensen_shannon"),
    "total_variation": Variant(TARGET, "total_variation"),
    "on_policy": Variant(DRAFT, "forward_kl"),
}
SHARED = 12_000
"""Sources whose texts the draft says itself."""


class Texts(NamedTuple):
    """What a draft learns from."""

    examples: list[distil.Example]
    states: list[np.ndarray] | None
    """The target's, [N, D] of each; None where it teaches nothing."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What all variants share.

    Attributes:
        run: where text and stages are; the target's outputs are taken from there, or made.
        task: what for.
        target: token-major.
        draft: a name in `recipe.DRAFTS`.
        steps: of each variant.
        seed: of everything drawn.
    """

    run: pair.Run
    task: recipe.Task
    target: T5
    draft: str
    steps: int
    seed: int = 0

    @property
    def config(self) -> T5Config:
        """The draft's sizes."""
        return recipe.DRAFTS[self.draft]

    def train(self, name: str) -> T5:
        """Train one variant, resuming where an earlier run was stopped."""
        variant = VARIANTS[name]
        start = pair.start(self.draft, self.config, self.target, self.seed)
        if variant.text != DRAFT:
            return t5(self._fit(name, variant, start, self._texts(variant)), self.config)
        half = dataclasses.replace(self, steps=self.steps // 2)
        taught = Variant(TARGET, "forward_kl")
        first = half._fit(f"{name}_1", taught, start, self._texts(taught))
        said = distil.target_outputs(
            t5(first, self.config),
            self.run.encode(self.task, "train")[:SHARED],
            temperature=1.0,
            seed=self.seed,
            shapes=self.task.shapes,
            progress=self.run.progress,
        )
        # Without the draft's own words as labels: they are not what it should say.
        second = dataclasses.replace(half, seed=self.seed + 1)
        return t5(second._fit(name, variant, first, self._heard(said), hard=0.0), self.config)

    def _texts(self, variant: Variant) -> Texts:
        """Return what a variant learns from, with the target's states where it is a teacher."""
        if variant.text == TARGET and variant.divergence is not None:
            return self._heard_outputs
        train = self.run.encode(self.task, "train")
        if variant.text == TARGET:
            train = pair.own_texts(self.run, self.task, self.target, train, self.seed)
        return Texts(train, None) if variant.divergence is None else self._heard(train)

    @functools.cached_property
    def _heard_outputs(self) -> Texts:
        # Several variants learn from them, and their states take as long as a training.
        train = self.run.encode(self.task, "train")
        return self._heard(pair.own_texts(self.run, self.task, self.target, train, self.seed))

    def _heard(self, texts: list[distil.Example]) -> Texts:
        shapes = self.task.shapes
        kept = held(texts, shapes)
        seen = distil.states(self.target, kept, shapes=shapes, progress=self.run.progress)
        return Texts(kept, seen)

    def _fit(
        self, name: str, variant: Variant, start: Params, texts: Texts, hard: float = 0.5
    ) -> Params:
        shapes = self.task.shapes
        given = recipe.DRAFT_RECIPES[self.draft]
        way = dataclasses.replace(
            given,
            steps=self.steps,
            warmup=min(given.warmup, self.steps // 4),
            evaluate_every=self.steps,
            seed=self.seed,
            # A short run's average must not be of its beginning.
            average=0.99,
        )
        if variant.divergence is not None:
            way = dataclasses.replace(way, divergence=variant.divergence, hard=hard)
        heldout = held(self.run.encode(self.task, "validation"), shapes)
        return fit(
            self.config,
            start,
            Batches(texts.examples, seed=self.seed, shapes=shapes, states=texts.states),
            way,
            self.folder / name,
            validation=pair.batches_of(heldout, self.task),
            readout=None if texts.states is None else distil.readout(self.target),
            progress=self.run.progress,
        )

    @property
    def folder(self) -> Path:
        """Where the variants' checkpoints and logs are."""
        return self.run.folder / self.task.name / f"variants_{self.draft}_{self.steps}"
