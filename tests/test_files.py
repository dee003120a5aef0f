import errno
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from specdec_jax import files
from specdec_jax.errors import SpecdecError
from specdec_jax.files import read_lines, require_folder, split_lines, write_json, write_text


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_text_arrives_in_utf_8_as_it_is(tmp_path):
    write_text(tmp_path / "out", "Größe ☃\nzwei\n")
    assert (tmp_path / "out").read_bytes() == "Größe ☃\nzwei\n".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_json_is_readable_by_people_and_ends_its_line(tmp_path):
    write_json(tmp_path / "out.json", {"text": "Größe", "c": [1, None]})
    content = (tmp_path / "out.json").read_text("utf-8")
    assert json.loads(content) == {"text": "Größe", "c": [1, None]}
    assert '"Größe"' in content
    assert content.endswith("}\n")


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_is_as_readable_as_any(tmp_path, mask, expected):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "out", "x")
        assert os.umask(mask) == mask, "the process's own mask has changed"
    finally:
        os.umask(before)
    assert mode(tmp_path / "out") == expected


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "out"
    path.write_text("secret")
    path.chmod(0o640)
    write_text(path, "new")
    assert (path.read_text(), mode(path)) == ("new", 0o640)


def test_a_link_stays_one(tmp_path):
    (tmp_path / "folder").mkdir()
    real = tmp_path / "folder" / "real"
    real.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through")
    reader.join(timeout=10)
    assert read == ["through"]
    assert pipe.is_fifo()


def test_a_path_in_the_current_folder_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text("out", "x")
    require_folder("out")
    assert (tmp_path / "out").read_text() == "x"


def test_a_missing_folder_is_told(tmp_path):
    path = tmp_path / "no" / "out"
    with pytest.raises(SpecdecError, match=rf"Cannot write {path} \(No such file or directory\)"):
        write_text(path, "x")
    with pytest.raises(SpecdecError, match=rf"no folder {path.parent}: make it"):
        require_folder(path)


def test_a_folder_in_the_file_s_place_is_told(tmp_path):
    with pytest.raises(SpecdecError, match="Is a directory"):
        write_text(tmp_path, "x")
    with pytest.raises(SpecdecError, match="is a folder: give the path of a file"):
        require_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_path_needs_no_folder():
    require_folder(None)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_a_full_device_is_told():
    with pytest.raises(SpecdecError, match=r"Cannot write /dev/full \(No space left on device\)"):
        write_text("/dev/full", "x")
    assert Path("/dev/full").is_char_device()


class Breaking:
    """A file that takes a few characters and then fails."""

    def __init__(self, file, error):
        self.file, self.error = file, error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, content):
        self.file.write(content[:3])
        raise self.error


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), SpecdecError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["full disk", "interrupt"],
)
@pytest.mark.parametrize("there", [True, False])
def test_a_failure_halfway_leaves_everything_as_it_was(tmp_path, monkeypatch, there, error, raised):
    path = tmp_path / "out"
    if there:
        path.write_text("old")
    opened = os.fdopen
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fdopen", lambda *a, **k: Breaking(opened(*a, **k), error))
        with pytest.raises(raised):
            write_text(path, "new content")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out", "old")] * there


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\n\r\ntwo\r\n", ["one", "", "two"]),
        ("\ufeffGröße\n☃".encode(), ["Größe", "☃"]),
        # Separators that Python's str knows and no other program does.
        ("a\u2028b\x0bc\n".encode(), ["a\u2028b\x0bc"]),
    ],
)
def test_files_are_lines_of_utf_8(tmp_path, content, lines):
    (tmp_path / "in.txt").write_bytes(content)
    assert read_lines(tmp_path / "in.txt") == lines
    assert read_lines(str(tmp_path / "in.txt")) == lines


def test_bytes_that_are_not_utf_8_are_told_with_line_and_byte(tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes("gut\nGröße\n".encode("latin-1"))
    with pytest.raises(SpecdecError, match=rf"Line 2 of {path} is not UTF-8 \(byte 2\): convert"):
        read_lines(path)
    with pytest.raises(SpecdecError, match="Line 1 of standard input"):
        split_lines(b"\xff", "standard input")


def test_files_that_are_not_there_or_not_readable_are_told(tmp_path, monkeypatch):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(SpecdecError, match=f"There is no file {path}; give a text file"):
            read_lines(path)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "private").write_text("x")
    monkeypatch.setattr(files.Path, "read_bytes", refuse)
    with pytest.raises(SpecdecError, match=r"Cannot read .*private \(Permission denied\)"):
        read_lines(tmp_path / "private")
