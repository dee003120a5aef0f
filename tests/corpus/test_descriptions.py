import textwrap

from specdec_jax.corpus.descriptions import (
    Description,
    parse,
    prose,
    source_packages,
    summaries,
    translations,
)
from specdec_jax.corpus.filters import Pair

ENGLISH = textwrap.dedent("""\
    Package: hello
    Description-md5: 0a
    Description-en: classic  greeting
     The program prints
     a greeting.
     .
     It can:
      * be polite
     .
     - one
     - two
     .
     Last words here.

    Package: orphan
    Description-md5: 0b
    Description-en: nobody translated this
     Text.
    """)
GERMAN = textwrap.dedent("""\
    Package: hello
    Description-md5: 0a
    Description-de: der klassische Gruß
     Das Programm gibt einen Gruß aus.
     .
     Es kann:
      * höflich sein
     .
     - eins
     - zwei
     .
     Letzte Worte hier.

    Package: changed
    Description-md5: 0c
    Description-de: Original ist nicht mehr da
     Text.
    """)


def test_a_stanza_becomes_synopsis_and_paragraphs():
    found = parse(ENGLISH, "en")
    assert list(found) == ["0a", "0b"]
    assert found["0a"] == Description(
        "hello",
        "classic greeting",
        [
            ["The program prints", "a greeting."],
            ["It can:", " * be polite"],
            ["- one", "- two"],
            ["Last words here."],
        ],
    )


def test_another_language_is_not_taken_for_the_one_asked():
    assert parse(GERMAN, "en") == {}


def test_lists_and_verbatim_lines_are_no_prose():
    assert prose(["The program", " prints."]) is None
    assert prose(["• item"]) is None
    assert prose(["The program ", "prints."]) == "The program prints."
    assert prose(["-dash without a blank is a word"]) == "-dash without a blank is a word"


def test_pairs_meet_by_checksum_and_keep_only_prose():
    pairs = list(translations(parse(ENGLISH, "en"), parse(GERMAN, "de"), {"hello": "greetings"}))
    assert pairs == [
        Pair("synopsis", "greetings", "classic greeting", "der klassische Gruß"),
        Pair(
            "paragraph",
            "greetings",
            "The program prints a greeting.",
            "Das Programm gibt einen Gruß aus.",
        ),
        Pair("paragraph", "greetings", "Last words here.", "Letzte Worte hier."),
    ]


def test_paragraphs_are_not_paired_when_their_number_differs():
    shorter = GERMAN.replace(" .\n Letzte Worte hier.\n", "")
    pairs = translations(parse(ENGLISH, "en"), parse(shorter, "de"), {})
    assert [pair.kind for pair in pairs] == ["synopsis"]


def test_a_package_without_a_source_field_is_its_own_source():
    index = "Package: libfoo1\nSource: foo (1.2)\n\nPackage: bar\nVersion: 1\n"
    assert source_packages(index) == {"libfoo1": "foo", "bar": "bar"}


def test_a_summary_reads_the_prose_up_to_120_words():
    body = [["one"] * 3, ["  table"], [f"w{i}" for i in range(200)]]
    pairs = list(summaries({"0a": Description("p", "short form", body)}, {"p": "s"}))
    (pair,) = pairs
    assert pair.group == "s"
    assert pair.target == "short form"
    assert pair.source.split() == ["one"] * 3 + [f"w{i}" for i in range(117)]
