"""Drafts of n-grams, the best gamma and alphas, from the command line."""

import json
import lzma

import pytest

from specdec_jax import generate
from specdec_jax.bench import timing, tune
from specdec_jax.drafts import ngram_file

LINES = ["ab", "", "x y z"]
SECONDS = timing.Spread(0.1, 0.1, 0.1, 3)
COSTS = timing.StepCosts(SECONDS, SECONDS, SECONDS, c=0.05, v=1.2)
ADAPTED = {
    "gammas": [0, 1, 2],
    "adaptive_over_fixed": {"median": 1.25, "low": 1.1, "high": 1.3, "count": 5},
}


@pytest.fixture
def data(tmp_path):
    """A task's file: sources and references."""
    path = tmp_path / "task.test.tsv.xz"
    path.write_bytes(lzma.compress(b"ab\tabab\nx y z\tzyx\n"))
    return path


def test_counted_outputs_are_a_draft_of_the_same_text(call, tiny, folders, tmp_path):
    (tmp_path / "in").write_text("\n".join(LINES) + "\n")
    path, flags = tmp_path / "ngrams", ("--target", folders[0], "--max_tokens", 12)
    status, out, _ = call("count", *flags, "--input", tmp_path / "in", "--out", path)
    assert status == 0
    assert out.startswith(f"{path}: 2-gram of ")
    notes = ngram_file.read(path).notes
    assert notes["counted"] == "outputs of the target"
    assert (notes["target"], notes["texts"]) == ("target", "3")
    assert str(tmp_path) not in str(dict(notes))
    plain = tiny("--baseline", *LINES)[1]
    assert tiny("--draft", path, *LINES) == (0, plain, "")


def test_references_can_be_counted(call, folders, data, tmp_path):
    flags = ("--target", folders[0], "--order", 2, "--references")
    assert call("count", *flags, "--input", data, "--out", tmp_path / "ngrams")[0] == 0
    notes = ngram_file.read(tmp_path / "ngrams").notes
    # abab and zyx, a byte a token, with an end each.
    assert (notes["counted"], notes["tokens"], notes["texts"]) == ("references", "9", "2")


def test_what_was_tuned_is_taken(call, tiny, folders, data, tmp_path, monkeypatch):
    monkeypatch.setattr(tune, "step_costs", lambda *a, **k: COSTS)
    # Measured in tests/bench/test_tune.py; compiling its loops takes a minute.
    monkeypatch.setattr(tune, "adapting", lambda *a, gamma, **k: ADAPTED | {"gamma": gamma})
    flags = ("--target", folders[0], "--draft", folders[1], "--max_tokens", 12)
    options = ("--data", data, "--gammas", 1, 2, "--out", tmp_path / "tuned")
    status, out, _ = call("tune", *flags, *options)
    assert status == 0
    assert "gamma  alpha at" in out
    path = tmp_path / "tuned/tuned.json"
    record = json.loads(path.read_text("utf-8"))
    assert (record["target"], record["draft"], record["sentences"]) == ("target", "draft", 2)
    assert str(tmp_path) not in path.read_text("utf-8").replace(record["command"], "")
    assert f"GAMMA = {record['gamma']}\n" in (tmp_path / "tuned/tuned.gin").read_text("utf-8")
    seen = []
    monkeypatch.setattr(generate, "generate", lambda *a, **k: seen.append(a[2].gamma) or [])
    path.write_text(json.dumps(record | {"gamma": 5}))
    assert tiny("--tuned", path, "x") == (0, "", "")
    assert seen == [5]
    status, _, err = tiny("--tuned", path, "--temperature", 1, "x")
    assert (status, seen) == (0, [5, 5])
    assert err == "gamma 5 was tuned at temperature 0.0; here another may be faster.\n"
    status, _, err = tiny("--tuned", path, "--draft", "uniform", "x")
    assert status == 2
    assert "was tuned for the draft draft, and uniform is to be used" in err


def test_alphas_are_rows_and_a_table(call, folders, data, tmp_path):
    flags = ("--target", folders[0], "--data", data, "--out", tmp_path / "found")
    options = ("--drafts", folders[1], "lookup", "--tokens", 4, "--max_tokens", 4)
    status, out, _ = call("alphas", *flags, *options, "--batch_size", 2, "--task", "summarize")
    assert status == 0
    record = json.loads((tmp_path / "found/alphas.json").read_text("utf-8"))
    places = [(r["draft"], r["temperature"], r["lenience"]) for r in record["rows"]]
    leniences = (1.0, 0.5, 0.3, 0.1)
    assert places == [
        (draft, t, lenience)
        for t in (0.0, 1.0)
        for draft in ("draft", "lookup")
        for lenience in leniences
    ]
    for row in record["rows"]:
        assert row["task"] == "summarize"
        assert row["rule"] == ("rejection" if row["temperature"] else "argmax")
        assert row["tokens"] >= 4
        assert 0 <= row["alpha"] <= 1
        assert row["lossy"] is (row["lenience"] < 1)
    assert (tmp_path / "found/alphas.md").read_text("utf-8") == out
    assert "| summarize | draft | " in out


def test_every_lenient_output_says_so(tiny):
    flags = ("--lenience", 0.5, "--temperature", 1)
    status, out, err = tiny(*flags, "ab", "cd")
    assert status == 0
    assert err.startswith("LOSSY: ")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["LOSSY"] * 2
    record = json.loads(tiny(*flags, "--json", "ab")[1])
    assert (record["lossy"], record["lenience"]) == (True, 0.5)
    assert 0 < record["total_variation"] < 1
    assert record["text"] == out.splitlines()[0].split("\t")[1]
    exact = json.loads(tiny("--temperature", 1, "--json", "ab")[1])
    assert exact["lossy"] is False
    assert "total_variation" not in exact


def test_a_lenient_record_says_how_far_it_is(call, folders, tmp_path, monkeypatch):
    monkeypatch.setattr("specdec_jax.bench.compare.step_costs", lambda *a, **k: COSTS)
    (tmp_path / "in").write_text("ab\n")
    flags = ("--target", folders[0], "--draft", folders[1], "--shape", "own", "--gamma", 2)
    options = ("--input", tmp_path / "in", "--json", tmp_path / "out", "--max_tokens", 12)
    way = ("--lenience", 0.5, "--temperature", 1, "--repeats", 1)
    status, out, err = call("bench", *flags, *options, *way)
    assert status == 0, err
    record = json.loads((tmp_path / "out").read_text("utf-8"))
    assert (record["lossy"], record["lenience"]) == (True, 0.5)
    assert 0 < record["total_variation"] < 1
    assert out.startswith("LOSSY ")
    assert f"{record['total_variation']:.3f}" in out.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("count", "--input", "{tmp}/none", "--out", "{tmp}/o"), "There is no file {tmp}/none"),
        (("count", "--input", "{tmp}/in", "--out", "{tmp}/no/o"), "no folder {tmp}/no"),
        (("count", "--input", "{tmp}/in", "--out", "{tmp}/o", "--order", "0"), "--order is 0"),
        (("count", "--input", "{tmp}/bad.xz", "--out", "{tmp}/o"), "{tmp}/bad.xz cannot be read"),
        (("tune", "--data", "{tmp}/none", "--out", "{tmp}/o"), "There is no file {tmp}/none"),
        (("tune", "--out", "{tmp}/in"), "{tmp}/in, which is a file: give a folder"),
        (("tune", "--task", "sing"), "no prefix for the task 'sing'"),
        (("tune", "--repeats", "0"), "--repeats is 0"),
        (("alphas", "--data", "{tmp}/in", "--drafts", "d", "--out", "{tmp}/no/o"), "{tmp}/no."),
        (("generate", "--tuned", "{tmp}/in", "x"), "{tmp}/in is not a JSON record"),
        (("generate", "--tuned", "{tmp}/other", "x"), "{tmp}/other is no record of `specdec tune`"),
    ],
)
def test_mistakes_are_one_sentence(call, unloaded, tmp_path, arguments, told):
    (tmp_path / "in").write_text("hello\n")
    (tmp_path / "other").write_text("{}")
    (tmp_path / "bad.xz").write_bytes(b"hello")
    status, out, err = call(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert (status, out) == (2, "")
    assert err.startswith("specdec: ")
    assert told.format(tmp=tmp_path) in err
    assert err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.xz", "in", "other"]


@pytest.mark.parametrize("content", [b"hello", b""])
def test_a_file_that_is_no_draft_is_told(tiny, tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    status, out, err = tiny("--draft", tmp_path / "file", "ab")
    assert (status, out) == (2, "")
    assert "is no file of n-grams" in err
    assert err.count("\n") == 1
