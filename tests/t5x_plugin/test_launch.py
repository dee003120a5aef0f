"""The launcher's own part; whole jobs are in test_infer_runs."""

import sys

import pytest

from specdec_jax.t5x_plugin import launch


def test_a_process_joins_and_becomes_the_program(monkeypatch):
    done = []
    monkeypatch.setattr(launch.hosts, "join", lambda *who: done.append(who))
    monkeypatch.setattr(
        launch.runpy, "run_module", lambda name, **how: done.append((name, how, list(sys.argv)))
    )
    monkeypatch.setattr(sys, "argv", ["launch"])
    who = ["--coordinator", "localhost:1", "--num_processes", "2", "--process_id", "1"]
    theirs = ["--gin_file=a.gin", "--gin.B=1"]
    assert launch.main([*who, "t5x.infer", *theirs]) == 0
    how = {"run_name": "__main__", "alter_sys": True}
    assert done == [("localhost:1", 2, 1), ("t5x.infer", how, ["t5x.infer", *theirs])]


def test_what_cannot_be_joined_is_told(capsys):
    assert launch.main(["--coordinator", "localhost:1", "t5x.infer"]) == 2
    assert "error: Process None of None" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        launch.main(["--coordinator", "auto", "t5x.other"])
    assert "invalid choice: 't5x.other'" in capsys.readouterr().err
