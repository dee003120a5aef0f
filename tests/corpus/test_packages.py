import gzip

import pytest
from test_catalogs import MESSAGES, PAGE, catalog

from specdec_jax.corpus.filters import Pair
from specdec_jax.corpus.packages import PACKAGES, harvest
from specdec_jax.errors import SpecdecError

COPYRIGHT = b"""Format: 1.0

Files: *
License: GPL-2+

Files: x
License: Expat
 Text of the licence.

License: GPL-2+
"""


def manual(*blocks: str) -> bytes:
    return gzip.compress("\n.PP\n".join((".SH NAME", *blocks)).encode())


def test_the_list_names_each_package_once():
    assert len(set(PACKAGES)) == len(PACKAGES) > 40


def test_a_harvest_joins_the_languages_across_packages(archive):
    pool = archive.folder / "pool"
    archive.put_package(
        "tool_1_all.deb",
        {
            "usr/share/locale/de/LC_MESSAGES/tool.mo": catalog(
                MESSAGES | {"<b>_Cut</b>": "Aus&amp;schneiden"}
            ),
            "usr/share/locale/fr/LC_MESSAGES/tool.mo": catalog({"Open a file": "Ouvrir"}),
            "usr/share/help/C/tool/a.page": PAGE.format("Printing", "Choose").encode(),
            "usr/share/help/de/tool/a.page": PAGE.format("Drucken", "Wählen").encode(),
            "usr/share/man/man1/tool.1.gz": manual("It works."),
            "usr/share/man/man1/untranslated.1.gz": manual("It works too."),
            "usr/share/doc/tool/copyright": COPYRIGHT,
        },
    )
    archive.put_package("other_1_all.deb", {"usr/share/man/de/man1/tool.1.gz": manual("Es geht.")})
    names = ("tool", "other")
    found = harvest({name: pool / f"{name}_1_all.deb" for name in names})
    assert found.pairs == [
        Pair("catalog", "open a file", "Open a file", "Datei öffnen"),
        Pair("catalog", "close it", "Close it", "Schließen"),
        Pair("catalog", "cut", "Cut", "Aus&schneiden"),
        Pair("help", "help:tool/a.page", "Printing", "Drucken"),
        Pair("help", "help:tool/a.page", "Choose x", "Wählen x"),
        Pair("man", "man:tool", "NAME", "NAME"),
        Pair("man", "man:tool", "It works.", "Es geht."),
    ]
    assert found.licences == {"tool": ["Expat", "GPL-2+"], "other": []}


def test_a_damaged_catalog_is_named_with_its_package(archive):
    archive.put_package("tool_1_all.deb", {"usr/share/locale/de/LC_MESSAGES/tool.mo": b"?" * 30})
    with pytest.raises(SpecdecError, match=r"LC_MESSAGES/tool\.mo in .*tool_1_all\.deb cannot be"):
        harvest({"tool": archive.folder / "pool/tool_1_all.deb"})
