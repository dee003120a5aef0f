"""From text to shipped folders: every stage of the recipe, with models that learn nothing."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from specdec_jax import checkpoints
from specdec_jax.t5 import t5
from specdec_jax.training import pair, recipe, ship, variants
from specdec_jax.training.examples import held
from specdec_jax.training.initial import initial_parameters

pytestmark = pytest.mark.usefixtures("fast_compilation")

DATA = Path(__file__).parents[1] / "data" / "ende_200.tsv"
TINY = dataclasses.replace(
    recipe.TARGET,
    vocab_size=400,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=16,
    num_encoder_layers=1,
    num_decoder_layers=1,
)
SHAPES = ((64, 64),)
COUNTS = {"train": 48, "validation": 6, "test": 6}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs of a few updates on short pairs; what the target would say is made up."""
    lines = sorted(DATA.read_text("utf-8").splitlines(), key=len)[:60]
    parts = {"train": lines[:-12], "validation": lines[-12:-6], "test": lines[-6:]}
    short = dataclasses.replace(recipe.DRAFT_RECIPES["draft"], steps=2, warmup=1, evaluate_every=1)
    first = recipe.Stage(dataclasses.replace(short, hard=0.0), 1024, SHAPES)
    second = recipe.Stage(
        dataclasses.replace(first.recipe, steps=3), 1024, SHAPES, "debian_ende", draws=2
    )
    tasks = {
        "ende": dataclasses.replace(
            recipe.TASKS["ende"], stages=(first, second), shapes=SHAPES, room=8
        ),
        "synopsis": dataclasses.replace(
            recipe.TASKS["synopsis"], stages=(first,), shapes=SHAPES, longest=40, room=8
        ),
    }
    for task in tasks.values():
        for split, part in parts.items():
            text = "\n".join(part) + "\n"
            (tmp_path / f"{task.corpus}.{split}.tsv").write_text(text, "utf-8")
    (tmp_path / "debian_ende.train.tsv").write_text("\n".join(lines[:20]) + "\n", "utf-8")
    monkeypatch.setattr(recipe, "TASKS", tasks)
    monkeypatch.setattr(recipe, "VOCABULARY", TINY.vocab_size)
    monkeypatch.setattr(recipe, "TARGET", TINY)
    monkeypatch.setattr(recipe, "TARGET_GUIDED_LAYER", 0)
    monkeypatch.setattr(recipe, "DRAFTS", {"draft": TINY})
    monkeypatch.setattr(recipe, "DRAFT_RECIPES", {"draft": dataclasses.replace(short, steps=4)})
    monkeypatch.setattr(recipe, "SOURCES", 32)
    monkeypatch.setattr(ship, "WIDTH", 64)
    monkeypatch.setattr(ship, "ROWS", 6)
    monkeypatch.setattr("specdec_jax.training.scores.ROWS", 6)
    asked = []

    def outputs(target, examples, *, temperature=0.0, **options):
        asked.append((len(examples), temperature))
        return examples

    monkeypatch.setattr(pair.distil, "target_outputs", outputs)
    return pair.Run(tmp_path, tmp_path / "run", progress=False), asked


def steps(folder):
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").open()]


@pytest.mark.slow
def test_a_pair_is_trained_and_shipped(run, tmp_path):
    run, asked = run
    out, task = tmp_path / "out", recipe.TASKS["ende"]
    target = pair.train_target(run, task, seed=3)
    drafts = pair.train_drafts(run, task, target, seed=3)
    # For the target's last stage, for the drafts, and for their validation.
    assert asked == [(20, 0.0), (20, 0.6), (20, 0.6), (32, 0.0), (32, 1.0), (6, 0.0)]
    folder = run.folder / "ende"
    assert len(json.loads((folder / "best_2.json").read_text())) == 20
    assert [steps(folder / name) for name in ("target_1", "target_2", "draft")] == [
        [1, 2],
        [1, 2, 3],
        [1, 2, 3, 4],
    ]
    assert "bleu" in json.loads((folder / "target_2" / "log.jsonl").read_text().splitlines()[0])

    facts = ship.ship(run, task, target, drafts, out)
    assert set(facts) == {"ende_target", "ende_draft"}
    for name, taken in (("ende_target", 5), ("ende_draft", 4)):
        loaded = checkpoints.load(str(out / name))
        assert loaded.model.config.describe() == TINY.describe()
        kept = json.loads((out / name / "config.json").read_text("utf-8"))["extra"]
        assert kept == facts[name]
        assert (kept["steps"], kept["train_pairs"], kept["test_pairs"]) == (taken, 48, 6)
        assert kept.get("wider_pairs") == ({"debian_ende": 20} if taken == 5 else None)
        card = (out / name / "README.md").read_text("utf-8")
        assert ("(`debian_ende`) | 20 |" in card) == (taken == 5)
        assert f"| steps | {taken} |" in card
        own = "with the best of its own outputs beside the references | 3 |"
        assert (own in card) == (taken == 5) == (kept.get("steps_with_own_outputs") == 3)
        assert (card.count("\n  - output: ") == 6) == (name == "ende_target")
    # The draft has the target's sizes, so it reads as many weights.
    assert facts["ende_draft"]["step_weights_over_target"] == 1.0
    assert 0 <= facts["ende_target"]["bleu"] <= 100

    curves = tmp_path / "curves"
    assert set(ship.keep_logs(run, task, curves)) == {"ende_target", "ende_draft"}
    kept = [json.loads(line) for line in (curves / "ende.jsonl").open()]
    assert [(entry["run"], entry["step"]) for entry in kept] == [
        *(("target_1", step) for step in (1, 2)),
        *(("target_2", step) for step in (1, 2, 3)),
        *(("draft", step) for step in (1, 2, 3, 4)),
    ]


def test_a_task_begins_with_the_first_stage_of_its_parent(run, monkeypatch):
    run, _ = run
    started = {}

    def fit(config, params, stream, settings, folder, **options):
        assert max(len(source) for source, _ in stream.examples) <= options.get("longest", 64)
        name = f"{folder.parent.name}/{folder.name}"
        started[name] = params
        return jax.tree.map(lambda x: x + 1.0, params)

    monkeypatch.setattr(pair, "fit", fit)
    pair.train_target(run, recipe.TASKS["synopsis"], seed=3)
    assert set(started) == {"ende/target_1", "synopsis/target_1"}
    first, second = (
        started[name]["token_embedder"]["embedding"]
        for name in ("ende/target_1", "synopsis/target_1")
    )
    # Handed on as it is kept: in bfloat16, whose 8 bits of 1.x are within 2**-8.
    np.testing.assert_allclose(second, first + 1.0, rtol=2.0**-8)
    assert np.all(np.asarray(second) == np.asarray(second.astype("bfloat16").astype("float32")))


def test_variants_differ_in_text_and_distance_alone(run, monkeypatch):
    run, asked = run
    made = {}

    def fit(config, params, stream, way, folder, *, validation, readout, progress):
        teacher = stream.states is not None, readout is not None
        made[folder.name] = (len(stream.examples), *teacher, way.divergence, way.hard, way.steps)
        assert len(validation) > 0
        return params

    monkeypatch.setattr(variants, "fit", fit)
    seen = np.zeros((1, 16), np.float16)
    monkeypatch.setattr(pair.distil, "states", lambda target, texts, **_: [seen] * len(texts))
    target = t5(initial_parameters(TINY, 0), TINY)
    task = recipe.TASKS["ende"]
    comparison = variants.Comparison(run, task, target, "draft", steps=8)
    for name in variants.VARIANTS:
        comparison.train(name)
    train = run.encode(task, "train")
    references = len(held(train, SHAPES))
    own = len(held(pair.own_texts(run, task, target, train, 0), SHAPES))
    assert 0 < references != own > 0
    plain = (False, False, "forward_kl", 0.5, 8)
    assert made["fine_tuned"] == (len(train), *plain)
    assert made["word_level"][1:] == plain
    assert made["references_forward_kl"] == (references, True, True, "forward_kl", 0.5, 8)
    for name in ("forward_kl", "reverse_kl", "jensen_shannon", "total_variation"):
        assert made[name] == (own, True, True, name, 0.5, 8)
    # Half of the updates on the target's texts, half on what the draft says.
    assert made["on_policy_1"] == (own, True, True, "forward_kl", 0.5, 4)
    assert made["on_policy"] == (references, True, True, "forward_kl", 0.0, 4)
    # The target was asked for greedy outputs and for samples once, the draft for samples.
    assert [temperature for _, temperature in asked] == [0.0, 1.0, 1.0]
