"""From text to shipped folders: every stage of the recipe, with models that learn nothing."""

import dataclasses
import json
from pathlib import Path

import pytest

from specdec_jax import checkpoints
from specdec_jax.training import pair, ship

DATA = Path(__file__).parents[1] / "data" / "ende_200.tsv"
TINY = dataclasses.replace(
    pair.TARGET,
    vocab_size=400,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=16,
    num_encoder_layers=1,
    num_decoder_layers=1,
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs of a few updates on short pairs; what the target would say is made up."""
    # The shortest fill few buckets, and each bucket is a compilation.
    lines = sorted(DATA.read_text("utf-8").splitlines(), key=len)[:60]
    parts = {"train": lines[:-12], "validation": lines[-12:-6], "test": lines[-6:]}
    for split, part in parts.items():
        (tmp_path / f"descriptions_ende.{split}.tsv").write_text("\n".join(part) + "\n", "utf-8")
    recipe = dataclasses.replace(pair.TARGET_RECIPE, steps=2, warmup=1, evaluate_every=1)
    monkeypatch.setattr(pair, "VOCABULARY", TINY.vocab_size)
    monkeypatch.setattr(pair, "TARGET", TINY)
    monkeypatch.setattr(pair, "DRAFT", TINY)
    for module in (pair, ship):
        monkeypatch.setattr(module, "TARGET_RECIPE", recipe)
        monkeypatch.setattr(module, "DRAFT_RECIPE", dataclasses.replace(recipe, steps=3))
    monkeypatch.setattr(pair, "GUIDED_LAYER", {"target": 0, "draft": 0})
    asked = []

    def outputs(target, examples, **options):
        asked.append(len(examples))
        return examples

    monkeypatch.setattr(pair.distil, "target_outputs", outputs)
    return pair.Run(tmp_path, tmp_path / "run", progress=False), asked, len(parts["train"])


@pytest.mark.slow
def test_a_pair_is_trained_and_shipped(run, tmp_path):
    run, asked, count = run
    trained = pair.train_pair(run, seed=3)
    assert asked == [count, 6]
    steps = {
        folder: [json.loads(line)["step"] for line in (path / "log.jsonl").open()]
        for folder in ("target", "draft")
        if (path := run.folder / folder)
    }
    assert steps == {"target": [1, 2], "draft": [1, 2, 3]}

    scores = ship.ship(run, trained, tmp_path / "out")
    assert scores["test_pairs"] == 6
    for name, taken in (("ende_target", 2), ("ende_draft", 3)):
        folder = tmp_path / "out" / name
        loaded = checkpoints.load(str(folder))
        assert loaded.model.config.describe() == TINY.describe()
        facts = json.loads((folder / "config.json").read_text("utf-8"))["extra"]
        assert (facts["steps"], facts["train_pairs"], facts["bleu"]) == (
            *(taken, count),
            scores["bleu"],
        )
        card = (folder / "README.md").read_text("utf-8")
        assert f"| steps | {taken} |" in card
        assert (card.count("\n  - output: ") == 6) == (name == "ende_target")
