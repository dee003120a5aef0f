"""The recipe of the shipped models: every number of it is in this file."""

from __future__ import annotations

import dataclasses

from specdec_jax.t5 import T5Config
from specdec_jax.training.examples import SHAPES, Shapes
from specdec_jax.training.fit import Recipe

VOCABULARY = 2048
"""Pieces, counted on both languages of the descriptions; one vocabulary serves both tasks."""

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
TARGET_GUIDED_LAYER = 2


def _draft(d: int, heads: int, mlp: int) -> T5Config:
    # One decoder layer: each further one costs latency. The encoder runs once for a text, so its
    # layers are cheap.
    return dataclasses.replace(
        TARGET,
        emb_dim=d,
        num_heads=heads,
        head_dim=d // heads,
        mlp_dim=mlp,
        num_decoder_layers=1,
        dropout_rate=0.0,
    )


DRAFTS = {
    "draft": _draft(64, heads=4, mlp=128),
    "draft_large": _draft(128, heads=4, mlp=384),
    "draft_small": _draft(16, heads=2, mlp=256),
}
"""1/10, 1/4 and 1/40 of the weights that a step of the target reads."""

INHERITED = {"draft_large": 3}
"""Drafts that begin as a part of their target, and the decoder layer of it that they get."""

DRAFT_RECIPES = {
    "draft": Recipe(steps=12000, rate=3e-3, warmup=200, hard=0.5, evaluate_every=1000),
    "draft_large": Recipe(steps=12000, rate=2e-3, warmup=200, hard=0.5, evaluate_every=1000),
    "draft_small": Recipe(steps=6000, rate=5e-3, warmup=200, hard=0.5, evaluate_every=500),
}
SOURCES = 30_000
"""Training sources that the target answers greedily, and as many, drawn anew, by sampling."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """One run of a target's training.

    Attributes:
        recipe: how long and how fast.
        tokens: padded tokens of a batch, source and target together.
        shapes: padded lengths of source and target.
        corpus: begins the names of the files that it learns from; None for the task's own.
        draws: more than 0 adds, to the references, the best of the target's own outputs for
            `SOURCES` of the sources: the greedy one and so many draws (see `best`).
    """

    recipe: Recipe
    tokens: int
    shapes: Shapes
    corpus: str | None = None
    draws: int = 0


@dataclasses.dataclass(frozen=True)
class Task:
    """What a pair is trained for.

    Attributes:
        name: begins the names of its models.
        corpus: begins the names of its files.
        stages: of the target, each from the average of the one before.
        parent: the task whose first stage the first one here starts from; None for random numbers.
        shapes: padded lengths of source and output for the drafts and for validation.
        longest: tokens that a source is cut to, if any.
        room: most tokens of an output when the models are scored.
    """

    name: str
    corpus: str
    stages: tuple[Stage, ...]
    parent: str | None
    shapes: Shapes
    longest: int | None
    room: int


SQUARE: Shapes = ((16, 16), (32, 32), (48, 48), (80, 80), (128, 128))
SUMMARIES: Shapes = ((64, 24), (96, 24), (144, 24), (208, 32))

TASKS = {
    "ende": Task(
        name="ende",
        corpus="descriptions_ende",
        stages=(
            Stage(Recipe(steps=7500, rate=2e-3, warmup=200, evaluate_every=500), 2048, SQUARE),
            Stage(Recipe(steps=12000, rate=1.5e-3, warmup=200, seed=1), 1280, SHAPES),
            # Words that the descriptions have too few of, from manuals, documents and interfaces;
            # then home again.
            Stage(
                Recipe(steps=10000, rate=1.5e-3, warmup=200, seed=2), 1280, SHAPES, "debian_ende"
            ),
            Stage(Recipe(steps=14000, rate=1e-3, warmup=200, seed=3), 1280, SHAPES),
            # And once more.
            Stage(Recipe(steps=8000, rate=1.2e-3, warmup=200, seed=4), 1280, SHAPES, "debian_ende"),
            Stage(Recipe(steps=14000, rate=1e-3, warmup=200, seed=5), 1280, SHAPES),
        ),
        parent=None,
        shapes=SHAPES,
        longest=None,
        room=192,
    ),
    # A summary is copied for the most part, and whoever has learnt to translate these texts knows
    # where to look: so the summarizer starts from the translator.
    "synopsis": Task(
        name="synopsis",
        corpus="debian_synopsis",
        stages=(
            Stage(Recipe(steps=9000, rate=1.5e-3, warmup=200, seed=1), 2048, SUMMARIES),
            Stage(Recipe(steps=14000, rate=1.2e-3, warmup=200, seed=2), 2048, SUMMARIES),
            # Fewer loops and a better score, at a worse likelihood of the references.
            Stage(Recipe(steps=4000, rate=6e-4, warmup=200, seed=3), 2048, SUMMARIES, draws=3),
        ),
        parent="ende",
        shapes=SUMMARIES,
        longest=208,
        room=48,
    ),
}
