"""The scripts of long jobs: their commands by --dry-run, and with stand-ins for what they call."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
VM = ("--tpu", "vm", "--zone", "z", "--type", "v4-16")
BUCKET = ("--bucket", "gs://b/d")
JOBS = {
    "jobs/checkpoint": ("--size", "xxl", "--models", "gs://b/d"),
    "jobs/finetune": ("--task", "ende", "--size", "xxl", "--models", "gs://b/d"),
    "jobs/experiments": ("--models", "gs://b/d", "--out", "made"),
    "tpu/create": (*VM, "--spot", "1"),
    "tpu/install": VM,
    "tpu/checkpoints": (*VM, *BUCKET, "--from", "hf"),
    "tpu/finetune": (*VM, *BUCKET),
    "tpu/experiments": (*VM, *BUCKET, "--out", "made"),
    "tpu/delete": ("--tpu", "vm", "--zone", "z"),
    "gpu/slurm": ("--job", "finetune", "--models", "/models"),
}
CALLED = ("gcloud", "sbatch", "uvx", "python", "git")


@pytest.fixture
def script(tmp_path):
    """Run a script, where all that it calls is a stand-in that writes its arguments down."""
    tools, log = tmp_path / "tools", tmp_path / "log"
    tools.mkdir()
    log.touch()

    def stand_in(name, body=""):
        path = tools / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n{body}\n')
        path.chmod(0o755)

    def run(name, *arguments, cwd=tmp_path, **environment):
        done = subprocess.run(
            [ROOT / f"scripts/{name}.sh", *map(str, arguments)],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("SPECDEC_")},
                **environment,
                "PATH": f"{tools}:{os.environ['PATH']}",
                "PYTHON": str(tools / "python"),
            },
            cwd=cwd,
            capture_output=True,
            text=True,
        )
        done.called = log.read_text().splitlines()
        log.write_text("")
        return done

    for name in CALLED:
        stand_in(name)
    run.stand_in = stand_in
    return run


def commands(done):
    """The commands that a script shows, each a list of words."""
    return [shlex.split(line[2:]) for line in done.stderr.splitlines() if line.startswith("+ ")]


@pytest.mark.parametrize("name", JOBS)
def test_a_dry_run_shows_commands_and_runs_none(script, tmp_path, name):
    done = script(name, *JOBS[name], "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.called == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "tools"]
    shown = commands(done)
    assert shown
    # What a command names in this repository is there.
    for path in re.findall(r"(?:gin_configs|scripts)/[\w/.]+\.(?:gin|sh|py)", done.stderr):
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("name", JOBS)
def test_mistakes_are_told_before_anything_is_called(script, name):
    done = script(name)
    assert (done.returncode, done.called) == (2, [])
    assert re.fullmatch(r"error: --\w+ is not given, nor SPECDEC_\w+ .*\n", done.stderr)
    done = script(name, *JOBS[name], "--colour", "red")
    assert (done.returncode, done.called) == (2, [])
    assert "error: unknown argument --colour; --help lists them" in done.stderr
    explained = script(name, "--help").stdout
    for flag in (word for word in JOBS[name] if word.startswith("--")):
        assert flag in explained
    assert "--dry-run" in explained


def test_names_may_come_from_the_environment(script):
    given = script("tpu/delete", *JOBS["tpu/delete"], "--dry-run")
    names = {"SPECDEC_TPU": "vm", "SPECDEC_ZONE": "z", "SPECDEC_DRY_RUN": "1"}
    assert commands(script("tpu/delete", **names)) == commands(given)


def test_fine_tuning_goes_by_the_gin_files_and_is_done_once(script, tmp_path):
    flags = ("--task", "cnndm", "--size", "large", "--models", tmp_path / "models", "--chips", 4)
    done = script("jobs/finetune", *flags, "--steps", 30)
    assert done.returncode == 0, done.stderr
    (call,) = done.called
    assert call.startswith("python -m t5x.train --gin_search_paths=")
    for part in (
        "--gin_file=gin_configs/runs/finetune_cnndm.gin",
        "--gin_file=gin_configs/targets/t5_1_1_large.gin",
        f"--gin.MODEL_DIR='{tmp_path}/models/cnndm/large'",
        f"CHECKPOINT_PATH='{tmp_path}/models/pretrained/large/checkpoint_1000000'",
        "--gin.TRAIN_STEPS=1000030",
        "--gin.partitioning.PjitPartitioner.num_partitions=2",
    ):
        assert part in call
    assert "estimate: 0.0 chip-hours" in done.stderr
    assert re.search(r"4 chips for \d+ s: 0\.\d\d chip-hours", done.stderr)
    again = script("jobs/finetune", *flags, "--steps", 30)
    assert (again.returncode, again.called) == (0, [])
    assert "has 30 steps already" in again.stderr
    # More steps go on.
    assert script("jobs/finetune", *flags, "--steps", 40).called


def test_a_failure_stops_a_job_and_is_not_taken_for_done(script, tmp_path):
    flags = ("--task", "ende", "--size", "small", "--models", tmp_path / "models")
    script.stand_in("python", "exit 3")
    assert script("jobs/finetune", *flags).returncode == 3
    script.stand_in("python")
    assert len(script("jobs/finetune", *flags).called) == 1
    script.stand_in("gcloud", "exit 5")
    for name in ("tpu/install", "tpu/checkpoints", "tpu/finetune", "tpu/experiments"):
        done = script(name, *JOBS[name])
        assert done.returncode == 5, name
        assert len([call for call in done.called if call.startswith("gcloud")]) == 1
        assert "8 chips for" in done.stderr


def test_the_estimate_is_six_flop_a_parameter_and_token(script):
    done = script("jobs/finetune", *JOBS["jobs/finetune"], "--dry-run")
    chip_hours = 6 * 11135e6 / 2 * 20000 * 128 * (512 + 128) / (0.4 * 275e12) / 3600
    assert f"estimate: {chip_hours:.1f} chip-hours" in done.stderr


# Plays T5X's infer and the comparison.
EXPERIMENT = """
case "$*" in
  *"t5x.infer"*) [ ! -e {fail} ] || exit 4; echo "chunk completed in 2.0 seconds" >&2 ;;
  *compare*) for json; do :; done; cp {record} "$json"; exit 1 ;;
  *table.py*) exec {python} "$@" ;;
esac
"""
RECORD = {
    "rows": 7,
    "identical": 6,
    "seconds_plain": 5.0,
    "seconds_speculative": 2.0,
    "tokens_per_run": 3.5,
}


def test_the_twelve_experiments_make_one_table(script, tmp_path):
    record, fail, out = tmp_path / "record", tmp_path / "fail", tmp_path / "made"
    record.write_text(json.dumps(RECORD))
    script.stand_in(
        "python", EXPERIMENT.format(fail=fail, record=record, python=shlex.quote(sys.executable))
    )
    flags = ("--models", "gs://b/d", "--out", out, "--limit", 7)
    done = script("jobs/experiments", *flags)
    assert done.returncode == 0, done.stderr
    infers = [call for call in done.called if "t5x.infer" in call]
    assert len(infers) == 4 + 12
    assert all("split='test[:7]'" in call for call in infers)
    tables = [line for line in done.stdout.splitlines() if line.startswith("| table2_")]
    assert len(tables) == 12
    assert "| table2_ende_small_t0 | 7 | 2.50X | 3.4X | 3.50 | 7 | 6 |" in tables
    assert (out / "table.md").read_text() in done.stdout
    assert "chunk completed in 2.0 seconds\n" in (out / "table2_ende_small_t0/log").read_text()
    # Only what is not finished is run again.
    (out / "table2_cnndm_base_t1" / "done").unlink()
    fail.touch()
    stopped = script("jobs/experiments", *flags)
    assert stopped.returncode == 4
    assert [call for call in stopped.called if "table.py" in call] == []
    fail.unlink()
    (again,) = [call for call in script("jobs/experiments", *flags).called if "t5x.infer" in call]
    assert "table2_cnndm_base_t1.gin" in again


def test_baselines_are_of_the_experiments_tasks_lengths_and_temperatures(script):
    done = script("jobs/experiments", *JOBS["jobs/experiments"], "--dry-run")
    runs = {}
    for command in commands(done):
        bound = dict(word[6:].split("=", 1) for word in command if word.startswith("--gin."))
        if "t5x.infer" in command:
            runs[Path(bound["INFER_OUTPUT_DIR"].strip("'")).name] = bound
    for gin in (ROOT / "gin_configs/experiments").glob("table2_*.gin"):
        assert gin.stem in runs
        _, task, _, temperature = gin.stem.split("_")
        baseline = runs[f"baseline_{task}_{temperature}"]
        content = gin.read_text(encoding="utf-8")
        for name in ("MIXTURE_OR_TASK_NAME", "TASK_FEATURE_LENGTHS", "BATCH_SIZE", "TEMPERATURE"):
            assert f"\n{name} = {baseline[name]}\n" in content, (gin.stem, name)


def test_tpu_scripts_go_to_the_right_workers(script):
    done = script("tpu/install", *VM)
    assert done.returncode == 0, done.stderr
    assert done.called[0].startswith("git -C ")
    assert all("--worker all" in call for call in done.called[1:])
    for name, worker in (("checkpoints", "0"), ("finetune", "all"), ("experiments", "0")):
        done = script(f"tpu/{name}", *JOBS[f"tpu/{name}"], "--dry-run")
        for command in commands(done):
            if "ssh" in command:
                assert command[command.index("--worker") + 1] == worker
    (call,) = [c for c in script("tpu/create", *VM).called if " create " in c] or [""]
    # The stand-in says that the machine is there.
    assert call == ""
    script.stand_in("gcloud", 'case "$*" in *describe*) exit 1 ;; esac')
    created = script("tpu/create", *VM)
    assert "create vm --accelerator-type v4-16" in created.called[1]
    assert "vm costs 8 chip-hours an hour" in created.stderr


def test_slurm_gets_a_task_for_each_gpu(script):
    flags = ("--models", "/models", "--nodes", "2", "--gpus", "4", "--hours", "5")
    done = script(
        "gpu/slurm", "--job", "finetune", *flags, "--tasks", "ende", "--sizes", "xxl base"
    )
    assert done.returncode == 0, done.stderr
    assert len(done.called) == 2
    for part in ("--nodes 2", "--ntasks-per-node 4", "--gpus-per-node 4", "--time 5:00:00"):
        assert part in done.called[0]
    assert "jobs/finetune.sh --task ende --size xxl" in done.called[0]
    assert "ende_xxl: at most 40 GPU-hours" in done.stderr
    done = script("gpu/slurm", "--job", "experiments", *flags, "--out", "/made")
    assert "--nodes 1 " in done.called[0]
    assert "jobs/experiments.sh --models /models --out /made" in done.called[0]
    assert script("gpu/slurm", "--job", "sing", "--models", "x").returncode == 2
