import errno
import json
from pathlib import Path

import pytest
from test_catalogs import catalog

from specdec_jax.corpus import build as build_module
from specdec_jax.corpus.__main__ import main
from specdec_jax.corpus.build import TASKS, build, train_vocabulary
from specdec_jax.errors import SpecdecError
from specdec_jax.text import PREFIXES, Vocabulary

QUICK_FILES = {
    f"{task}.{split}.tsv"
    for task in ("descriptions_ende", "debian_synopsis")
    for split in ("train", "validation", "test")
} | {"corpus.json"}
LETTERS = "abcdefghijklmnopqrst"


@pytest.fixture
def stocked(archive):
    """Twenty packages; scribus is one whose split is test."""
    rows = [
        (
            f"package{letter}" if letter != "a" else "scribus",
            f"program of the kind {letter}",
            f"This program of the kind {letter} reads your files and then writes them out again.",
            f"Programm der Art {letter}",
            f"Dieses Programm der Art {letter} liest Ihre Dateien und schreibt sie wieder.",
        )
        for letter in LETTERS
    ]
    archive.put_descriptions(rows)
    return archive


def lines(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_a_quick_build_writes_the_tasks_and_counts_them(stocked, tmp_path, capsys):
    report = build(tmp_path / "out", tmp_path / "work")
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == QUICK_FILES
    held_out = lines(out / "descriptions_ende.test.tsv")
    assert ["program of the kind a", "Programm der Art a"] in held_out
    rows = [row for name in QUICK_FILES if "ende" in name for row in lines(out / name)]
    assert len(rows) == 40
    assert all(len(row) == 2 for row in rows)
    assert json.loads((out / "corpus.json").read_text()) == report
    test = report["tasks"]["descriptions_ende"]["test"]
    assert test["pairs"] == len(held_out)
    assert test["target words"] == sum(len(row[1].split()) for row in held_out)
    assert test["kinds"]["synopsis"] == test["pairs"] // 2
    assert report["releases"][0]["Codename"] == "trixie"
    assert "terms of the package" in report["licences"]["descriptions"]
    assert "descriptions_ende.*.tsv: train" in capsys.readouterr().err


def test_the_same_indices_give_the_same_bytes(stocked, tmp_path):
    for out in ("one", "two"):
        build(tmp_path / out, tmp_path / "work", progress=False)
    for name in QUICK_FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_wide_build_adds_what_packages_hold(stocked, tmp_path):
    # A held-out description wins over its copy in a catalog, which would put it into train.
    messages = {
        "Open a file here": "Hier eine Datei öffnen",
        "program of the kind a": "Programm der Gattung a",
        "Quit": "Beenden",
    }
    stocked.put_package(
        "git_1_all.deb", {"usr/share/locale/de/LC_MESSAGES/git.mo": catalog(messages)}
    )
    index = stocked.folder / "lists/archive_main_binary-all_Packages"
    index.write_text(index.read_text() + "\nPackage: git\nVersion: 1\n")
    report = build(tmp_path / "out", tmp_path / "work", tasks=TASKS, progress=False)
    train = lines(tmp_path / "out/debian_ende.train.tsv")
    assert ["Open a file here", "Hier eine Datei öffnen"] in train
    assert "program of the kind a" not in [source for source, _ in train]
    assert report["tasks"]["debian_ende"]["dropped"] == {"duplicate": 1, "length": 1}
    assert "bash" in report["absent packages"]
    assert "git" not in report["absent packages"]
    assert report["licences"]["packages"] == {"git": []}
    descriptions = [tmp_path / f"out/descriptions_ende.{s}.tsv" for s in ("validation", "test")]
    for path in descriptions:
        assert set(map(tuple, lines(path))) <= set(
            map(tuple, lines(Path(str(path).replace("descriptions", "debian"))))
        )


def test_synopses_are_filtered_as_such(archive, tmp_path):
    body = "This is package {} of many that share a synopsis with all others."
    rows = [(f"p{c}", "the common synopsis", body.format(c), "-", "-") for c in LETTERS[:5]]
    rows.append(("short", "another synopsis here", "Four words of text.", "-", "-"))
    archive.put_descriptions(rows)
    tasks = ("debian_synopsis",)
    report = build(tmp_path / "out", tmp_path / "work", tasks=tasks, progress=False)
    dropped = report["tasks"]["debian_synopsis"]["dropped"]
    assert dropped == {"common target": 2, "length": 1}


def test_a_quick_build_downloads_no_package(stocked, tmp_path):
    build(tmp_path / "out", tmp_path / "work", progress=False)
    assert [call.split()[2] for call in stocked.calls()] == ["update"]


def test_an_unknown_task_is_refused_before_anything_is_fetched(stocked, tmp_path):
    with pytest.raises(SpecdecError, match="no corpus named 'wmt': choose from descriptions_ende"):
        build(tmp_path / "out", tmp_path / "work", tasks=("wmt",))
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space"), KeyboardInterrupt()])
@pytest.mark.parametrize("victim", ["descriptions_ende.train.tsv", "corpus.json"])
def test_a_build_that_breaks_off_leaves_the_old_files(
    stocked, tmp_path, monkeypatch, failure, victim
):
    out = tmp_path / "out"
    build(out, tmp_path / "work", progress=False)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    stocked.put_descriptions([("scribus", "one of a kind", "Text.", "eins der Art", "Text.")])
    write_text = Path.write_text

    def breaking(path, *arguments, **options):
        if path.name == victim:
            write_text(path, "half", **options)
            raise failure
        return write_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", breaking)
    expected, message = (
        (SpecdecError, "the disk is full .*make room")
        if isinstance(failure, OSError)
        else (KeyboardInterrupt, None)
    )
    with pytest.raises(expected, match=message):
        build(out, tmp_path / "work", progress=False)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_no_report_stands_beside_files_of_two_builds(stocked, tmp_path, monkeypatch):
    out = tmp_path / "out"
    build(out, tmp_path / "work", progress=False)
    replace = Path.replace

    def breaking(path, target):
        if path.name == "descriptions_ende.train.tsv":
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", breaking)
    with pytest.raises(KeyboardInterrupt):
        build(out, tmp_path / "work", progress=False)
    assert {path.name for path in out.iterdir()} == QUICK_FILES - {"corpus.json"}


def test_a_folder_that_is_a_file_is_told(stocked, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(SpecdecError, match=r"cannot write the corpus, .*/out\): make room or choo"):
        build(tmp_path / "out", tmp_path / "work", progress=False)


def test_the_command_builds_and_reports_errors_with_status_2(stocked, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["--out", str(out), "--quiet"]) == 0
    assert {path.name for path in out.iterdir()} == QUICK_FILES | {"work"}
    assert capsys.readouterr().err == ""
    (stocked.folder / "failure").write_text("E: nothing works\n")
    assert main(["--out", str(out)]) == 2
    assert "error: apt-get update failed with status 100 (E: nothing works)" in (
        capsys.readouterr().err
    )


def test_the_command_asks_for_all_tasks_with_wide_and_ends_with_130_on_interrupt(
    tmp_path, monkeypatch, capsys
):
    asked = {}

    def interrupted(out, work, **options):
        asked.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr("specdec_jax.corpus.__main__.build", interrupted)
    assert main(["--out", str(tmp_path), "--wide"]) == 130
    assert asked["tasks"] == build_module.TASKS
    assert "interrupted" in capsys.readouterr().err


SAMPLE = Path(__file__).parent.parent / "data/ende_200.tsv"


def test_a_trained_vocabulary_is_t5s_and_knows_the_prefixes_and_every_byte(tmp_path):
    text = SAMPLE.read_text().replace("\t", "\n").splitlines()
    train_vocabulary(text, tmp_path / "new/v.model", size=600)
    vocabulary = Vocabulary(tmp_path / "new/v.model")
    assert vocabulary.size == 600
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["v.model"]
    for prefix in set(PREFIXES.values()):
        spelt = [vocabulary.piece(i) for i in vocabulary.encode(prefix + "snowman")]
        assert prefix.strip().replace(" ", "▁") in spelt
    ids = vocabulary.encode("☃ 漢")
    assert vocabulary.unk_id not in ids
    assert vocabulary.decode(ids) == "☃ 漢"
    train_vocabulary(text, tmp_path / "again.model", size=600)
    assert (tmp_path / "again.model").read_bytes() == (tmp_path / "new/v.model").read_bytes()


def test_too_little_text_for_a_vocabulary_is_told(tmp_path):
    with pytest.raises(SpecdecError, match="no vocabulary of 600 pieces can be trained"):
        train_vocabulary(["a few words"], tmp_path / "v.model", size=600)
    assert not (tmp_path / "v.model").exists()
