"""The seqio tasks: registered without reading anything; the local ones read TSV files."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import seqio

from specdec_jax import text
from specdec_jax.errors import SpecdecError
from specdec_jax.t5x_plugin import tasks

DATA = Path(__file__).parents[1] / "data"
LENGTHS = {"inputs": 64, "targets": 48}


@pytest.fixture
def folder(tmp_path):
    shutil.copy(DATA / "ende_200.tsv", tmp_path / "debian_ende.test.tsv")
    shutil.copy(DATA / "synopsis_100.tsv", tmp_path / "debian_synopsis.test.tsv")
    return tmp_path


def examples(task, split="test"):
    dataset = task.get_dataset(LENGTHS, split, shuffle=False)
    return list(dataset.as_numpy_iterator())


@pytest.mark.parametrize(
    ("corpus", "file"),
    [("debian_ende", "ende_200.tsv"), ("debian_synopsis", "synopsis_100.tsv")],
)
def test_local_tasks_are_what_our_own_front_door_reads(corpus, file, folder, monkeypatch):
    monkeypatch.setenv("SPECDEC_DATA", str(folder))
    found = examples(seqio.TaskRegistry.get(f"specdec_{corpus}"))
    lines = (DATA / file).read_text(encoding="utf-8").splitlines()
    assert len(found) == len(lines)
    vocabulary = text.Vocabulary(tasks.shipped_vocabulary().sentencepiece_model_file)
    for example, line in list(zip(found, lines, strict=True))[::10]:
        source, target = line.split("\t")
        ids = vocabulary.encode(text.prefix(corpus) + source)[: LENGTHS["inputs"] - 1]
        np.testing.assert_array_equal(example["inputs"], [*ids, 1])
        ids = vocabulary.encode(target)[: LENGTHS["targets"] - 1]
        np.testing.assert_array_equal(example["targets"], [*ids, 1])


def test_the_folder_may_be_given_in_gin(folder, monkeypatch):
    monkeypatch.setenv("SPECDEC_DATA", "/nowhere")
    assert len(examples(tasks.local_task("debian_ende", folder=str(folder)))) == 200
    with pytest.raises(SpecdecError, match=r"nowhere.*build_data"):
        examples(tasks.local_task("debian_ende"))
    with pytest.raises(SpecdecError, match="choose one of debian_ende"):
        tasks.local_task("debian")


def test_the_papers_tasks_have_t5s_words_and_vocabulary():
    import tensorflow as tf

    for name, columns, words in (
        ("specdec_wmt_ende", {"en": "Hello", "de": "Hallo"}, "translate English to German: Hello"),
        ("specdec_cnn_dailymail", {"article": "Hello", "highlights": "Hi"}, "summarize: Hello"),
    ):
        task = seqio.TaskRegistry.get(name)
        made = task.preprocessors[0](tf.data.Dataset.from_tensors(columns))
        (example,) = made.as_numpy_iterator()
        assert example["inputs"].decode() == words
        vocabulary = task.output_features["inputs"].vocabulary
        assert vocabulary.sentencepiece_model_file == tasks.T5_VOCABULARY


def test_a_part_of_a_split(folder, monkeypatch):
    monkeypatch.setenv("SPECDEC_DATA", str(folder))
    task = tasks.local_task("debian_ende")
    whole = examples(task)
    for split, part in (
        ("test[:3]", whole[:3]),
        ("test[5:8]", whole[5:8]),
        ("test[198:]", whole[198:]),
    ):
        for found, wanted in zip(examples(task, split), part, strict=True):
            np.testing.assert_array_equal(found["inputs"], wanted["inputs"])
    with pytest.raises(SpecdecError, match=r"test\[a:b\]"):
        examples(task, "test[:10%]")


def test_metrics():
    lines = ["the cat sat on the mat", "a dog ran to the big house"]
    assert tasks.bleu(lines, lines)["bleu"] == pytest.approx(100)
    assert tasks.rouge(lines, lines)["rougeLsum"] == pytest.approx(100)
    assert tasks.bleu(lines, lines[::-1])["bleu"] < 20
    assert tasks.rouge(lines, lines[::-1])["rouge2"] < 20
