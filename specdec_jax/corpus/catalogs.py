"""Translated program messages (gettext's binary catalogs) and help pages (Mallard)."""

from __future__ import annotations

import html
import re
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from specdec_jax.corpus.filters import squeeze

_MAGIC = 0x950412DE
_TAG = re.compile(r"<[^<>]{1,200}>")
# B<bold>, I<italic> and their kin: what tools leave that translate man pages through catalogs.
_POD = re.compile(r"[BIFCL]<([^<>]*)>")


def read_catalog(content: bytes) -> Iterator[tuple[str, str]]:
    """Messages of a `.mo` file with their translations, without plural forms and the header.

    The layout is that of the GNU gettext manual, "The Format of GNU MO Files": magic number,
    revision, count, then the offsets of two tables of (length, offset), originals and
    translations. A message's context stands before it and ends in the byte 4.

    Raises:
        ValueError: not a catalog, or cut short.
    """
    for order in "<>":
        if len(content) >= 20 and struct.unpack_from(f"{order}I", content)[0] == _MAGIC:
            break
    else:
        raise ValueError("no message catalog: the magic number is missing")
    count, *tables = struct.unpack_from(f"{order}3I", content, 8)

    def string(table: int, i: int) -> str:
        try:
            length, start = struct.unpack_from(f"{order}2I", content, table + 8 * i)
        except struct.error as error:
            raise ValueError("message catalog cut short") from error
        if start + length > len(content):
            raise ValueError("message catalog cut short")
        return content[start : start + length].decode(errors="replace")

    for i in range(count):
        original = string(tables[0], i).rpartition("\x04")[2]
        if original and "\0" not in original:
            yield original, string(tables[1], i)


def plain(text: str) -> str:
    r"""A message without tags, entities and formatting codes, as running text.

    >>> plain("Press <b>Enter</b> &amp; wait,\nthen see I<man>")
    'Press Enter & wait, then see man'
    """
    text = _POD.sub(r"\1", text)
    return squeeze(html.unescape(_TAG.sub("", text)))


def without_accelerators(source: str, target: str) -> tuple[str, str]:
    """A pair without the mark that makes a letter of a menu entry its key: `&`, `_` or `~`.

    >>> without_accelerators("_Open a file", "Datei ö_ffnen")
    ('Open a file', 'Datei öffnen')
    """
    for mark in "&_~":
        once = source.count(mark) == 1 and target.count(mark) <= 1
        if once and re.search(re.escape(mark) + r"\w", source):
            source, target = source.replace(mark, ""), target.replace(mark, "")
    return source, target


def _page_blocks(page: bytes) -> list[tuple[str, str]]:
    blocks = []
    for element in ElementTree.fromstring(page).iter():
        name = str(element.tag).rpartition("}")[2]
        if name in ("p", "title", "desc"):
            blocks.append((name, squeeze("".join(element.itertext()))))
    return blocks


def align_pages(english: bytes, german: bytes) -> list[tuple[str, str]]:
    """Paragraphs and titles of a help page, none unless both languages have the same outline."""
    try:
        sources, targets = _page_blocks(english), _page_blocks(german)
    except ElementTree.ParseError:
        return []
    if [name for name, _ in sources] != [name for name, _ in targets]:
        return []
    return [(source, target) for (_, source), (_, target) in zip(sources, targets, strict=True)]
