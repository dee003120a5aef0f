"""The corpora as files: fetch, pair, filter, split, write, report."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import sentencepiece

from specdec_jax.corpus import descriptions, packages
from specdec_jax.corpus.fetch import Archive
from specdec_jax.corpus.filters import (
    SPLITS,
    Pair,
    Selection,
    Split,
    select,
    synopsis_fault,
    translation_fault,
)
from specdec_jax.errors import SpecdecError
from specdec_jax.text import EOS_ID, PAD_ID, PREFIXES, UNK_ID

DESCRIPTIONS = "descriptions_ende"
WIDE = "debian_ende"
SYNOPSIS = "debian_synopsis"
QUICK_TASKS = (DESCRIPTIONS, SYNOPSIS)
TASKS = (DESCRIPTIONS, WIDE, SYNOPSIS)

_DESCRIPTION_TERMS = (
    "Each description, and its translation by the Debian description translation project, is under "
    "the terms of the package that it describes: /usr/share/doc/PACKAGE/copyright there."
)


class Material(NamedTuple):
    """What is fetched, parsed, before any filter.

    Attributes:
        english: descriptions by checksum.
        german: their translations.
        sources: source package of each binary package.
        harvest: text out of binary packages; None unless asked for.
        absent: binary packages that this release does not have.
        releases: of the archive, see `Archive.releases`.
    """

    english: dict[str, descriptions.Description]
    german: dict[str, descriptions.Description]
    sources: dict[str, str]
    harvest: packages.Harvest | None
    absent: list[str]
    releases: list[dict[str, str]]


def build(
    out_dir: str | os.PathLike[str],
    work_dir: str | os.PathLike[str],
    *,
    tasks: Sequence[str] = QUICK_TASKS,
    progress: bool = True,
) -> dict:
    """Builds the corpora from the package archive of this system's apt sources.

    Writes `<task>.{train,validation,test}.tsv` (source TAB target, one pair a line, UTF-8) and
    `corpus.json`. The same indices give the same bytes. Files appear complete or not at all, and
    `corpus.json` last.

    Args:
        out_dir: where the files go; made where missing.
        work_dir: where indices and packages are kept, so that a second build fetches little.
        tasks: out of `descriptions_ende`, `debian_synopsis` (17 MB to fetch) and `debian_ende`
            (300 MB more).
        progress: say on stderr what is going on.

    Returns:
        The content of `corpus.json`: releases, licences, and for each task the pairs and words of
        each split and the pairs dropped by reason.

    Raises:
        SpecdecError: an unknown task, no apt, no German descriptions, a failing download, or a
            folder that is full or may not be written.
    """
    if unknown := [task for task in tasks if task not in TASKS]:
        raise SpecdecError(f"no corpus named {unknown[0]!r}: choose from {', '.join(TASKS)}.")
    out, work = Path(out_dir), Path(work_dir)
    say = _say if progress else lambda _: None
    with _writing(out, work):
        work.mkdir(parents=True, exist_ok=True)
        material = _gather(Archive(work), wide=WIDE in tasks, say=say)
        selections = {}
        for task in tasks:
            say(f"selecting {task}")
            selections[task] = _select(task, material)
        report = _report(material, selections)
        write(out, {task: selection.kept for task, selection in selections.items()}, report)
    for task in tasks:
        sizes = ", ".join(f"{split} {report['tasks'][task][split]['pairs']}" for split in SPLITS)
        say(f"{out / task}.*.tsv: {sizes}")
    return report


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _writing(*folders: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or error
        where = error.filename or " or ".join(map(str, folders))
        raise SpecdecError(
            f"cannot write the corpus, {reason} ({where}): make room or choose another folder."
        ) from error


def _gather(archive: Archive, *, wide: bool, say: Callable[[str], None]) -> Material:
    say("fetching the indices")
    archive.update()
    say("reading the indices")
    sources = descriptions.source_packages(archive.index("_Packages"))
    english = descriptions.parse(archive.index("_Translation-en"), "en")
    german = descriptions.parse(archive.index("_Translation-de"), "de")
    harvest, absent = None, []
    if wide:
        present = [name for name in packages.PACKAGES if name in sources]
        absent = sorted(set(packages.PACKAGES) - set(present))
        say(f"fetching {len(present)} packages")
        files = archive.download(present)
        say("reading the packages")
        harvest = packages.harvest(files)
    return Material(english, german, sources, harvest, absent, archive.releases())


def _select(task: str, material: Material) -> Selection:
    pairs: Iterable[Pair]
    if task == SYNOPSIS:
        pairs = descriptions.summaries(material.english, material.sources)
        fault, most_targets = synopsis_fault, 3
    else:
        pairs = descriptions.translations(material.english, material.german, material.sources)
        fault, most_targets = translation_fault, None
        if task == WIDE and material.harvest:
            # Descriptions first: where both have a sentence, its held-out copy is the one kept.
            pairs = [*pairs, *material.harvest.pairs]
    faults: Counter[str] = Counter()
    sound = []
    for pair in pairs:
        if reason := fault(pair):
            faults[reason] += 1
        else:
            sound.append(pair)
    selection = select(sound, most_targets=most_targets)
    selection.dropped.update(faults)
    return selection


def _report(material: Material, selections: dict[str, Selection]) -> dict:
    report: dict = {
        "releases": material.releases,
        "licences": {"descriptions": _DESCRIPTION_TERMS},
        "tasks": {
            task: {split: _counts(selection.kept[split]) for split in SPLITS}
            | {"dropped": dict(sorted(selection.dropped.items()))}
            for task, selection in selections.items()
        },
    }
    if material.harvest:
        report["licences"]["packages"] = material.harvest.licences
        report["absent packages"] = material.absent
    return report


def _counts(pairs: list[Pair]) -> dict:
    return {
        "pairs": len(pairs),
        "source words": sum(len(pair.source.split()) for pair in pairs),
        "target words": sum(len(pair.target.split()) for pair in pairs),
        "kinds": dict(sorted(Counter(pair.kind for pair in pairs).items())),
    }


def write(out: Path, corpora: dict[str, dict[Split, list[Pair]]], report: dict) -> None:
    """Writes the files beside their places, then moves them there, `corpus.json` last.

    A `corpus.json` therefore vouches for the files around it: an old one goes before the first
    file is replaced.

    Raises:
        OSError: the folder is full or may not be written; no file has changed then.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".unfinished-") as unfinished:
        for task, kept in corpora.items():
            for split, pairs in kept.items():
                lines = (f"{pair.source}\t{pair.target}\n" for pair in pairs)
                path = Path(unfinished, f"{task}.{split}.tsv")
                path.write_text("".join(lines), encoding="utf-8")
        files = sorted(Path(unfinished).iterdir())
        seal = Path(unfinished, "corpus.json")
        seal.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (out / seal.name).unlink(missing_ok=True)
        for path in [*files, seal]:
            path.replace(out / path.name)


def train_vocabulary(
    lines: Iterable[str], out: str | os.PathLike[str], *, size: int = 4096
) -> None:
    """Trains a sentencepiece model with T5's special ids, and writes it to `out` once complete.

    Unigram pieces with a byte for every character that has none, so that nothing is unknown; the
    task prefixes are pieces of their own, spelt with the meta space as text is when it is
    segmented. Same lines, same model.

    Args:
        lines: text of both sides; the first 120,000 are used.
        out: path of the model.
        size: number of pieces.

    Raises:
        SpecdecError: the lines are too few for `size` pieces, or `out` cannot be written.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            character_coverage=0.9995,
            byte_fallback=True,
            user_defined_symbols=[
                prefix.strip().replace(" ", "▁") for prefix in dict.fromkeys(PREFIXES.values())
            ],
            pad_id=PAD_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            bos_id=-1,
            input_sentence_size=120_000,
            shuffle_input_sentence=False,
            num_threads=2,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise SpecdecError(
            f"no vocabulary of {size} pieces can be trained on these lines ({error}): give more "
            "text or ask for fewer pieces."
        ) from error
    path = Path(out)
    with _writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".unfinished-") as unfinished:
            whole = Path(unfinished, path.name)
            whole.write_bytes(model.getvalue())
            whole.replace(path)
