"""What is measured, predicted, inspected and converted from the command line."""

import json
from pathlib import Path

import pytest

from specdec_jax import cli, generate
from specdec_jax.bench import compare, timing
from specdec_jax.bench import trace as trace_module

LINES = ["ab", "", "x y z"]
# Made up: a busy machine may find that a step of so small a model takes less than no time.
SECONDS = timing.Spread(0.1, 0.1, 0.1, 3)
COSTS = timing.StepCosts(SECONDS, SECONDS, SECONDS, c=0.05, v=1.2)


def test_predict_prints_and_writes(call, tmp_path):
    path = tmp_path / "prediction.json"
    status, out, err = call("predict", "--alpha", 0.75, "--c", 0.02, "--json", path)
    assert (status, err) == (0, "")
    prediction = json.loads(path.read_text("utf-8"))
    # Table 4's first row: 3.2 at its best gamma.
    assert round(prediction["best"]["speedup"], 2) == 3.20
    assert "3.20" in out
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"alpha": 0.75, "c": 0.5}))
    again = tmp_path / "again.json"
    assert call("predict", "--record", record, "--c", 0.02, "--json", again)[0] == 0
    assert json.loads(again.read_text("utf-8"))["best"] == prediction["best"]


def test_theory_writes_its_files_and_names_them(call, tmp_path):
    status, out, _ = call("theory", "--out", tmp_path / "paper")
    assert status == 0
    assert sorted(out.splitlines()) == sorted(str(p) for p in (tmp_path / "paper").iterdir())
    assert {"table4.json", "figure2.svg"} <= {p.name for p in (tmp_path / "paper").iterdir()}


def test_theory_into_a_file_is_told(call, tmp_path):
    (tmp_path / "file").touch()
    status, _, err = call("theory", "--out", tmp_path / "file")
    assert status == 2
    assert str(tmp_path / "file") in err


def test_trace_shows_rounds_and_writes_records(call, folders, tmp_path, monkeypatch):
    monkeypatch.setattr(trace_module, "GAMMAS", (0,))
    monkeypatch.setattr(trace_module, "step_costs", lambda *a, **k: COSTS)
    path = tmp_path / "trace.json"
    flags = ("--target", folders[0], "--draft", folders[1], "--gamma", 2, "--max_tokens", 12)
    status, out, err = call("trace", *flags, "--json", path, "ab")
    assert (status, err) == (0, "")
    records = json.loads(path.read_text("utf-8"))
    assert [record["gamma"] for record in records] == [2, 0]
    assert out.splitlines()[0] == "source  ab"
    assert out.count(" accepted  ") == len(records[0]["rounds"])
    assert "\033" not in out


RECORD = {
    *("sentences", "tokens", "identical", "gamma", "alpha", "tokens_per_run", "c", "v"),
    *("seconds_plain", "seconds_speculative", "speedup", "predicted_speedup", "target_shape"),
}


def test_bench_writes_a_record_that_predict_reads(call, folders, tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "step_costs", lambda *a, **k: COSTS)
    (tmp_path / "in").write_text("ab\ncd\nnever read\n")
    path = tmp_path / "bench.json"
    flags = ("--target", folders[0], "--draft", folders[1], "--gamma", 2, "--max_tokens", 12)
    flags += ("--shape", "own", "--input", tmp_path / "in", "--lines", 2, "--repeats", 1)
    status, out, err = call("bench", *flags, "--json", path)
    assert status == 0, err
    record = json.loads(path.read_text("utf-8"))
    assert record.keys() >= RECORD | {"command", "commit", "device", "versions", "seed"}
    assert (record["sentences"], record["identical"], record["gamma"]) == (2, 2, 2)
    assert (record["c"], record["v"]) == (0.05, 1.2)
    assert "identical outputs              2/2" in out.splitlines()
    assert call("predict", "--alpha", 0.7, "--record", path)[0] == 0


def test_bench_without_lines_is_told(call, folders, tmp_path):
    (tmp_path / "in").touch()
    flags = ("--target", folders[0], "--draft", folders[1], "--shape", "own")
    status, _, err = call("bench", *flags, "--input", tmp_path / "in", "--json", tmp_path / "out")
    assert status == 2
    assert "no lines to decode" in err


def test_inspect_reads_a_name_or_a_folder(call, folders):
    status, out, err = call("inspect", "ende_target")
    assert status == 0, err
    assert "ende_target" in out
    status, out, err = call("inspect", "--json", folders[0])
    assert status == 0, err
    assert json.loads(out)["config"]["emb_dim"] == 16


def test_convert_makes_a_folder_that_decodes_alike(call, tiny, folders, tmp_path):
    made = tmp_path / "copy"
    assert call("convert", folders[0], made, "--format", "specdec") == (0, f"{made}\n", "")
    assert tiny("--target", made, *LINES)[1] == tiny(*LINES)[1]
    status, _, err = call("convert", folders[0], tmp_path / "other", "--format", "zip")
    assert status == 2
    assert "zip" in err


@pytest.mark.slow
def test_the_demonstration(call, tmp_path):
    path = tmp_path / "demo.json"
    flags = ("--shape", "own", "--sentences", 2, "--gamma", 3, "--max_tokens", 32)
    status, out, _ = call("demo", *flags, "--json", path)
    assert status == 0
    record = json.loads(path.read_text("utf-8"))
    assert record.keys() >= RECORD
    assert (record["sentences"], record["identical"], record["gamma"]) == (2, 2, 3)
    assert record["tokens"] > 2
    assert 0 <= record["alpha"] <= 1
    assert 1 <= record["tokens_per_run"] <= 4
    assert out.count("identical to plain decoding") == 2
    assert out.count("  source  ") == out.count("  output  ") == out.count("  trace   ") == 2
    assert str(tmp_path) not in path.read_text("utf-8")


@pytest.mark.parametrize(("same", "temperature", "status"), [(2, 0, 0), (1, 0, 1), (1, 1, 0)])
def test_the_demonstration_fails_where_outputs_differ(call, monkeypatch, same, temperature, status):
    monkeypatch.setattr(generate, "load_pair", lambda *a, **k: None)
    record = {"identical": same, "sentences": 2}
    monkeypatch.setattr("specdec_jax.bench.demo.run", lambda *a, **k: record)
    assert call("demo", "--temperature", temperature)[0] == status


def test_a_flag_is_not_taken_for_the_start_of_one_of_absl_s():
    # There is --run_with_pdb.
    read = cli.parser().parse_args(["train", "--data", "a", "--run", "b", "--out", "c"])
    assert (read.data, read.run, read.out) == (Path("a"), Path("b"), Path("c"))
