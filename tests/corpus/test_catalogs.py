import struct

import pytest

from specdec_jax.corpus.catalogs import align_pages, plain, read_catalog, without_accelerators


def catalog(messages: dict[str, str], *, order: str = "<") -> bytes:
    """A `.mo` file: header, two tables of (length, offset), then the strings."""
    strings = [text.encode() for text in (*messages.keys(), *messages.values())]
    start = 28 + 8 * len(strings)
    table, data = b"", b""
    for text in strings:
        table += struct.pack(f"{order}2I", len(text), start + len(data))
        data += text + b"\0"
    count = len(messages)
    header = struct.pack(f"{order}7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0)
    return header + table + data


MESSAGES = {
    "": "Content-Type: text/plain; charset=UTF-8\n",
    "Open a file": "Datei öffnen",
    "menu\x04Close it": "Schließen",
    "%d file\0%d files": "%d Datei\0%d Dateien",
}


@pytest.mark.parametrize("order", ["<", ">"])
def test_messages_are_read_without_header_context_and_plurals(order):
    assert list(read_catalog(catalog(MESSAGES, order=order))) == [
        ("Open a file", "Datei öffnen"),
        ("Close it", "Schließen"),
    ]


def test_what_is_no_catalog_is_refused():
    with pytest.raises(ValueError, match="magic number"):
        list(read_catalog(b"#!/bin/sh\necho this is no catalog\n"))


@pytest.mark.parametrize("kept", [30, -30])
def test_a_catalog_cut_in_its_table_or_its_strings_is_refused(kept):
    with pytest.raises(ValueError, match="cut short"):
        list(read_catalog(catalog(MESSAGES)[:kept]))


def test_a_mark_that_is_no_accelerator_stays():
    assert without_accelerators("Cut & paste", "Kopieren") == ("Cut & paste", "Kopieren")
    assert without_accelerators("snake_case_name", "x_y") == ("snake_case_name", "x_y")
    assert without_accelerators("~File", "~Datei") == ("File", "Datei")


def test_plain_text_has_no_tags():
    assert plain('A <a href="x">link</a>\n&lt;here&gt;') == "A link <here>"


PAGE = '<page xmlns="http://projectmallard.org/1.0/"><title>{}</title><p>{}\n <em>x</em></p></page>'


def test_help_pages_align_when_their_outlines_agree():
    english = PAGE.format("Printing", "Choose").encode()
    german = PAGE.format("Drucken", "Wählen").encode()
    assert align_pages(english, german) == [("Printing", "Drucken"), ("Choose x", "Wählen x")]
    longer = german.replace(b"</page>", b"<p>mehr</p></page>")
    assert align_pages(english, longer) == []
    assert align_pages(english, german[:-3]) == []
