"""Binary packages that carry much German text, and what to take from them."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from specdec_jax.corpus import catalogs, manpages
from specdec_jax.corpus.fetch import members
from specdec_jax.corpus.filters import Pair, fold
from specdec_jax.errors import SpecdecError

_NAMES = """
    apt aptitude-common bash binutils-common calligra-data cinnamon-l10n claws-mail-i18n coreutils
    darktable dia-common digikam-data dpkg e2fsprogs-l10n evolution-common freeciv-data gimp-data
    git gnome-control-center-data gnome-user-docs gnucash-common gnumeric-common gnupg-l10n gramps
    grisbi-common homebank-data hugin-data inkscape kate5-data kbibtex-data kdevelop-data kmail
    kmymoney-common krita-l10n libgimp2.0 libreoffice-l10n-de manpages manpages-de manpages-de-dev
    manpages-dev passwd pidgin-data plasma-workspace-data skrooge-common systemd texstudio-l10n
    util-linux vlc-l10n wxmaxima
"""
PACKAGES: tuple[str, ...] = tuple(_NAMES.split())
"""Fetched for the wide corpus; a release that lacks one of them goes without."""

_CATALOG = re.compile(r".*/de/LC_MESSAGES/[^/]+\.mo|.*/de\.mo")
_HELP = re.compile(r"usr/share/help/(C|de)/(.+\.page)")
_MAN = re.compile(r"usr/share/man/(de/)?(man\d/[^/]+)\.gz")
_COPYRIGHT = re.compile(r"usr/share/doc/[^/]+/copyright")
_LICENCE = re.compile(r"^License: *(\S.*?)\s*$", re.M)


class Harvest(NamedTuple):
    """What packages hold.

    Attributes:
        pairs: English and German.
        licences: licence names of each package, from its machine-readable copyright file; empty
            where that file is free text.
    """

    pairs: list[Pair]
    licences: dict[str, list[str]]


def harvest(packages: dict[str, Path]) -> Harvest:
    """Reads catalogs, help pages, man pages and licences out of binary packages.

    English and German man pages may come from different packages.

    Raises:
        SpecdecError: a package or a catalog in it is damaged.
    """
    pairs: list[Pair] = []
    help_pages: dict[str, dict[str, bytes]] = {"C": {}, "de": {}}
    man_pages: dict[str, dict[str, bytes]] = {"": {}, "de/": {}}
    licences: dict[str, list[str]] = {name: [] for name in packages}
    for name, path in sorted(packages.items()):
        for member, content in members(path, _is_wanted):
            if found := _HELP.fullmatch(member):
                help_pages[found[1]].setdefault(found[2], content)
            elif found := _MAN.fullmatch(member):
                man_pages[found[1] or ""].setdefault(found[2], content)
            elif _COPYRIGHT.fullmatch(member):
                names = _LICENCE.findall(content.decode(errors="replace"))
                licences[name] = sorted({*licences[name], *names})
            else:
                try:
                    pairs.extend(_messages(content))
                except ValueError as error:
                    raise SpecdecError(
                        f"{member} in {path} cannot be read ({error}): remove the package and try "
                        "again."
                    ) from error
    pairs.extend(_help(help_pages["C"], help_pages["de"]))
    pairs.extend(_manuals(man_pages[""], man_pages["de/"]))
    return Harvest(pairs, licences)


def _is_wanted(path: str) -> bool:
    return any(form.fullmatch(path) for form in (_CATALOG, _HELP, _MAN, _COPYRIGHT))


def _messages(catalog: bytes) -> Iterator[Pair]:
    for source, target in catalogs.read_catalog(catalog):
        source, target = catalogs.without_accelerators(
            catalogs.plain(source), catalogs.plain(target)
        )
        yield Pair("catalog", fold(source), source, target)


def _help(english: dict[str, bytes], german: dict[str, bytes]) -> Iterator[Pair]:
    for page in sorted(english.keys() & german.keys()):
        for source, target in catalogs.align_pages(english[page], german[page]):
            yield Pair("help", f"help:{page}", source, target)


def _manuals(english: dict[str, bytes], german: dict[str, bytes]) -> Iterator[Pair]:
    for page in sorted(english.keys() & german.keys()):
        texts = (gzip.decompress(side[page]).decode(errors="replace") for side in (english, german))
        # All sections of a name share their split: printf(1) and printf(3) quote each other.
        name = page.split("/")[1].split(".")[0]
        for source, target in manpages.align(*texts):
            yield Pair("man", f"man:{name}", source, target)
