from collections import Counter

import pytest

from specdec_jax.corpus.filters import (
    SPLITS,
    Pair,
    select,
    split_of,
    synopsis_fault,
    translation_fault,
)

GOOD = ("a program that lists files", "ein Programm, das Dateien auflistet")


def translation(source: str, target: str) -> str | None:
    return translation_fault(Pair("paragraph", "g", source, target))


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (*GOOD, None),
        ("two words", "zwei Wörter", "length"),
        ("word " * 81, "Wort " * 80, "length"),
        (GOOD[0], "Einwort", "length"),
        (GOOD[0], GOOD[0], "untranslated"),
        ("a program that lists the files", "ein Programm", "ratio"),
        ("x y z", "ein Programm, das Dateien auflistet", "ratio"),
        ("1234 5678 9012 files there", "1234 5678 9012 Dateien dort", "symbols"),
        ("could not open the file %s", "kann Datei %s nicht öffnen", "markup"),
        ("the file <b> is not there now", "die Datei ist gerade nicht da", "markup"),
        ("the pages at https://x are good", "die Seiten sind alle sehr gut", "markup"),
        ("the argument (ARG1) is missing here", "das Argument fehlt hier leider", "markup"),
        ("fifty (MD5) files are in there", "fünfzig Dateien (MD5) sind da", None),
    ],
)
def test_translations_are_dropped_for_the_first_fault(source, target, reason):
    assert translation(source, target) == reason


def test_the_length_bounds_are_inclusive():
    assert translation("a b" + " word" * 78, "x" + " Wort" * 79) is None
    assert translation("see this file", "diese Datei") is None


def test_summaries_need_a_long_source_and_a_short_target():
    body, synopsis = " ".join(["word"] * 12), "three words here"
    assert synopsis_fault(Pair("synopsis", "g", body, synopsis)) is None
    assert synopsis_fault(Pair("synopsis", "g", body[5:], synopsis)) == "length"
    assert synopsis_fault(Pair("synopsis", "g", body, "two words")) == "length"
    assert synopsis_fault(Pair("synopsis", "g", body, "word " * 21)) == "length"
    assert synopsis_fault(Pair("synopsis", "g", body + " 12345" * 8, synopsis)) == "symbols"


def test_the_split_holds_out_two_percent_each_and_never_changes():
    counts = Counter(split_of(f"package-{i}") for i in range(20_000))
    # 400 expected, standard deviation 20: five of them.
    assert abs(counts["test"] - 400) < 100
    assert abs(counts["validation"] - 400) < 100
    # Held out when the sample texts and the shipped models were made, so for ever.
    assert [split_of(name) for name in ("scribus", "openbox", "akonadi", "tuxtype")] == ["test"] * 4


def test_a_group_is_never_torn_apart_and_catalogs_only_train():
    pairs = [Pair("paragraph", "scribus", f"text {'abcdefgh'[i]}", "t") for i in range(8)]
    pairs.append(Pair("catalog", "scribus", "a message", "t"))
    kept = select(pairs).kept
    assert sorted(kept["test"]) == pairs[:8]
    assert kept["train"] == pairs[8:]
    assert kept["validation"] == []


def test_the_first_of_duplicates_is_kept():
    pairs = [
        Pair("paragraph", "g", "GNU C Library: 2.36, headers", "erste"),
        Pair("catalog", "g", "gnu c library - headers", "zweite"),
    ]
    selection = select(pairs)
    assert [pair.target for split in SPLITS for pair in selection.kept[split]] == ["erste"]
    assert selection.dropped == {"duplicate": 1}


def test_a_common_target_is_kept_so_many_times():
    pairs = [Pair("synopsis", "g", f"text {'abcde'[i]}", f"Same name {i}") for i in range(5)]
    selection = select(pairs, most_targets=3)
    assert sum(map(len, selection.kept.values())) == 3
    assert selection.dropped == {"common target": 2}


def test_the_order_of_rows_does_not_depend_on_their_arrival():
    pairs = [Pair("paragraph", "g", f"text {chr(97 + i)}", "t") for i in range(20)]
    rows = select(pairs).kept[split_of("g")]
    assert rows == select(pairs[::-1]).kept[split_of("g")]
    assert rows != pairs
    fewer = select(pairs[5:]).kept[split_of("g")]
    assert fewer == [row for row in rows if row in pairs[5:]]
