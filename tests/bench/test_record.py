import json
import subprocess
from importlib import metadata

import pytest

from specdec_jax.bench import record


def test_a_record_says_where_it_comes_from(monkeypatch):
    monkeypatch.setattr(record.sys, "argv", ["/home/ann/bin/specdec", "bench", "--gamma", "3"])
    found = record.provenance(7)
    assert list(found) == ["command", "commit", "device", "python", "seed", "versions"]
    assert found["command"] == "specdec bench --gamma 3"
    assert found["seed"] == 7
    assert found["device"].keys() == {"platform", "kind", "count", "cores"}
    assert all(found["device"].values())
    assert found["versions"]["jax"] == metadata.version("jax")
    assert found["versions"].keys() == {"jax", "jaxlib", "flax", "numpy"}
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["/x/specdec_jax/__main__.py", "demo"], "specdec demo"),
        (["specdec", "--json", "/home/ann/out.json"], "specdec --json out.json"),
        (["specdec", "--json=/home/ann/out.json"], "specdec --json=out.json"),
        # Relative paths are part of how a result is made again.
        (["specdec", "--json", "results/out.json"], "specdec --json results/out.json"),
        (["specdec", "two words", "a=b"], "specdec 'two words' a=b"),
    ],
)
def test_a_command_can_be_typed_again_and_tells_no_folders(monkeypatch, arguments, shown):
    monkeypatch.setattr(record.sys, "argv", arguments)
    assert record.provenance(0)["command"] == shown


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with the package in it, which the record believes to be its own."""

    def git(*arguments):
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        done = subprocess.run(
            ["git", "-C", tmp_path, *who, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def place(*folders):
        path = tmp_path.joinpath(*folders, "specdec_jax", "bench", "record.py")
        path.parent.mkdir(parents=True)
        path.touch()
        monkeypatch.setattr(record, "__file__", str(path))
        return path

    git("init", "-q")
    return git, place


def test_the_commit_is_marked_where_files_differ(checkout):
    git, place = checkout
    path = place()
    git("add", ".")
    git("commit", "-q", "-m", "first")
    head = git("rev-parse", "--short=12", "HEAD")
    assert record.provenance(0)["commit"] == head
    path.write_text("changed")
    assert record.provenance(0)["commit"] == f"{head}+"


def test_an_installed_package_has_no_commit(checkout):
    """Not that of the repository which its environment happens to lie in."""
    git, place = checkout
    place(".venv", "lib", "site-packages")
    git("commit", "-q", "--allow-empty", "-m", "somebody else's")
    assert record.provenance(0)["commit"] is None


def test_without_git_there_is_no_commit(monkeypatch):
    def missing(*args, **kwargs):
        raise FileNotFoundError("git")

    monkeypatch.setattr(record.subprocess, "run", missing)
    assert record.provenance(0)["commit"] is None
