"""From trained parameters to shipped folders: scores, and a model card that tells the truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import sacrebleu

from specdec_jax.checkpoints import bundle
from specdec_jax.decoding import Decoded, Options, request, speculative
from specdec_jax.drafts import ModelDraft
from specdec_jax.files import write_text
from specdec_jax.sampling import sampling
from specdec_jax.t5 import T5
from specdec_jax.text import Vocabulary, encode_batch, prefix
from specdec_jax.training.pair import DRAFT_RECIPE, TARGET_RECIPE, Run

ROWS, ROOM, WIDTH = 64, 160, 256


def translate(
    target: T5, draft: T5, vocabulary: Vocabulary, lines: Sequence[str], *, temperature: float
) -> tuple[list[str], float]:
    """Decode lines speculatively.

    Returns:
        The outputs, and the acceptance rate (accepted / tested guesses, gamma = 1, so every guess
        has a prefix that the target wrote).
    """
    outputs, accepted, tested = [], 0, 0
    options = Options(max_tokens=ROOM, gamma=1, eos_id=vocabulary.eos_id)
    for start in range(0, len(lines), ROWS):
        part = list(lines[start : start + ROWS])
        source = encode_batch(
            vocabulary, part + [""] * (ROWS - len(part)), buckets=(WIDTH,), truncate=True
        )[0]
        asked = request(
            ROWS,
            key=jax.random.fold_in(jax.random.key(0), start),
            max_tokens=ROOM,
            limits=np.where(np.arange(ROWS) < len(part), ROOM, 0),
            settings=sampling(ROWS, temperature=temperature),
        )
        found: Decoded = jax.device_get(
            speculative(target, ModelDraft(draft), source, asked, options)
        )
        accepted += int(found.counters.accepted.sum())
        tested += int(found.counters.tested.sum())
        outputs += [vocabulary.decode(row) for row in found.tokens[: len(part)]]
    return outputs, accepted / max(1, tested)


def ship(run: Run, trained: tuple[T5, T5, Path], out: Path) -> dict[str, Any]:
    """Score the pair on the test split and write `ende_target` and `ende_draft` under `out`."""
    target, draft, path = trained
    vocabulary = Vocabulary(path)
    pairs = run.pairs("test")
    lines = [prefix(run.task) + source for source, _ in pairs]
    references = [reference for _, reference in pairs]
    greedy, alpha_0 = translate(target, draft, vocabulary, lines, temperature=0.0)
    _, alpha_1 = translate(target, draft, vocabulary, lines, temperature=1.0)
    scores = {
        "bleu": round(sacrebleu.corpus_bleu(greedy, [references]).score, 2),
        "chrf": round(sacrebleu.corpus_chrf(greedy, [references]).score, 2),
        "alpha_temperature_0": round(alpha_0, 3),
        "alpha_temperature_1": round(alpha_1, 3),
        "test_pairs": len(pairs),
    }
    shown = np.random.default_rng(0).choice(len(pairs), min(20, len(pairs)), replace=False)
    for name, model, recipe in (
        ("ende_target", target, TARGET_RECIPE),
        ("ende_draft", draft, DRAFT_RECIPE),
    ):
        log = _log(run.folder / name.removeprefix("ende_") / "log.jsonl")
        facts = {
            "task": run.task,
            "train_pairs": len(run.pairs("train")),
            "steps": recipe.steps,
            "tokens": sum(entry["tokens"] for entry in log),
            "hours": round(sum(entry["seconds"] for entry in log) / 3600, 2),
            "validation_nll": round(log[-1]["nll"], 3),
            "decoder_step_weights": model.config.decoder_step_weights,
            **scores,
        }
        folder = out / name
        bundle.save(folder, model, dtype="bfloat16", vocabulary=path, extra=facts)
        samples = [(pairs[i][0], references[i], greedy[i]) for i in shown]
        write_text(folder / "README.md", card(name, model, facts, samples))
    return scores


def _log(path: Path) -> list[dict[str, Any]]:
    """Read a run's log; where a step was evaluated twice, after a resumption, the last counts."""
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return list({entry["step"]: entry for entry in entries}.values())


def card(
    name: str, model: T5, facts: dict[str, Any], samples: Sequence[tuple[str, str, str]]
) -> str:
    """Return the model card."""
    role = "target" if name.endswith("target") else "draft"
    parameters = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    lines = [
        f"# {name}",
        "",
        f"The {role} of the shipped English-German pair: a T5 of {model.config.describe()}, "
        f"{parameters / 1e6:.2f}M parameters, bfloat16, trained from scratch on two CPU cores.",
        "",
        "It knows one domain, the descriptions of Debian packages, and a small model's share of "
        "that. It exists so that speculative decoding can be tried, tested and measured on real "
        "text without downloading anything; it is no translator for other text.",
        "",
        "| fact | value |",
        "|---|---|",
        f"| training pairs | {facts['train_pairs']} (`{facts['task']}`, split by source package) |",
        f"| tokens seen, source and target | {facts['tokens'] / 1e6:.1f}M |",
        f"| steps | {facts['steps']} |",
        f"| hours, two shared cores | {facts['hours']} |",
        f"| validation loss, nats per token | {facts['validation_nll']}"
        + (" |" if role == "target" else " (on the target's own outputs) |"),
        f"| weights read by a decoder step | {facts['decoder_step_weights']} |",
        f"| BLEU / chrF of the target, test split, greedy | {facts['bleu']} / {facts['chrf']} "
        f"({facts['test_pairs']} pairs, sacrebleu) |",
        f"| alpha, temperature 0 / 1 | {facts['alpha_temperature_0']} / "
        f"{facts['alpha_temperature_1']} (accepted guesses on the target's own prefixes) |",
        "",
        "Made by `specdec train`; the recipe is `specdec_jax/training/pair.py`. The draft is "
        "distilled from the target (forward KL, plus half the cross-entropy) on the target's own "
        "greedy outputs.",
        "",
        "Data: descriptions of Debian packages and their German translations by the Debian "
        "description translation project. The texts are under the terms of their packages, mostly "
        "GPL-2+ and GPL-3+; the weights are offered under this project's licence.",
    ]
    if role == "target":
        lines += ["", "## Twenty random test sentences, good and bad", ""]
        for source, reference, output in samples:
            lines += [f"- {source}", f"  - reference: {reference}", f"  - output: {output}"]
    return "\n".join(lines) + "\n"
