"""What scripts/t5x_infer_demo.sh says before it runs anything; test_infer_runs.py has its runs."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/t5x_infer_demo.sh"


def call(*arguments):
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mode", "beam"], "--mode is beam, but must be greedy or coupled"),
        (["--limit"], "--limit needs a value"),
        (["--rows", "3"], "unknown argument --rows; --help lists them"),
    ],
)
def test_arguments_that_cannot_be_meant(arguments, words):
    done = call(*arguments)
    assert done.returncode == 2
    assert done.stderr == f"error: {words}\n"


def test_results_of_other_models_are_not_taken_for_new_ones(tmp_path):
    (tmp_path / "config.gin").touch()
    done = call("--out", tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path} is not empty: give a new --out\n"


def test_help_lists_every_argument():
    said = call("--help").stdout
    for name in ("mode", "limit", "batch", "gamma", "corpus", "json", "out"):
        assert f"[--{name} " in said
    assert "-- ARGUMENT" in said
    assert "PYTHON names the interpreter." in said
    assert "set -euo" not in said
