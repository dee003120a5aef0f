"""Whole runs of `python -m t5x.infer` and `t5x.eval` with the gin files of this repository.

The demonstration runs on the shipped pair, by the very commands of its script. The other runs are
of tiny models: a target of 8 heads, which 8 devices can share, and a draft of 6, which they cannot.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jobs
import numpy as np
import pytest
import tiny

from specdec_jax import checkpoints
from specdec_jax.checkpoints import convert
from specdec_jax.checkpoints.bundle import save
from specdec_jax.t5.expand import expand
from specdec_jax.t5.model import t5
from specdec_jax.t5x_plugin import compare

ROOT = Path(__file__).parents[2]
ROWS = 12
LENGTHS = "TASK_FEATURE_LENGTHS={'inputs': 48, 'targets': 24}"
CONFIG = dataclasses.replace(tiny.CONFIG, vocab_size=2048)
HEADS = {"target": 8, "draft": 6}
SAMPLED = ["TEMPERATURE=0.7", "TOPK=20", "NUM_DECODES=2", "RETURN_ALL_DECODES=True"]
# Data times model axis; on a CPU, T5X reads it from the submesh alone.
MESHES = [(1, 8), (4, 2)]
HOSTS = 2
CHUNKS = ["BATCH_SIZE=4", "infer.checkpoint_period=1"]
# Stands in for Python where the demonstration calls it: writes the command down.
RECORDER = """#!{python}
import json, sys
with open({log!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
"""

# In one worker, which imports T5X and builds the runs' models once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("infer_runs")]


def tiny_gin():
    """The gin files of the shipped pair, with the sizes of the tiny one."""
    lines = [
        "from __gin__ import dynamic_registration",
        "from specdec_jax.t5x_plugin import network",
        "include 'gin_configs/targets/ende.gin'",
        "include 'gin_configs/drafts/ende.gin'",
    ]
    for role, scope in (("target", ""), ("draft", "draft/")):
        sizes = dataclasses.asdict(dataclasses.replace(CONFIG, num_heads=HEADS[role]))
        names = ("emb_dim", "num_heads", "head_dim", "mlp_dim", "num_encoder_layers")
        names += ("num_decoder_layers", "logits_via_embedding")
        lines += [f"{scope}network.T5Config.{name} = {sizes[name]}" for name in names]
    return "\n".join(lines) + "\n"


def write_models(folder):
    """Write the tiny pair in both of T5X's formats; the draft is a noisy copy of the target."""
    params = tiny.params(CONFIG)
    for role, tree in (("target", params), ("draft", tiny.noisy(params, noise=0.03))):
        grown = expand(t5(tree, CONFIG), dataclasses.replace(CONFIG, num_heads=HEADS[role]))
        save(folder / role, grown, dtype="float32")
        for form in ("t5x", "orbax"):
            convert.convert(folder / role, folder / form / role / "checkpoint_7", format=form)


def demo_commands(folder):
    """Run the demonstration's script with an interpreter that writes its calls down."""
    log = folder / "calls"
    recorder = folder / "python"
    recorder.write_text(RECORDER.format(python=sys.executable, log=str(log)))
    recorder.chmod(0o755)
    out = folder / "demo"
    command = [ROOT / "scripts/t5x_infer_demo.sh", "--limit", str(ROWS), "--out", out]
    command += ["--json", folder / "demo.json", "--", f"--gin.{LENGTHS}"]
    subprocess.run(command, env={**os.environ, "PYTHON": str(recorder)}, check=True)
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    modules = [call[1] for call in calls]
    assert modules == ["specdec_jax"] * 2 + ["t5x.infer"] * 2 + ["specdec_jax.t5x_plugin.compare"]
    for _, _, verb, source, destination, *flags in calls[:2]:
        assert (verb, flags) == ("convert", ["--format", "t5x", "--dtype", "float32"])
        convert.convert(source, destination, format="t5x", dtype="float32")
    runs = {
        name: {"module": call[1], "arguments": call[2:], "log": str(out / name / "log")}
        for name, call in zip(("infer_baseline", "infer_speculative"), calls[2:4], strict=True)
    }
    return runs, calls[4][2:]


def tiny_run(folder, name, run, *extra, target="t5x", draft="t5x", devices=1, module="infer"):
    """One run with a gin file of this repository; returns its entry for forked_infer."""
    (folder / name).mkdir(exist_ok=True)
    bindings = [
        "MIXTURE_OR_TASK_NAME='specdec_debian_ende'",
        LENGTHS,
        f"{module.upper()}_OUTPUT_DIR='{folder / name}'",
        f"CHECKPOINT_PATH='{folder / target / 'target/checkpoint_7'}'",
        f"DRAFT_CHECKPOINT_PATH='{folder / draft / 'draft/checkpoint_7'}'",
        "DTYPE='float32'",
        "BATCH_SIZE=8",
        "GAMMA=2",
        *(["write_inferences_to_file.output_ids=True"] if module == "infer" else []),
        *extra,
    ]
    files = [ROOT / "gin_configs/runs" / f"{run}.gin", folder / "tiny.gin"]
    arguments = [f"--gin_search_paths={ROOT}", *(f"--gin_file={file}" for file in files)]
    arguments += [f"--gin.{binding}" for binding in bindings]
    log = str(folder / name / "log")
    entry = {"module": f"t5x.{module}", "arguments": arguments, "log": log}
    return {**entry, "devices": devices, "quick": True}


def on_hosts(folder, part, *dies_at):
    """One run as processes of a job, which share a mesh of eight devices; one may die."""
    name, extra = "hosts", [*on_mesh(*MESHES[-1]), *CHUNKS]
    single = tiny_run(folder, name, "infer_speculative", *extra, devices=8 // HOSTS)
    port = jobs.free_port()
    found = []
    for number in range(HOSTS):
        job = ["--coordinator", f"localhost:{port}", "--num_processes", str(HOSTS)]
        job += ["--process_id", str(number), "t5x.infer", *single["arguments"]]
        entry = {**single, "module": "specdec_jax.t5x_plugin.launch", "arguments": job}
        found.append({**entry, "log": str(folder / name / f"{part}{number or ''}")})
    for number, place in enumerate(dies_at):
        found[number]["dies_at"] = place
    return found


def train_run(folder):
    """Four steps of fine-tuning the tiny target, evaluated and saved after the last."""
    out = folder / "train"
    out.mkdir()
    lines = (folder / "debian_ende.test.tsv").read_text(encoding="utf-8")
    for split in ("train", "validation"):
        (folder / f"debian_ende.{split}.tsv").write_text(lines, encoding="utf-8")
    files = ["gin_configs/runs/finetune_task.gin", folder / "tiny.gin"]
    bindings = [
        "MIXTURE_OR_TASK_NAME='specdec_debian_ende'",
        LENGTHS,
        f"MODEL_DIR='{out}'",
        f"INITIAL_CHECKPOINT_PATH='{folder / 't5x/target/checkpoint_7'}'",
        "PRETRAIN_STEPS=7",
        "TRAIN_STEPS=11",
        "BATCH_SIZE=4",
        "EVAL_PERIOD=4",
        "EVAL_STEPS=1",
        "SAVE_PERIOD=4",
        "DTYPE='float32'",
        # The metrics of the task are in the run of t5x.eval.
        "train.infer_eval_dataset_cfg=None",
    ]
    arguments = [f"--gin_search_paths={ROOT}", *(f"--gin_file={file}" for file in files)]
    arguments += [f"--gin.{binding}" for binding in bindings]
    run = {"module": "t5x.train", "arguments": arguments, "log": str(out / "log")}
    return {**run, "devices": 1, "quick": True}


def mesh_name(data, model):
    return f"mesh_{data}_{model}"


def on_mesh(_, model):
    partitioner = "partitioning.PjitPartitioner"
    return [
        f"{partitioner}.num_partitions=None",
        f"{partitioner}.model_parallel_submesh=(1, {model}, 1, 1)",
    ]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Run everything; returns the folder, and by name of the run its exit status and log."""
    folder = tmp_path_factory.mktemp("runs")
    lines = (ROOT / "tests/data/ende_200.tsv").read_text(encoding="utf-8").splitlines()
    (folder / "debian_ende.test.tsv").write_text("\n".join(lines[:ROWS]) + "\n", encoding="utf-8")
    write_models(folder)
    (folder / "tiny.gin").write_text(tiny_gin())
    demo, comparison = demo_commands(folder)
    runs = {
        **{name: {**run, "devices": 1, "quick": False} for name, run in demo.items()},
        "plain": tiny_run(folder, "plain", "infer_baseline"),
        **{
            mesh_name(*mesh): tiny_run(
                folder, mesh_name(*mesh), "infer_speculative", *on_mesh(*mesh), devices=8
            )
            for mesh in MESHES
        },
        "hosts_1_dies": on_hosts(folder, "1_dies", None, "checkpoint_chunk00001"),
        "hosts_0_dies": on_hosts(folder, "0_dies", "chunk00002.COMPLETED"),
        "hosts": on_hosts(folder, "log"),
        "plain_two": tiny_run(folder, "plain_two", "infer_baseline", *SAMPLED),
        "coupled_two": tiny_run(
            folder, "coupled_two", "infer_speculative", "RULE='coupled'", *SAMPLED, target="orbax"
        ),
        "no_draft": tiny_run(folder, "no_draft", "infer_speculative", draft="absent"),
        "eval": tiny_run(folder, "eval", "eval_speculative", module="eval"),
        "train": train_run(folder),
    }
    listed = folder / "runs.json"
    listed.write_text(json.dumps(list(runs.values())))
    finished = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("forked_infer.py")), str(listed)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPECDEC_DATA": str(folder)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    print(finished.stderr[-2000:])
    statuses = json.loads(finished.stdout.splitlines()[-1])
    firsts = [run[0] if isinstance(run, list) else run for run in runs.values()]
    logs = [Path(run["log"]).read_text(encoding="utf-8") for run in firsts]
    return folder, dict(zip(runs, zip(statuses, logs, strict=True), strict=True)), comparison


def read(done, first, second):
    """Compare two runs that ended well."""
    folder, runs, _ = done
    for name in (first, second):
        status, log = runs[name]
        assert status == 0, log[-3000:]
    return compare.compare(folder / first, folder / second)


def test_the_demonstration_with_the_shipped_pair(done, capsys):
    folder, runs, comparison = done
    for name in ("infer_baseline", "infer_speculative"):
        assert runs[name][0] == 0, runs[name][1][-3000:]
    assert compare.main(comparison) == 0
    assert f"identical {ROWS}/{ROWS}" in capsys.readouterr().out
    found = json.loads((folder / "demo.json").read_text())
    assert found["rows"] == found["identical"] == ROWS
    assert found["tokens_per_run"] > 1
    assert {"seconds_plain", "seconds_speculative"} <= found.keys()
    example = compare.rows(folder / "demo/infer_speculative")[0]
    counts = {"scores", "target_runs", "drafted", "accepted", "mean_accepted_length"}
    assert set(example["aux"]) == counts


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_meshes_of_eight_devices(done, mesh):
    found = read(done, "plain", mesh_name(*mesh))
    assert found["identical"] == found["rows"] == ROWS
    assert found["tokens_per_run"] > 1.1
    log = done[1][mesh_name(*mesh)][1]
    assert f"global_mesh devices shape: {mesh}" in log
    assert "The draft is replicated on all devices: its 6 heads" in log


def test_two_hosts_write_what_one_writes_though_both_die_once(done):
    folder, runs, _ = done
    # The second, between two batches; then the first, with a chunk written and not yet marked.
    for number, name in ((0, "1_dies"), (1, "0_dies")):
        log = (folder / f"hosts/{name}{number or ''}").read_text()
        jobs.assert_ended_by_another(runs[f"hosts_{name}"][0], log)
        assert "DONE" not in log
    found = read(done, mesh_name(*MESHES[-1]), "hosts")
    assert (found["rows"], found["identical"]) == (ROWS, ROWS)
    # What is complete was not made anew, and the work was shared and not done twice.
    log = runs["hosts"][1]
    assert re.findall(r"Skipping chunk \D*(\d)", log) == ["0", "1"]
    assert f"{ROWS} of {ROWS} lines, " in log
    assert "Process ID: 1" in (folder / "hosts/log1").read_text()


def test_samples_of_two_decodes_from_checkpoints_of_two_formats(done):
    found = read(done, "plain_two", "coupled_two")
    assert found["identical"] == found["rows"] == ROWS
    rows = compare.rows(done[0] / "coupled_two")
    assert np.shape(rows[0]["aux"]["accepted"]) == (2,)
    assert sum(sum(row["aux"]["accepted"]) for row in rows) > 0
    assert any(row["prediction_tokens"][0] != row["prediction_tokens"][1] for row in rows)


def test_a_missing_draft_ends_the_run_with_a_remedy(done):
    status, log = done[1]["no_draft"]
    assert status == 1
    assert "There is no draft checkpoint at" in log
    assert "set SpeculativeCheckpointManager.draft_path to a checkpoint_N folder" in log


def test_eval_writes_the_metrics_of_the_task(done):
    folder, runs, _ = done
    assert runs["eval"][0] == 0, runs["eval"][1][-3000:]
    (metrics,) = (folder / "eval").rglob("*metrics.jsonl")
    assert 0 <= json.loads(metrics.read_text().splitlines()[-1])["bleu"] <= 100


def test_t5x_s_trainer_fine_tunes_from_a_converted_checkpoint(done):
    folder, runs, _ = done
    status, log = runs["train"]
    assert status == 0, log[-3000:]
    before, after = (
        checkpoints.load(folder / path, finite=True).model.params
        for path in ("t5x/target/checkpoint_7", "train/checkpoint_11")
    )
    moved = jax.tree.map(lambda x, y: float(np.abs(x - y).max()), before, after)
    # A constant rate of 0.001, relative to a parameter's size, for four steps.
    assert all(0 < change < 1 for change in jax.tree.leaves(moved)), moved
