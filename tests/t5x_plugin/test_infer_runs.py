"""Whole runs of `python -m t5x.infer` and `t5x.eval` with the gin files of this repository."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from specdec_jax.checkpoints.convert import convert
from specdec_jax.t5x_plugin import compare

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "gin_configs/runs"
LENGTHS = "{'inputs': 64, 'targets': 32}"
TWO_DECODES = """
from __gin__ import dynamic_registration
from t5x import models as t5x_models
t5x_models.DecoderParams:
  num_decodes = 2
  return_all_decodes = True
"""
SAMPLED = ["TEMPERATURE=0.7", "TOPK=20"]

pytestmark = pytest.mark.slow


def forked(folder, runs, **environment):
    """Run them all; each is a name, a module, and its arguments."""
    entries = []
    for name, module, arguments in runs:
        (folder / name).mkdir()
        log = str(folder / name / "log")
        entries.append({"module": module, "arguments": arguments, "log": log})
    listed = folder / "runs.json"
    listed.write_text(json.dumps(entries))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("forked_infer.py")), str(listed)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPECDEC_DATA": str(folder), **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(
        zip([name for name, *_ in runs], json.loads(done.stdout.splitlines()[-1]), strict=True)
    )


def infer(folder, name, files, target, *, draft=None, extra=()):
    bindings = [
        "MIXTURE_OR_TASK_NAME='specdec_debian_ende'",
        f"TASK_FEATURE_LENGTHS={LENGTHS}",
        f"INFER_OUTPUT_DIR='{folder / name}'",
        f"CHECKPOINT_PATH='{target}'",
        "DTYPE='float32'",
        "BATCH_SIZE=8",
        "write_inferences_to_file.output_ids=True",
        *([f"DRAFT_CHECKPOINT_PATH='{draft}'"] if draft else []),
        *extra,
    ]
    arguments = [f"--gin_search_paths={ROOT}", *(f"--gin_file={file}" for file in files)]
    return name, "t5x.infer", [*arguments, *(f"--gin.{binding}" for binding in bindings)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    lines = (ROOT / "tests/data/ende_200.tsv").read_text(encoding="utf-8").splitlines()
    (folder / "debian_ende.test.tsv").write_text("\n".join(lines[:20]) + "\n", encoding="utf-8")
    for role in ("target", "draft"):
        for form in ("t5x", "orbax"):
            convert(
                f"ende_{role}", folder / form / role / "checkpoint_7", format=form, dtype="float32"
            )
    (folder / "two.gin").write_text(TWO_DECODES)
    return folder


def test_infer_and_eval_with_the_shipped_pair(folder):
    plain = [RUNS / "infer_baseline.gin", "gin_configs/targets/ende.gin"]
    draft = "gin_configs/drafts/ende.gin"
    ours = [RUNS / "infer_speculative.gin", "gin_configs/targets/ende.gin", draft]
    legacy, orbax = (
        {role: folder / form / role / "checkpoint_7" for role in ("target", "draft")}
        for form in ("t5x", "orbax")
    )
    two = ["default_decoder_params=@t5x_models.DecoderParams()"]
    evaluation = [
        f"--gin_search_paths={ROOT}",
        *(f"--gin_file={f}" for f in (RUNS / "eval_speculative.gin", *ours[1:])),
        "--gin.MIXTURE_OR_TASK_NAME='specdec_debian_ende'",
        f"--gin.TASK_FEATURE_LENGTHS={LENGTHS}",
        f"--gin.EVAL_OUTPUT_DIR='{folder / 'eval'}'",
        f"--gin.CHECKPOINT_PATH='{legacy['target']}'",
        f"--gin.DRAFT_CHECKPOINT_PATH='{legacy['draft']}'",
        "--gin.DTYPE='float32'",
        "--gin.BATCH_SIZE=8",
    ]
    statuses = forked(
        folder,
        [
            infer(folder, "plain", plain, legacy["target"]),
            infer(folder, "greedy", ours, orbax["target"], draft=legacy["draft"]),
            infer(
                folder,
                "plain_two",
                [*plain, folder / "two.gin"],
                legacy["target"],
                extra=[*SAMPLED, *(f"t5x_models.EncoderDecoderModel.{b}" for b in two)],
            ),
            infer(
                folder,
                "coupled_two",
                [*ours, folder / "two.gin"],
                legacy["target"],
                draft=legacy["draft"],
                extra=[
                    *SAMPLED,
                    "RULE='coupled'",
                    *(f"models.SpeculativeEncoderDecoderModel.{b}" for b in two),
                ],
            ),
            infer(folder, "no_draft", ours, legacy["target"], draft=folder / "absent"),
            ("eval", "t5x.eval", evaluation),
        ],
    )
    log = (folder / "no_draft/log").read_text()
    assert statuses.pop("no_draft") == 1
    assert "There is no draft checkpoint at" in log
    logs = {name: (folder / name / "log").read_text()[-2000:] for name in statuses}
    assert set(statuses.values()) == {0}, logs
    for first, second in (("plain", "greedy"), ("plain_two", "coupled_two")):
        found = compare.compare(folder / first, folder / second)
        assert found["identical"] == found["rows"] == 20
        assert found["tokens_per_run"] > 1.5
    example = compare.rows(folder / "greedy")[0]
    assert set(example["aux"]) == {
        "scores",
        "target_runs",
        "drafted",
        "accepted",
        "mean_accepted_length",
    }
    assert np.shape(compare.rows(folder / "coupled_two")[0]["aux"]["accepted"]) == (2,)
    metrics = list((folder / "eval").rglob("*metrics.jsonl"))
    assert metrics, logs["eval"]
    assert json.loads(metrics[0].read_text().splitlines()[-1])["bleu"] >= 0
