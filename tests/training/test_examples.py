"""Pairs of texts as batches: an order that the step number alone determines."""

import lzma
from collections import Counter

import numpy as np
import pytest

from specdec_jax.training.examples import Batches, encode_pairs, group, pad, read_pairs


class Letters:
    """A vocabulary of letters."""

    eos_id = 1

    def encode(self, text):
        return [ord(c) for c in text]


def examples(lengths):
    """One example for each (source, target) length, told apart by its ids."""
    return [([2 + i] * s, [2 + i] * t) for i, (s, t) in enumerate(lengths)]


MIXED = examples([(3, 2), (1, 4), (4, 4), (5, 1), (2, 8), (7, 7), (6, 6), (8, 1), (9, 2), (1, 9)])
"""Three of up to 4 tokens, five of up to 8, and two that are too long."""


def batches(**kwargs):
    return Batches(MIXED, **{"tokens": 32, "shapes": ((4, 4), (8, 8)), **kwargs})


def members(batch):
    return (batch.source.max(1) - 2).tolist()


def test_rows_and_lengths():
    stream = batches()
    # Three of length 4 in rows of 32 // (4 + 4), five of length 8 in rows of 32 // (8 + 8).
    assert stream.per_epoch == 1 + 3
    shapes = Counter(stream(step).source.shape for step in range(stream.per_epoch))
    assert shapes == {(4, 4): 1, (2, 8): 3}
    for step in range(4):
        source, target, states = stream(step)
        assert states is None
        assert source.dtype == target.dtype == np.int32
        assert source.shape == target.shape
        for row, i in enumerate(members(stream(step))):
            s, t = MIXED[i]
            assert source[row].tolist() == s + [0] * (source.shape[1] - len(s))
            assert target[row].tolist() == t + [0] * (target.shape[1] - len(t))


def test_an_epoch_covers_every_example_that_fits():
    stream = batches()
    for epoch in range(5):
        steps = range(4 * epoch, 4 * epoch + 4)
        seen = Counter(i for step in steps for i in members(stream(step)))
        assert set(seen) == set(range(8))
        # The rows of the last batch of each length that were left: one of 4, one of 8.
        assert sorted(seen.values()) == [1] * 6 + [2] * 2
        assert len([i for i in seen if seen[i] == 2 and i < 3]) == 1


def test_a_batch_is_a_function_of_the_step():
    """Whatever was asked before, so a run that was killed sees what it would have seen."""
    first, later = batches(), batches()
    expected = [first(step) for step in range(40)]
    for step in (39, 3, 17, 0, 21, 8):
        for a, b in zip(later(step)[:2], expected[step][:2], strict=True):
            np.testing.assert_array_equal(a, b)


def test_epochs_and_seeds_differ():
    def order(stream, epoch):
        return [members(stream(step)) for step in range(4 * epoch, 4 * epoch + 4)]

    stream = batches()
    assert len({str(order(stream, epoch)) for epoch in range(6)}) > 3
    assert len({str(order(batches(seed=seed), 0)) for seed in range(6)}) > 3


def test_two_streams_do_not_share_their_order():
    """The order is kept for each instance, and two may have equal fields."""
    short, whole = Batches(MIXED[:3], 32, shapes=((4, 4), (8, 8))), batches()
    assert [short(0).source.shape, whole.per_epoch, short.per_epoch] == [(4, 4), 4, 1]
    assert {i for step in range(4) for i in members(whole(step))} == set(range(8))


def test_a_batch_has_at_least_one_row():
    assert batches(tokens=3)(0).source.shape in {(1, 4), (1, 8)}


@pytest.mark.parametrize(
    ("pairs", "count"), [([], 0), (examples([(9, 1), (1, 12)]), 2)], ids=["none", "too long"]
)
def test_nothing_that_fits_is_an_error(pairs, count):
    stream = Batches(pairs, shapes=((4, 4), (8, 8)))
    told = rf"None of the {count} examples fits into \(8, 8\) tokens"
    with pytest.raises(ValueError, match=told):
        stream(0)


def test_pad():
    source, target, _ = pad([([5, 6], [7]), ([8], [9, 10, 11])], (2, 4))
    assert source.tolist() == [[5, 6], [8, 0]]
    assert target.tolist() == [[7, 0, 0, 0], [9, 10, 11, 0]]


def test_an_example_goes_into_the_first_shape_that_holds_both_sides():
    shapes = ((4, 2), (4, 8), (8, 8))
    assert group(MIXED, shapes).tolist() == [0, 1, 1, 2, 1, 2, 2, 2, 3, 3]
    assert group([], shapes).tolist() == []


def test_a_teacher_s_states_lie_where_their_tokens_do():
    states = [np.full((len(t), 3), i, np.float16) for i, (_, t) in enumerate(MIXED)]
    stream = batches(states=states)
    for step in range(stream.per_epoch):
        batch = stream(step)
        assert (batch.states.shape, batch.states.dtype) == ((*batch.target.shape, 3), np.float16)
        for row, i in enumerate(members(batch)):
            count = len(MIXED[i][1])
            assert np.all(batch.states[row, :count] == i)
            assert not np.any(batch.states[row, count:])


def test_long_sources_are_cut_before_the_end_token():
    pairs = [("abcd", "efghi"), ("a", "b")]
    assert encode_pairs(pairs, Letters(), "x", longest=4) == [
        ([*map(ord, "xab"), 1], [*map(ord, "efghi"), 1]),
        ([*map(ord, "xa"), 1], [ord("b"), 1]),
    ]


def test_encode_pairs_ends_both_and_puts_the_prefix_before_the_source():
    assert encode_pairs([("a", "bc")], Letters(), "x: ") == [
        ([*map(ord, "x: a"), 1], [*map(ord, "bc"), 1])
    ]


@pytest.mark.parametrize("suffix", [".tsv", ".tsv.xz"])
def test_read_pairs(tmp_path, suffix):
    path = tmp_path / f"pairs{suffix}"
    text = "ein Haus\ta house\nGrüße \t\n".encode()
    path.write_bytes(lzma.compress(text) if suffix.endswith("xz") else text)
    assert read_pairs(path) == [("ein Haus", "a house"), ("Grüße ", "")]
    assert read_pairs(str(path)) == read_pairs(path)


@pytest.mark.parametrize(("line", "fields"), [("alone", 1), ("a\tb\tc", 3), ("", 1)])
def test_a_line_without_one_tab_is_named(tmp_path, line, fields):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"good\tline\n{line}\n")
    with pytest.raises(ValueError, match=rf"Line 2 of .*pairs.tsv has {fields} fields; each line"):
        read_pairs(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"No training text at .*nowhere.tsv; scripts/"):
        read_pairs(tmp_path / "nowhere.tsv")
