"""Man pages and their translations, aligned block by block within sections."""

from __future__ import annotations

import re

from specdec_jax.corpus.filters import squeeze

# Escapes of roff (groff(7)) and what they print, in the order of replacement.
_ESCAPES = [
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\\f(?:\(..|\[[^\]]*\]|.)", ""),  # fonts
        (r"\\s[-+]?\d", ""),  # sizes
        (r"\\\*(?:\(..|\[[^\]]*\]|.)", ""),  # strings
        (r"\\\(aq", "'"),
        (r"\\\((?:[lrdBbc]q|F[oc])", '"'),
        (r"\\\(e[nm]|\\-", "-"),
        (r"\\[ ~0]", " "),
        (r"\\[&/,:%|^]", ""),  # zero width
        (r"\\e|\\\(rs", r"\\"),
    )
]
_REQUEST = re.compile(r"[.']\s*(\w+)\s*(.*)")
_COMMENT = re.compile(r"[.']\\\"")
_ARGUMENT = re.compile(r'"([^"]*)"|(\S+)')
_SPACED_FONTS = {"B", "I", "SM", "SB"}
_JOINED_FONTS = {"BR", "RB", "IR", "RI", "BI", "IB"}
_BREAKS = {"PP", "P", "LP", "TP", "TQ", "IP", "HP", "RS", "RE", "SS", "sp", "br"}
_VERBATIM = {"EX": "EE", "nf": "fi", "TS": "TE"}


def _printed(lines: list[str]) -> str:
    text = " ".join(lines)
    for pattern, replacement in _ESCAPES:
        text = pattern.sub(replacement, text)
    return squeeze(text)


def sections(page: str) -> list[list[str]]:
    """The text blocks of each section of a roff page; examples and tables are left out.

    The first section is what stands before the first heading; the others begin with theirs.
    """
    done: list[list[str]] = [[]]
    open_lines: list[str] = []
    verbatim_end: str | None = None

    def close() -> None:
        if text := _printed(open_lines):
            done[-1].append(text)
        open_lines.clear()

    for line in page.splitlines():
        if _COMMENT.match(line):
            continue
        request = _REQUEST.match(line)
        name, arguments = request.groups() if request else ("", line)
        if verbatim_end:
            if name == verbatim_end:
                verbatim_end = None
        elif not request:
            if line.strip():
                open_lines.append(line)
            else:
                close()
        elif name in _VERBATIM:
            close()
            verbatim_end = _VERBATIM[name]
        elif name in _SPACED_FONTS | _JOINED_FONTS:
            words = [quoted or bare for quoted, bare in _ARGUMENT.findall(arguments)]
            open_lines.append((" " if name in _SPACED_FONTS else "").join(words))
        elif name == "SH" or name in _BREAKS:
            close()
            if name == "SH":
                done.append([])
            if name in ("SH", "SS") and arguments:
                open_lines.append(arguments.strip('"'))
                close()
    close()
    return done


def align(english: str, german: str) -> list[tuple[str, str]]:
    """Blocks of the sections, in order, that have as many blocks in both languages."""
    return [
        pair
        for sources, targets in zip(sections(english), sections(german), strict=False)
        if len(sources) == len(targets)
        for pair in zip(sources, targets, strict=True)
    ]
