"""Package descriptions: parsing apt's `Translation-*` indices, and pairing them by checksum.

A stanza of such an index:

    Package: hello
    Description-md5: 31a5...          checksum of the English text, the same in every language
    Description-de: Das klassische Grußprogramm
     Das Programm GNU hello erzeugt einen freundlichen Gruß.
     .
     Es erlaubt Nichtprogrammierern, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from specdec_jax.corpus.filters import Pair, squeeze

_PACKAGE = re.compile(r"^Package: (\S+)", re.M)
_SOURCE = re.compile(r"^Source: (\S+)", re.M)
_CHECKSUM = re.compile(r"^Description-md5: (\w+)", re.M)
# Two blanks after the margin mark verbatim lines; a bullet marks a list.
_NOT_PROSE = re.compile(r"\s|[*\-+o•]\s")

_MOST_WORDS = 120
"""Words of a description that a summary is made from."""


class Description(NamedTuple):
    """One package description.

    Attributes:
        package: the binary package.
        synopsis: the line that sums it up.
        paragraphs: as lines, without the margin of one space.
    """

    package: str
    synopsis: str
    paragraphs: list[list[str]]


def parse(index: str, language: str) -> dict[str, Description]:
    """Descriptions of a `Translation-*` index, by the checksum of the English original."""
    field = re.compile(rf"^Description-{language}: ?(.*(?:\n .*)*)", re.M)
    found = {}
    for stanza in index.split("\n\n"):
        package, checksum = _PACKAGE.search(stanza), _CHECKSUM.search(stanza)
        description = field.search(stanza)
        if not (package and checksum and description):
            continue
        synopsis, *lines = description.group(1).split("\n")
        paragraphs: list[list[str]] = [[]]
        for line in lines:
            if line.strip() == ".":
                paragraphs.append([])
            else:
                paragraphs[-1].append(line[1:])
        found[checksum.group(1)] = Description(
            package.group(1), squeeze(synopsis), [lines for lines in paragraphs if lines]
        )
    return found


def source_packages(index: str) -> dict[str, str]:
    """Source package of each binary package in a `Packages` index.

    Siblings such as `foo`, `foo-doc` and `libfoo-dev` share sentences, so they share a split.
    """
    sources = {}
    for stanza in index.split("\n\n"):
        if package := _PACKAGE.search(stanza):
            source = _SOURCE.search(stanza) or package
            sources.setdefault(package.group(1), source.group(1))
    return sources


def prose(lines: list[str]) -> str | None:
    """A paragraph as running text, or None where it is a list or verbatim."""
    if any(_NOT_PROSE.match(line) for line in lines):
        return None
    return squeeze(" ".join(lines))


def translations(
    english: dict[str, Description], german: dict[str, Description], sources: dict[str, str]
) -> Iterator[Pair]:
    """En-De pairs: the synopses, and paragraph by paragraph where both have as many."""
    for checksum in sorted(english.keys() & german.keys()):
        en, de = english[checksum], german[checksum]
        group = sources.get(en.package, en.package)
        yield Pair("synopsis", group, en.synopsis, de.synopsis)
        if len(en.paragraphs) != len(de.paragraphs):
            continue
        for lines, translated in zip(en.paragraphs, de.paragraphs, strict=True):
            source, target = prose(lines), prose(translated)
            if source and target:
                yield Pair("paragraph", group, source, target)


def summaries(english: dict[str, Description], sources: dict[str, str]) -> Iterator[Pair]:
    """Long descriptions, their prose alone and at most 120 words, with their synopses."""
    for checksum in sorted(english):
        package, synopsis, paragraphs = english[checksum]
        body = " ".join(text for text in map(prose, paragraphs) if text)
        body = " ".join(body.split()[:_MOST_WORDS])
        yield Pair("synopsis", sources.get(package, package), body, synopsis)
