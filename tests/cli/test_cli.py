import io
import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest
from tiny_pairs import tiny_t5

from specdec_jax import checkpoints, generate
from specdec_jax.checkpoints import bundle

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    *("generate", "trace", "demo", "bench", "tune", "alphas", "theory", "predict"),
    *("count", "inspect", "convert", "train"),
)
LINES = ["ab", "", "x y z"]

# Parsing.


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(call, command):
    status, out, err = call(command, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"usage: specdec {command}")
    (listed,) = [line for line in call("--help")[1].splitlines() if line.split()[:1] == [command]]
    # The list's summary opens the command's own page.
    assert listed.split(maxsplit=1)[1].split()[0] in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "required: COMMAND"),
        (("translate",), "invalid choice: 'translate'"),
        (("generate", "--gama", "3", "x"), "unrecognized arguments: --gama"),
        (("generate", "--gamma", "many", "x"), "--gamma: invalid int value: 'many'"),
        (("generate", "--task", "sing", "x"), "invalid choice: 'sing'"),
        (("theory",), "required: --out"),
        (("trace",), "required: text"),
    ],
)
def test_a_command_that_cannot_be_parsed(call, arguments, told):
    status, out, err = call(*arguments)
    assert (status, out) == (2, "")
    assert told in err
    assert "usage: specdec" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("generate", "--input", "{tmp}/in", "x"), "lines on the command line and --input"),
        (("generate", "--input", "{tmp}/none"), "There is no file {tmp}/none"),
        (("generate", "--input", "{tmp}/latin1"), "Line 1 of {tmp}/latin1 is not UTF-8"),
        (("generate", "--output", "{tmp}/no/out", "x"), "no folder {tmp}/no: make it"),
        (("generate", "--output", "{tmp}", "x"), "Cannot write {tmp}, which is a folder"),
        (("generate", "--temperature", "-1", "x"), "temperature is -1.0"),
        (("generate", "--top_p", "0", "x"), "top_p is 0.0"),
        (("generate", "--rule", "typical", "x"), "no verification rule 'typical'"),
        (("generate", "--lenience", "0.5", "--rule", "block", "x"), "set lenience to 1"),
        (("generate", "--batch_size", "0", "x"), "batch_size is 0"),
        (("generate", "--max_tokens", "0", "x"), "max_tokens is 0"),
        (("generate", "--gamma", "-1", "x"), "gamma is -1"),
        (("demo", "--sentences", "0"), "--sentences is 0, but must be at least 1"),
        (("demo", "--gamma", "0"), "--gamma is 0, but must be at least 1"),
        (("demo", "--json", "{tmp}/no/out"), "no folder {tmp}/no"),
        (("bench", "--json", "{tmp}/no/out"), "no folder {tmp}/no"),
        (("bench", "--json", "{tmp}/out", "--repeats", "0"), "--repeats is 0"),
        (("bench", "--json", "{tmp}/out", "--lines", "-1"), "--lines is -1"),
        (("trace", "--json", "{tmp}/no/out", "x"), "no folder {tmp}/no"),
        (("theory", "--out", "{tmp}", "--trace", "{tmp}/none"), "no record at {tmp}/none"),
        (("theory", "--out", "{tmp}", "--trace", "{tmp}/in"), "{tmp}/in is not a JSON record"),
        (("predict", "--record", "{tmp}/in"), "{tmp}/in is not a JSON record"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(call, unloaded, tmp_path, arguments, told):
    (tmp_path / "in").write_text("hello\n")
    (tmp_path / "latin1").write_bytes(b"\xff\n")
    status, out, err = call(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert (status, out) == (2, "")
    assert err.startswith("specdec: ")
    assert told.format(tmp=tmp_path) in err
    assert err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "latin1"]


@pytest.mark.parametrize("flag", ["--target", "--draft"])
def test_a_model_that_is_not_there(tiny, flag):
    status, out, err = tiny(flag, "nowhere", "x")
    assert (status, out) == (2, "")
    assert "No checkpoint at nowhere" in err


def test_every_flag_reaches_the_decoder(call, monkeypatch):
    seen = []
    monkeypatch.setattr(generate, "load_pair", lambda *a, **k: seen.append((a, k)))
    monkeypatch.setattr(generate, "generate", lambda *a, **k: seen.append((a[1:], k)) or [])
    flags = ["--gamma", 3, "--temperature", 0.5, "--top_k", 4, "--top_p", 0.9, "--rule", "block"]
    flags += ["--max_tokens", 9, "--batch_size", 2, "--seed", 7, "--truncate", "--shape", "base"]
    flags += ["--draft_temperature", 0.8, "--draft_top_k", 5, "--draft_top_p", 0.7]
    assert call("generate", "--target", "t", "--draft", "d", *flags, "a", "b")[0] == 0
    settings = generate.Settings(
        gamma=3,
        temperature=0.5,
        top_k=4,
        top_p=0.9,
        rule="block",
        max_tokens=9,
        batch_size=2,
        seed=7,
        draft_temperature=0.8,
        draft_top_k=5,
        draft_top_p=0.7,
    )
    words = {"prefix": "translate English to German: ", "truncate": True, "first": 0}
    assert seen == [(("t", "d"), {"shape": "base", "mesh": None}), ((["a", "b"], settings), words)]


@pytest.mark.parametrize(
    ("flags", "prefix"),
    [
        ([], "translate English to German: "),
        (["--task", "summarize"], "summarize: "),
        (["--task", "summarize", "--prefix", ""], ""),
    ],
)
def test_the_task_or_the_prefix_goes_before_each_line(call, monkeypatch, flags, prefix):
    seen = []
    monkeypatch.setattr(generate, "load_pair", lambda *a, **k: None)
    monkeypatch.setattr(generate, "generate", lambda *a, **k: seen.append(k["prefix"]) or [])
    assert call("generate", *flags, "x")[0] == 0
    assert seen == [prefix]


# Decoding.


def test_lines_come_from_arguments_a_file_or_standard_input(tiny, tmp_path, monkeypatch):
    status, out, err = tiny(*LINES)
    assert (status, err) == (0, "")
    assert out.count("\n") == len(LINES)
    (tmp_path / "in").write_bytes("\r\n".join(LINES).encode() + b"\r\n")
    assert tiny("--input", tmp_path / "in") == (0, out, "")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
    assert tiny() == (0, out, "")


def test_an_empty_input_is_an_empty_output(tiny, tmp_path):
    (tmp_path / "in").touch()
    assert tiny("--input", tmp_path / "in", "--output", tmp_path / "out") == (0, "", "")
    assert (tmp_path / "out").read_bytes() == b""


def test_json_lines(tiny):
    status, out, _ = tiny("--json", *LINES)
    assert status == 0
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["source"] for record in records] == LINES
    for record in records:
        assert list(record) == [
            *("source", "text", "tokens", "scores", "finish"),
            *("target_runs", "drafted", "tested", "accepted", "lossy"),
        ]
        assert record["lossy"] is False
        assert record["finish"] in ("end_token", "length")
        assert len(record["scores"]) == len(record["tokens"]) <= 12
        assert record["accepted"] <= record["tested"] <= record["drafted"]


def test_a_mesh_changes_no_output(tiny, folders):
    """Three lines in a batch, which eight devices in two rows do not divide."""
    way = ("--prefix", "", "--temperature", "1", "--batch_size", "3")
    flags = ("--target", folders[0], "--draft", folders[1], "--gamma", "2", "--max_tokens", "12")
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "specdec_jax", "generate"),
            *map(str, (*flags, *way, "--mesh", "4x2", *LINES)),
        ],
        env=os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count=8 {quick}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == tiny(*way[2:], *LINES)[1]


@pytest.mark.parametrize("mesh", ["8", "4x", "axb", "4x2x1", "-1x2"])
def test_a_mesh_that_is_none_is_told(tiny, mesh):
    status, _, err = tiny(f"--mesh={mesh}", *LINES)
    assert status == 2
    assert err == f"specdec: --mesh is {mesh!r}, but must be DATAxMODEL, 4x2 say.\n"


def test_the_baseline_says_the_same_without_a_draft(tiny):
    _, fast, _ = tiny(*LINES)
    # The draft is not even looked for.
    assert tiny("--baseline", "--draft", "nowhere", *LINES) == (0, fast, "")
    assert tiny("--gamma", 0, "--draft", "nowhere", *LINES) == (0, fast, "")


def test_lenience_is_called_lossy(tiny):
    status, out, err = tiny("--lenience", 0.5, "--temperature", 1, "--json", "ab")
    assert status == 0
    assert "LOSSY" in err
    assert json.loads(out)["lossy"] is True
    # Plain decoding has nothing to be lenient about.
    status, out, err = tiny("--lenience", 0.5, "--baseline", "--json", "ab")
    assert (status, err) == (0, "")
    assert json.loads(out)["lossy"] is False


def test_a_line_break_in_an_output_makes_no_line(tiny, monkeypatch):
    original = generate.generate

    def broken(*args, **kwargs):
        for line in original(*args, **kwargs):
            object.__setattr__(line, "text", "eins\nzwei\r\ndrei\u2028vier")
            yield line

    monkeypatch.setattr(generate, "generate", broken)
    assert tiny("ab")[1] == "eins zwei drei vier\n"
    assert json.loads(tiny("--json", "ab")[1])["text"] == "eins\nzwei\r\ndrei\u2028vier"


def test_a_long_line_is_refused_or_cut(tiny):
    status, out, err = tiny("ab", "c" * 600)
    assert (status, out) == (2, "")
    assert "line 2 has 601 tokens" in err
    status, out, err = tiny("--truncate", "ab", "c" * 600)
    assert (status, err) == (0, "")
    assert out.count("\n") == 2


def test_an_argument_that_is_not_utf_8_is_named(tiny):
    status, _, err = tiny("ab", os.fsdecode(b"gr\xfc\xdfe"))
    assert status == 2
    assert "Line 2 is not Unicode" in err


# Files of output.


def test_an_output_file_holds_what_would_be_printed(tiny, tmp_path):
    _, out, _ = tiny(*LINES)
    path = tmp_path / "out"
    path.write_text("old")
    assert tiny("--output", path, *LINES) == (0, "", "")
    assert path.read_text("utf-8") == out


@pytest.fixture
def broken_target(tmp_path_factory):
    model = tiny_t5()
    norm = model.params["decoder"]["decoder_norm"]
    norm["scale"] = norm["scale"] * jnp.nan
    path = tmp_path_factory.mktemp("nan") / "target"
    bundle.save(path, model, dtype="float32", vocabulary="bytes")
    return path


def test_weights_that_are_no_numbers_are_told(tiny, tmp_path, broken_target):
    path = tmp_path / "out"
    path.write_text("old")
    for flags in ([], ["--baseline"], ["--temperature", 1]):
        status, _, err = tiny("--target", broken_target, "--output", path, *flags, *LINES)
        assert status == 2
        assert "3 of 3 lines ended because the target's logits are not finite" in err
        assert "specdec inspect" in err
    assert path.read_text() == "old"


def interrupted(*_args, **_kwargs):
    yield from ()
    raise KeyboardInterrupt


@pytest.mark.parametrize("there", [True, False])
def test_an_interrupt_is_status_130_and_leaves_no_file(tiny, tmp_path, monkeypatch, there):
    path = tmp_path / "out"
    if there:
        path.write_text("old")
    monkeypatch.setattr(generate, "generate", interrupted)
    status, out, err = tiny("--output", path, *LINES)
    assert (status, out) == (130, "")
    assert err.startswith("specdec: interrupted")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out", "old")] * there


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_a_full_disk_is_told(tiny):
    status, _, err = tiny("--output", "/dev/full", "ab")
    assert status == 2
    assert "Cannot write /dev/full (No space left on device)" in err


def test_another_failure_of_the_system_is_told(call, monkeypatch):
    def fail(path):
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(checkpoints, "open_checkpoint", fail)
    monkeypatch.setattr("specdec_jax.checkpoints.inspect.open_checkpoint", fail)
    status, _, err = call("inspect", "somewhere")
    assert status == 2
    assert err == "specdec: [Errno 5] Input/output error: 'somewhere'.\n"


def test_a_reader_who_leaves_is_no_error():
    command = [sys.executable, "-m", "specdec_jax", "predict", "--alpha", "0.7", "--c", "0.05"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        told = running.stderr.read()
    assert (running.returncode, told) == (0, "")
