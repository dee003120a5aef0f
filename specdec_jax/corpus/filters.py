"""Which pairs are kept, in what split: length, ratio, markup, duplicates, groups."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class Pair(NamedTuple):
    """A source text and its target.

    Attributes:
        kind: where it comes from: synopsis, paragraph, catalog, help or man.
        group: what must not be torn apart by the split, e.g. the source package.
        source: English, or the text to summarise.
        target: German, or the summary.
    """

    kind: str
    group: str
    source: str
    target: str


class Selection(NamedTuple):
    """Pairs kept, by split, and how many were dropped for what reason."""

    kept: dict[Split, list[Pair]]
    dropped: Counter[str]


_MARKUP = re.compile(r"%[\w(]|\{\d|\$\{?\w|[<>{}|\\]|https?:|\(ARG\d")


def squeeze(text: str) -> str:
    r"""The text with every run of white space as one space, none at the ends.

    >>> squeeze(" a\tb\n c ")
    'a b c'
    """
    return " ".join(text.split())


def fold(text: str) -> str:
    """What duplicates share: the letters in lower case, anything else as one space.

    >>> fold("GNU C Library: 2.36, headers") == fold("gnu c library - headers")
    True
    """
    return re.sub(r"[\W\d_]+", " ", text.lower()).strip()


def letter_share(text: str) -> float:
    """Share of letters and spaces, in [0, 1]; prose has above .85, tables and code do not."""
    return sum(c.isalpha() or c == " " for c in text) / max(1, len(text))


def split_of(group: str) -> Split:
    """Split of a group, by a hash of its name: 2% test, 2% validation.

    It depends on nothing else, so a group stays held out when the archive changes and in every
    corpus that is made of it.
    """
    bucket = int(hashlib.md5(group.encode()).hexdigest()[:8], 16) % 50
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def translation_fault(pair: Pair) -> str | None:
    """Reason to drop an En-De pair, or None."""
    lengths = len(pair.source.split()), len(pair.target.split())
    if not (3 <= lengths[0] <= 80 and 2 <= lengths[1] <= 80):
        return "length"
    if pair.source == pair.target:
        return "untranslated"
    if not 0.4 <= len(pair.source) / len(pair.target) <= 2.2:
        return "ratio"
    if min(letter_share(pair.source), letter_share(pair.target)) < 0.85:
        return "symbols"
    if _MARKUP.search(pair.source) or _MARKUP.search(pair.target):
        return "markup"
    return None


def synopsis_fault(pair: Pair) -> str | None:
    """Reason to drop a description with its synopsis, or None."""
    if len(pair.source.split()) < 12 or not 3 <= len(pair.target.split()) <= 20:
        return "length"
    if letter_share(pair.source) < 0.8:
        return "symbols"
    return None


def _content_hash(pair: Pair) -> str:
    return hashlib.md5(f"{pair.source}\t{pair.target}".encode()).hexdigest()


def select(pairs: Iterable[Pair], *, most_targets: int | None = None) -> Selection:
    """Drops duplicate sources, first come first kept, and splits the rest by group.

    Catalog strings go to train alone: out of their window they are no fair test.

    Args:
        pairs: without faults.
        most_targets: how many sources may share a target up to `fold`, which siblings of a
            package family do; None for any number.

    Returns:
        Rows in the order of a hash of their content, which shuffles them the same way everywhere
        and keeps that order when some come or go.
    """
    kept: dict[Split, list[Pair]] = {split: [] for split in SPLITS}
    dropped: Counter[str] = Counter()
    sources: set[str] = set()
    targets: Counter[str] = Counter()
    for pair in pairs:
        source, target = fold(pair.source), fold(pair.target)
        if source in sources:
            dropped["duplicate"] += 1
            continue
        sources.add(source)
        if most_targets is not None and targets[target] >= most_targets:
            dropped["common target"] += 1
            continue
        targets[target] += 1
        kept["train" if pair.kind == "catalog" else split_of(pair.group)].append(pair)
    for rows in kept.values():
        rows.sort(key=_content_hash)
    return Selection(kept, dropped)
