"""From trained parameters to shipped folders: scores, and model cards that tell the truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specdec_jax.checkpoints import bundle
from specdec_jax.decoding import Decoded, Options, request, speculative
from specdec_jax.drafts import ModelDraft
from specdec_jax.files import write_text
from specdec_jax.sampling import sampling
from specdec_jax.t5 import T5, T5Config
from specdec_jax.text import Vocabulary
from specdec_jax.training import recipe
from specdec_jax.training.cards import card
from specdec_jax.training.distil import Example
from specdec_jax.training.pair import Run
from specdec_jax.training.scores import limit, score

ROWS, WIDTH = 64, 256
SHOWN = 20


def decode(
    target: T5,
    draft: T5,
    vocabulary: Vocabulary,
    examples: Sequence[Example],
    *,
    room: int,
    temperature: float,
) -> tuple[list[str], float]:
    """Decode sources speculatively.

    Returns:
        The outputs, and the acceptance rate (accepted / tested guesses, gamma = 1, so every guess
        has a prefix that the target wrote).
    """
    outputs, accepted, tested = [""] * len(examples), 0, 0
    options = Options(max_tokens=room, gamma=1, eos_id=vocabulary.eos_id)
    order = np.argsort([len(t) for _, t in examples], kind="stable")
    for start in range(0, len(order), ROWS):
        part = order[start : start + ROWS]
        source = np.zeros((ROWS, WIDTH), np.int32)
        limits = np.zeros(ROWS, np.int32)
        for row, i in enumerate(part):
            ids, _ = examples[i]
            ids = ids if len(ids) <= WIDTH else [*ids[: WIDTH - 1], vocabulary.eos_id]
            source[row, : len(ids)] = ids
            limits[row] = limit(ids, room)
        asked = request(
            ROWS,
            key=jax.random.fold_in(jax.random.key(0), start),
            max_tokens=room,
            limits=limits,
            settings=sampling(ROWS, temperature=temperature),
        )
        found: Decoded = jax.device_get(
            speculative(target, ModelDraft(draft), source, asked, options)
        )
        accepted += int(found.counters.accepted.sum())
        tested += int(found.counters.tested.sum())
        for row, i in enumerate(part):
            outputs[i] = vocabulary.decode(found.tokens[row, : found.lengths[row]])
    return outputs, accepted / max(1, tested)


def ship(
    run: Run, task: recipe.Task, target: T5, drafts: dict[str, T5], out: Path
) -> dict[str, dict[str, Any]]:
    """Score a target and its drafts on the test split, and write a folder for each under `out`.

    Returns:
        Each model's facts, by its name.
    """
    vocabulary, examples = run.vocabulary(), run.encode(task, "test")
    references = [reference for _, reference in run.pairs(task, "test")]
    facts: dict[str, dict[str, Any]] = {}
    greedy: list[str] = []
    for name, draft in drafts.items():
        alphas = []
        for temperature in (1.0, 0.0):
            greedy, alpha = decode(
                target, draft, vocabulary, examples, room=task.room, temperature=temperature
            )
            alphas.append(round(alpha, 3))
        facts[f"{task.name}_{name}"] = {
            **_facts(run, task, draft.config, [name], [recipe.DRAFT_RECIPES[name].steps]),
            "step_weights_over_target": round(
                draft.config.decoder_step_weights / target.config.decoder_step_weights, 3
            ),
            "alpha_temperature_0": alphas[1],
            "alpha_temperature_1": alphas[0],
            "test_pairs": len(examples),
        }
    stages = [f"target_{i}" for i in range(1, len(task.stages) + 1)]
    facts[f"{task.name}_target"] = {
        **_facts(run, task, target.config, stages, [s.recipe.steps for s in task.stages]),
        **score(task.corpus, greedy, references),
        "test_pairs": len(examples),
    }
    shown = np.random.default_rng(0).choice(len(examples), min(SHOWN, len(examples)), replace=False)
    sources = [source for source, _ in run.pairs(task, "test")]
    samples = [(sources[i], references[i], greedy[i]) for i in shown]
    for name, model in {"target": target, **drafts}.items():
        name = f"{task.name}_{name}"
        bundle.save(
            out / name, model, dtype="bfloat16", vocabulary=vocabulary.path, extra=facts[name]
        )
        write_text(out / name / "README.md", card(task, name, model, facts[name], samples))
    return facts


def _facts(
    run: Run, task: recipe.Task, config: T5Config, folders: list[str], steps: list[int]
) -> dict[str, Any]:
    logs = [read_log(run.folder / task.name / folder / "log.jsonl") for folder in folders]
    entries = [entry for log in logs for entry in log]
    return {
        "task": task.corpus,
        "train_pairs": len(run.pairs(task, "train")),
        "steps": sum(steps),
        "tokens": sum(entry["tokens"] for entry in entries),
        "hours": round(sum(entry["seconds"] for entry in entries) / 3600, 2),
        "validation_nll": round(entries[-1]["nll"], 3),
        "decoder_step_weights": config.decoder_step_weights,
    }


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read a run's log; where a step was evaluated twice, after a resumption, the last counts."""
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return list({entry["step"]: entry for entry in entries}.values())


def keep_logs(run: Run, task: recipe.Task, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Write the logs of a task's runs, those found in `run`'s folder, as TASK.jsonl.

    Returns:
        The entries by model, runs that follow each other joined.
    """
    folder.mkdir(parents=True, exist_ok=True)
    runs = {"target": [f"target_{i}" for i in range(1, len(task.stages) + 1)]}
    runs |= {name: [name] for name in recipe.DRAFTS}
    logs: dict[str, list[dict[str, Any]]] = {}
    for name, folders in runs.items():
        paths = [run.folder / task.name / part / "log.jsonl" for part in folders]
        found = [
            {"run": path.parent.name, **entry}
            for path in paths
            if path.is_file()
            for entry in read_log(path)
        ]
        if found:
            logs[f"{task.name}_{name}"] = found
    lines = [json.dumps(entry) for log in logs.values() for entry in log]
    write_text(folder / f"{task.name}.jsonl", "\n".join(lines) + "\n")
    return logs
