import os

import pytest

from specdec_jax.errors import SpecdecError
from specdec_jax.resume import Growing, lines_digest, path_digest

JOB = {"input": "5 lines (ab)", "temperature": 0.0, "draft": None, "json": False}


def grow(folder, *parts, resume=False, job=JOB, batch=2, finish=True):
    """Write parts to `out`, 5 lines; what an interrupted run does when not to `finish`."""
    with Growing(folder / "out", job, total=5, batch=batch, resume=resume) as output:
        for part in parts:
            output.append(part)
        if finish:
            output.finish()
        return output.done


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_output_grows_and_then_takes_its_place(tmp_path):
    (tmp_path / "out").write_text("old")
    (tmp_path / "out").chmod(0o640)
    with Growing(tmp_path / "out", JOB, total=2) as output:
        output.append(["Größe"])
        assert output.path.read_bytes() == "Größe\n".encode()
        assert (tmp_path / "out").read_text() == "old"
        output.append(["zwei"])
        output.finish()
    assert (tmp_path / "out").read_bytes() == "Größe\nzwei\n".encode()
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("left", "done"),
    [
        (b"", 0),
        (b"1\n2", 0),
        (b"1\n", 0),
        (b"1\n2\n", 2),
        (b"1\n2\n3\n4", 2),
        (b"1\n2\n3\n4\n", 4),
        (b"1\n2\n3\n4\n5", 4),
        # The last batch is a short one.
        (b"1\n2\n3\n4\n5\n", 5),
    ],
)
def test_whole_batches_are_kept(tmp_path, left, done):
    grow(tmp_path, ["x"], finish=False)
    (tmp_path / "out.partial").write_bytes(left)
    rest = list("12345"[done:])
    assert grow(tmp_path, rest, resume=True) == done
    assert (tmp_path / "out").read_text() == "1\n2\n3\n4\n5\n"
    assert names(tmp_path) == ["out"]


def test_a_run_without_a_line_leaves_nothing(tmp_path):
    assert grow(tmp_path, finish=False) == 0
    assert names(tmp_path) == []


def test_resuming_what_never_began_begins(tmp_path):
    assert grow(tmp_path, list("12345"), resume=True) == 0
    assert (tmp_path / "out").read_text() == "1\n2\n3\n4\n5\n"


def test_lines_are_not_overwritten_without_being_asked(tmp_path):
    grow(tmp_path, ["1", "2"], finish=False)
    with pytest.raises(SpecdecError, match=r"out\.partial has 2 of 5 lines of an earlier run: go"):
        grow(tmp_path)
    assert (tmp_path / "out.partial").read_text() == "1\n2\n"
    assert grow(tmp_path, ["3", "4", "5"], resume=True) == 2


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"temperature": 1.0}, r"with temperature 0\.0, and this run has 1\.0: repeat"),
        ({"input": "6 lines (cd)"}, r"with input '5 lines \(ab\)', and this run has '6 lines"),
        ({"draft": "lookup"}, "with draft None, and this run has 'lookup'"),
        ({"new": 1}, "with new None, and this run has 1"),
    ],
)
def test_another_job_s_lines_are_refused(tmp_path, changed, told):
    grow(tmp_path, ["1", "2"], finish=False)
    before = [(path.name, path.read_bytes()) for path in sorted(tmp_path.iterdir())]
    with pytest.raises(SpecdecError, match=rf"out\.partial was made {told}") as raised:
        grow(tmp_path, resume=True, job={**JOB, **changed})
    assert "\n" not in str(raised.value)
    assert [(path.name, path.read_bytes()) for path in sorted(tmp_path.iterdir())] == before


def test_another_job_may_begin_where_there_is_no_line(tmp_path):
    (tmp_path / "out.partial").touch()
    assert grow(tmp_path, ["1", "2"], finish=False, job={"other": 1}) == 0
    assert grow(tmp_path, list("345"), resume=True, job={"other": 1}) == 2


def test_lines_of_nobody_are_refused(tmp_path):
    (tmp_path / "out.partial").write_text("mine\n")
    for resume in (True, False):
        with pytest.raises(SpecdecError, match=r"out\.partial has 1 lines, but out\.partial\.json"):
            grow(tmp_path, resume=resume)
    assert (tmp_path / "out.partial").read_text() == "mine\n"
    (tmp_path / "out.partial.json").write_text("{")
    with pytest.raises(SpecdecError, match=r"out\.partial\.json cannot be read"):
        grow(tmp_path, resume=True)


def test_an_output_in_its_place_is_not_made_again(tmp_path):
    """A run that dies between the rename and the end."""
    grow(tmp_path, ["1", "2"], finish=False)
    (tmp_path / "out.partial").rename(tmp_path / "out")
    with pytest.raises(SpecdecError, match=r"out was made with temperature 0\.0"):
        grow(tmp_path, resume=True, job={**JOB, "temperature": 1.0})
    assert grow(tmp_path, resume=True) == 5
    assert names(tmp_path) == ["out"]
    # Without being asked to resume, it begins.
    assert grow(tmp_path, list("abcde")) == 0
    assert (tmp_path / "out").read_text() == "a\nb\nc\nd\ne\n"


def test_a_link_stays_one(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "folder" / "real")
    grow(tmp_path, list("12345"))
    assert (tmp_path / "out").is_symlink()
    assert names(tmp_path / "folder") == ["real"]


def test_two_runs_do_not_write_one_output(tmp_path):
    with Growing(tmp_path / "out", JOB, total=5) as output:
        output.append(["1"])
        with pytest.raises(SpecdecError, match=r"Another run is writing .*out\.partial: wait"):
            Growing(tmp_path / "out", JOB, total=5, resume=True)
        assert output.path.read_text() == "1\n"


def test_a_full_disk_keeps_what_is_written(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    with Growing(tmp_path / "out", JOB, total=5) as output:
        output.append(["1"])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(SpecdecError, match=r"\(No space left on device\) after 1 whole li"):
                output.append(["2"])
    # Written it was, but not known to be on the disk.
    assert grow(tmp_path, list("345"), resume=True, batch=1) == 2


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(SpecdecError, match=r"Cannot write .*out\.partial \(No such file"):
        Growing(tmp_path / "no" / "out", JOB, total=5)


def test_digests_tell_lines_and_files_apart(tmp_path):
    assert lines_digest(["a", "b"]) == lines_digest(iter(["a", "b"]))
    assert lines_digest(["a", "b"]) != lines_digest(["ab"])
    assert lines_digest(["\udcff"]) == lines_digest(["\udcff"])
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "a").write_bytes(bytes(200_000))
    assert path_digest(one) == path_digest(two)
    assert path_digest(one / "deep" / "a") == path_digest(two / "deep" / "a")
    (two / "deep" / "a").write_bytes(bytes(199_999) + b"\1")
    assert path_digest(one) != path_digest(two)
    (two / "deep" / "a").write_bytes(bytes(200_000))
    (two / "deep" / "a").rename(two / "deep" / "b")
    assert path_digest(one) != path_digest(two)
