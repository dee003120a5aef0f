"""n-grams in a file: what is read is what was written, and nothing else is read."""

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from specdec_jax import text
from specdec_jax.drafts import ngram_file
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import load_draft
from specdec_jax.text import ByteVocabulary
from specdec_jax.training import ngrams

TEXTS = [[5, 6, 5, 6, 1], [5, 7, 1], [6, 1], [258, 5, 6, 7, 1]]
V = ByteVocabulary.size


def counted(order=3):
    return ngrams.count_ngrams(TEXTS, V, order=order, keep=4)


@pytest.fixture
def path(tmp_path):
    ngrams.save(tmp_path / "ngrams", counted(), ByteVocabulary(), {"tokens": "14"})
    return tmp_path / "ngrams"


@pytest.mark.parametrize("order", [1, 2, 3])
def test_what_is_read_guesses_as_what_was_written(tmp_path, order):
    before = counted(order)
    ngrams.save(tmp_path / "file", before, ByteVocabulary(), {"counted": "here"})
    found = ngram_file.read(tmp_path / "file")
    assert found.notes == {"counted": "here"}
    past = jnp.array([[5, 6], [258, 5], [0, 0], [9, 9], [7, 1]], jnp.int32)[:, : order - 1]
    np.testing.assert_array_equal(found.draft.probabilities(past), before.probabilities(past))
    assert found.draft.describe() == before.describe()


def test_a_file_is_small(path):
    """A pair takes an id of two bytes and a probability of four; no table is padded."""
    levels = counted().levels
    pairs = sum(int((np.asarray(level.probs) > 0).sum()) for level in levels)
    contexts = sum(len(level.contexts) for level in levels)
    assert path.stat().st_size < 6 * pairs + 10 * contexts + 4 * V + 1200


def test_load_draft_takes_a_file_of_the_same_vocabulary(path, tmp_path):
    draft, described = load_draft(str(path), ByteVocabulary())
    assert draft.vocab_size == V
    assert described == f"3-gram of {sum(len(x.contexts) for x in draft.levels)} contexts V{V}"
    assert load_draft(f"lookup+{path}", ByteVocabulary())[1] == f"lookup+{described}"
    ngram_file.write(tmp_path / "other", counted(), vocabulary="somebody's")
    with pytest.raises(SpecdecError, match=r"another vocabulary \(259 ids\).*count them anew"):
        load_draft(str(tmp_path / "other"), ByteVocabulary())


def test_fingerprints_differ_where_pieces_do():
    class Other(ByteVocabulary):
        def piece(self, token_id):
            return "x" if token_id == 200 else super().piece(token_id)

    assert text.fingerprint(ByteVocabulary()) == text.fingerprint(ByteVocabulary())
    assert text.fingerprint(Other()) != text.fingerprint(ByteVocabulary())


def change(name, function):
    def of(path):
        with safetensors.safe_open(path, framework="numpy") as file:
            arrays = {n: file.get_tensor(n) for n in file.keys()}  # noqa: SIM118
            about = file.metadata()
        arrays[name] = function(arrays[name])
        path.write_bytes(safetensors.numpy.save(arrays, about))

    return of


def drop(path):
    with safetensors.safe_open(path, framework="numpy") as file:
        about = file.metadata()
        unigram = file.get_tensor("unigram")
    path.write_bytes(safetensors.numpy.save({"unigram": unigram, "more": unigram}, about))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda path: path.write_bytes(b"hello"), "is no file of n-grams"),
        (lambda path: path.write_bytes(b""), "is no file of n-grams"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is no file of n-grams"),
        (
            lambda path: path.write_bytes(safetensors.numpy.save({"a": np.ones(2)})),
            "no file of n-grams .*give one that `specdec count` wrote, or the folder",
        ),
        (drop, "damaged: it has other arrays than 1-grams"),
        (change("unigram", lambda x: 0 * x), "damaged: the unigram is no distribution"),
        (change("unigram", lambda x: x * np.nan), "damaged: the unigram is no distribution"),
        (change("2/tokens", lambda x: x + 300), "damaged: level 2 is no table of 259 ids"),
        (change("1/contexts", lambda x: x[::-1].copy()), "damaged: level 1 is no table"),
        (change("1/kept", lambda x: x + np.uint16(1)), "damaged: level 1 is no table"),
        (change("1/probs", lambda x: x / 2), "level 1 has probabilities that are not 1 in all"),
    ],
)
def test_a_harmed_file_is_told_in_one_sentence(path, harm, told):
    harm(path)
    with pytest.raises(SpecdecError, match=told) as raised:
        ngram_file.read(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_nothing_is_half_written(tmp_path):
    with pytest.raises(SpecdecError, match="nothing was written"):
        ngrams.save(tmp_path / "no" / "file", counted(), ByteVocabulary())
