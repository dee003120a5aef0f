"""From trained parameters to shipped folders: scores, and model cards that tell the truth."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specdec_jax.checkpoints import bundle
from specdec_jax.decoding import Options, speculative
from specdec_jax.drafts import ModelDraft
from specdec_jax.files import write_text
from specdec_jax.t5 import T5, T5Config
from specdec_jax.text import Vocabulary
from specdec_jax.training import recipe
from specdec_jax.training.batched import decoded
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
    sources = [source for source, _ in examples]
    batches = decoded(
        functools.partial(speculative, target, ModelDraft(draft)),
        sources,
        [limit(source[:WIDTH], room) for source in sources],
        Options(max_tokens=room, gamma=1, eos_id=vocabulary.eos_id),
        order=np.argsort([len(t) for _, t in examples], kind="stable"),
        rows=ROWS,
        width=WIDTH,
        key=jax.random.key(0),
        temperature=temperature,
    )
    for part, found in batches:
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
    pairs, train_pairs = run.pairs(task, "test"), len(run.pairs(task, "train"))
    references = [reference for _, reference in pairs]
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
            **_facts(run, task, name, draft.config, recipe.DRAFT_RECIPES[name].steps),
            "train_pairs": train_pairs,
            "step_weights_over_target": round(
                draft.config.decoder_step_weights / target.config.decoder_step_weights, 3
            ),
            "alpha_temperature_0": alphas[1],
            "alpha_temperature_1": alphas[0],
            "test_pairs": len(examples),
        }
    steps = sum(stage.recipe.steps for stage in task.stages)
    wider = {stage.corpus for stage in task.stages if stage.corpus}
    own = sum(stage.recipe.steps for stage in task.stages if stage.draws)
    counts = {c: len(run.pairs(dataclasses.replace(task, corpus=c), "train")) for c in wider}
    facts[f"{task.name}_target"] = {
        **_facts(run, task, "target", target.config, steps),
        "train_pairs": train_pairs,
        **({"wider_pairs": counts} if counts else {}),
        **({"steps_with_own_outputs": own} if own else {}),
        **score(task.corpus, greedy, references),
        "test_pairs": len(examples),
    }
    shown = np.random.default_rng(0).choice(len(examples), min(SHOWN, len(examples)), replace=False)
    samples = [(*pairs[i], greedy[i]) for i in shown]
    for name, model in {"target": target, **drafts}.items():
        name = f"{task.name}_{name}"
        bundle.save(
            out / name, model, dtype="bfloat16", vocabulary=vocabulary.path, extra=facts[name]
        )
        write_text(out / name / "README.md", card(task, name, model, facts[name], samples))
    return facts


def _facts(run: Run, task: recipe.Task, name: str, config: T5Config, steps: int) -> dict[str, Any]:
    entries = [entry for path in _log_paths(run, task, name) for entry in read_log(path)]
    return {
        "task": task.corpus,
        "steps": steps,
        "tokens": sum(entry["tokens"] for entry in entries),
        "hours": round(sum(entry["seconds"] for entry in entries) / 3600, 2),
        "validation_nll": round(entries[-1]["nll"], 3),
        "decoder_step_weights": config.decoder_step_weights,
    }


def _log_paths(run: Run, task: recipe.Task, name: str) -> list[Path]:
    """Return the logs of a model, ``target`` or a draft: of each of its runs, in order."""
    stages = [f"target_{number}" for number in range(1, len(task.stages) + 1)]
    runs = stages if name == "target" else [name]
    return [run.folder / task.name / part / "log.jsonl" for part in runs]


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
    logs: dict[str, list[dict[str, Any]]] = {}
    for name in ("target", *recipe.DRAFTS):
        found = [
            {"run": path.parent.name, **entry}
            for path in _log_paths(run, task, name)
            if path.is_file()
            for entry in read_log(path)
        ]
        if found:
            logs[f"{task.name}_{name}"] = found
    lines = [json.dumps(entry) for log in logs.values() for entry in log]
    write_text(folder / f"{task.name}.jsonl", "\n".join(lines) + "\n")
    return logs
