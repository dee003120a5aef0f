from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from specdec_jax.errors import SpecdecError
from specdec_jax.text import (
    BUCKETS,
    PREFIXES,
    ByteVocabulary,
    Vocabulary,
    encode_batch,
    prefix,
    same_vocabulary,
)

MODELS = Path(str(files("specdec_jax"))) / "models"
MODEL = MODELS / "ende_target" / "vocabulary.model"
DATA = Path(__file__).parent / "data"


def pairs(path: Path) -> list[tuple[str, str]]:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [(source, target) for source, target in rows]


@pytest.fixture(scope="module")
def shipped():
    return Vocabulary(MODEL)


@pytest.fixture(params=["sentencepiece", "bytes"])
def vocabulary(request, shipped):
    return shipped if request.param == "sentencepiece" else ByteVocabulary()


def test_the_shipped_vocabulary_has_t5s_special_pieces(shipped):
    assert shipped.size == 2048
    assert [shipped.piece(i) for i in range(3)] == ["<pad>", "</s>", "<unk>"]


@pytest.mark.parametrize("text", sorted(set(PREFIXES.values())))
def test_a_prefix_is_one_symbol_and_the_text_after_it_is_untouched(shipped, text):
    ids = shipped.encode(text + "foo")
    # Segmentation puts the meta space of a line's beginning first.
    assert [shipped.piece(i) for i in ids[:2]] == ["▁", text.strip().replace(" ", "▁")]
    assert ids[2:] == shipped.encode("foo")
    assert shipped.decode(ids) == text + "foo"


def test_prefixes_are_t5s_and_an_unknown_task_is_told_the_known_ones():
    assert prefix("ende") == prefix("descriptions_ende") == "translate English to German: "
    assert prefix("summarize") == prefix("debian_synopsis") == "summarize: "
    with pytest.raises(SpecdecError, match=r"no prefix for the task 'fren': choose one of ende, "):
        prefix("fren")


@pytest.mark.parametrize("text", ["Grüße, schöne Welt!", "☃ 漢字 🙂", "a", ""])
def test_text_survives_the_round_trip(vocabulary, text):
    ids = vocabulary.encode(text)
    assert vocabulary.unk_id not in ids
    assert vocabulary.decode(ids) == text


def test_special_pieces_spelt_in_a_text_are_text(vocabulary):
    ids = vocabulary.encode("</s> <pad>")
    assert min(ids) > 2
    assert vocabulary.decode(ids) == "</s> <pad>"


def test_decoding_ends_at_the_first_end_and_skips_pads(vocabulary):
    hello, world = vocabulary.encode("hello"), vocabulary.encode("world")
    assert vocabulary.decode([0, *hello, 0, 1, *world, 1, 0]) == "hello"
    assert vocabulary.decode(np.array([*hello, 1, *world], np.int32)) == "hello"
    assert vocabulary.decode([1, *hello]) == ""


def test_an_id_of_a_networks_padding_does_not_break_decoding(shipped):
    ids = shipped.encode("hello")
    assert shipped.decode([*ids, 4200]) == shipped.decode([*ids, shipped.unk_id])
    assert ByteVocabulary().decode([3 + ord("a"), 300, 3 + ord("b")]) == "ab"


def test_bytes_are_their_value_plus_three():
    vocabulary = ByteVocabulary()
    assert vocabulary.encode("aé") == [0x61 + 3, 0xC3 + 3, 0xA9 + 3]
    assert [vocabulary.piece(i) for i in (0, 1, 2, 0x61 + 3)] == [
        "<pad>",
        "</s>",
        "<unk>",
        "<0x61>",
    ]
    # Half a character, as a model may generate one.
    assert vocabulary.decode([0x61 + 3, 0xC3 + 3]) == "a"
    assert max(vocabulary.encode("".join(map(chr, range(1000))))) < vocabulary.size


def test_a_missing_file_is_told_with_its_path(tmp_path):
    with pytest.raises(
        SpecdecError, match=r"no vocabulary file at .*/spiece\.model: give the path"
    ):
        Vocabulary(tmp_path / "spiece.model")


@pytest.mark.parametrize("content", [b"", b"<pad>\t0\n</s>\t0\n"])
def test_a_file_that_is_no_model_is_told(tmp_path, content):
    path = tmp_path / "v.vocab"
    path.write_bytes(content)
    with pytest.raises(SpecdecError, match=r"v\.vocab is not a sentencepiece model \("):
        Vocabulary(path)


def test_other_special_ids_than_t5s_are_told(tmp_path):
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(["some words to learn from", "and some more of them"]),
        model_prefix=str(tmp_path / "llama"),
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    with pytest.raises(SpecdecError, match=r"unknown ids \(-1, 2, 0\), T5 has \(0, 1, 2\)"):
        Vocabulary(tmp_path / "llama.model")


def test_vocabularies_must_agree_in_size_and_pieces(shipped, monkeypatch):
    same_vocabulary(shipped, Vocabulary(MODEL))
    with pytest.raises(SpecdecError, match=r"target's vocabulary has 2048 pieces, the draft's 259"):
        same_vocabulary(shipped, ByteVocabulary())
    other = Vocabulary(MODEL)
    monkeypatch.setattr(other, "piece", lambda i: "▁other" if i == 77 else shipped.piece(i))
    with pytest.raises(SpecdecError, match=r"id 77 is '.*' in the target's .* '▁other' in the dr"):
        same_vocabulary(shipped, other)


@pytest.mark.parametrize(
    ("characters", "length"), [(0, 32), (31, 32), (32, 64), (63, 64), (64, 128), (511, 512)]
)
def test_a_batch_takes_the_smallest_bucket_that_fits_with_the_end(characters, length):
    batch = encode_batch(ByteVocabulary(), ["a" * characters, "b"])
    assert batch.shape == (2, length)
    assert batch.dtype == np.int32
    np.testing.assert_array_equal(
        batch[0], [100] * characters + [1] + [0] * (length - characters - 1)
    )
    np.testing.assert_array_equal(batch[1], [101, 1] + [0] * (length - 2))


def test_buckets_need_no_order():
    assert encode_batch(ByteVocabulary(), ["abcd"], buckets=(9, 5, 7)).shape == (1, 5)


def test_an_empty_line_is_a_row_of_its_own(vocabulary):
    lines = ["one", "", "three"]
    batch = encode_batch(vocabulary, lines)
    assert list(batch[1]) == [1] + [0] * 31
    assert [vocabulary.decode(row) for row in batch] == lines
    assert encode_batch(vocabulary, []).shape == (0, 32)


def test_a_line_too_long_is_named_with_both_lengths():
    with pytest.raises(
        SpecdecError, match="line 2 has 513 tokens with its end, the longest bucket 512: split"
    ):
        encode_batch(ByteVocabulary(), ["a", "b" * 512])


def test_truncation_keeps_the_end_and_counts_the_lines_cut():
    batch, cut = encode_batch(
        ByteVocabulary(), ["abcde", "abc", "abcd"], buckets=(2, 4), truncate=True
    )
    assert cut == 2
    np.testing.assert_array_equal(batch, [[100, 101, 102, 1]] * 3)


@pytest.mark.parametrize(("name", "count"), [("ende_200.tsv", 200), ("synopsis_100.tsv", 100)])
def test_the_sample_texts_are_distinct_pairs_that_fit_a_bucket(shipped, name, count):
    rows = pairs(DATA / name)
    assert len({source for source, _ in rows}) == len(rows) == count
    assert all(len(target.split()) >= 5 for _, target in rows)
    assert encode_batch(shipped, [source for source, _ in rows]).shape[1] <= max(BUCKETS)


@pytest.mark.parametrize(
    ("name", "least", "most"), [("demo_ende.tsv", 8, 25), ("demo_synopsis.tsv", 20, 45)]
)
def test_the_demo_sentences_are_short_and_distinct(name, least, most):
    rows = pairs(MODELS / name)
    assert len({source for source, _ in rows}) == len(rows) == 24
    assert all(least <= len(source.split()) <= most for source, _ in rows)
