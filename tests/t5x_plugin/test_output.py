"""What t5x.infer writes and tells; whole runs, killed ones too, are in test_infer_runs."""

import json

import pytest
from t5x import infer, utils

from specdec_jax.errors import SpecdecError
from specdec_jax.t5x_plugin import output, tasks

LINES, SIZE = 11, 4


@pytest.fixture
def config(tmp_path):
    rows = "".join(f"source {n}\ttarget {n}\n" for n in range(LINES))
    (tmp_path / "debian_ende.test.tsv").write_text(rows)
    return utils.DatasetConfig(
        mixture_or_task_name=tasks.local_task("debian_ende", str(tmp_path)),
        task_feature_lengths={"inputs": 8, "targets": 8},
        split="test",
        batch_size=SIZE,
        shuffle=False,
        seed=None,
    )


@pytest.fixture
def told(config, tmp_path, monkeypatch):
    """Returns a function that writes one chunk, two seconds after the last, and its message."""
    said, seconds = [], iter(range(0, 1000, 2))
    monkeypatch.setattr(output.logging, "info", lambda form, *values: said.append(form % values))

    def write(path, inferences, extra, mode):
        assert (extra, mode) == ("dataset", "predict")
        with open(path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in inferences[0])

    writer = output.Writer(config, write, clock=lambda: next(seconds))

    def call(chunk, shards=1):
        rows = list(range(LINES))[chunk * SIZE :][:SIZE]
        name = f"specdec_debian_ende-predict.jsonl-00000-of-{shards:05}-chunk{chunk:05}"
        writer(f"{tmp_path}/{name}", (rows, {}), "dataset", mode="predict")
        return said[-1]

    return call


def test_chunks_are_told_with_rate_and_time_left(told):
    # Four lines in two seconds, compilation included.
    assert told(0) == "specdec_debian_ende: 4 of 11 lines, 2.0 a second, 0:00:04 left"
    assert told(1) == "specdec_debian_ende: 8 of 11 lines, 2.0 a second, 0:00:02 left"
    assert told(2) == "specdec_debian_ende: 11 of 11 lines, 1.8 a second, 0:00:00 left"


def test_a_second_run_counts_what_the_first_has_written(told, tmp_path):
    name = "specdec_debian_ende-predict.jsonl-00000-of-00001-chunk00000"
    (tmp_path / name).write_text("\n" * SIZE)
    # The last chunk is shorter than the others.
    assert told(2).startswith("specdec_debian_ende: 11 of 11 lines, 1.5 a second")


def test_a_shard_has_its_share(told):
    assert told(0, shards=2).startswith("specdec_debian_ende: 4 of 6 lines")


def test_a_foreign_name_is_refused(config, tmp_path):
    writer = output.Writer(config, lambda *_: None)
    with pytest.raises(SpecdecError, match="other is no name that T5X gives to a chunk"):
        writer(f"{tmp_path}/other", ([1], {}))


def test_the_output_appears_whole_and_marked(tmp_path):
    out, chunks = tmp_path / "out", tmp_path / "tmp"
    out.mkdir()
    chunks.mkdir()
    for number in range(3):
        (chunks / f"task-chunk{number:05}").write_text(f"line {number}\n")

    def killed(output_dir, output_fname, *rest):
        infer.merge_chunks_to_file(output_dir, output_fname, *rest)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        output.join(str(out), "task", str(chunks), None, merge_fn=killed)
    assert not list(out.iterdir())
    output.join(str(out), "task", str(chunks), None, merge_fn=infer.merge_chunks_to_file)
    assert (out / "task").read_text() == "line 0\nline 1\nline 2\n"
    assert (out / "task.COMPLETED").exists()
