"""Jobs that die: killed at any instant, on one host or on two, and taken up again, on four too.

The runs are real processes with the tiny pair, see forked_specdec.py.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jobs
import pytest
from tiny_pairs import save_pair

ROOT = Path(__file__).resolve().parents[2]
LINES = [f"line {number} {'x' * number}" for number in range(11)]
BATCH = 2
KILLS = (
    ("at the start", 1),
    ("amid a line", 2),
    ("at the disk", 3),
    ("before the rename", 1),
    ("after the rename", 1),
)
LEFT = (0, 3, 8, 11, None)
"""Whole lines of NAME.partial after each of them: the third of a batch of two is not kept."""

# In one worker, which runs the jobs once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("long_jobs")]


class Runs:
    """What was run, in order; every run is told where to write its log."""

    def __init__(self, folder):
        self.folder, self.runs = folder, []
        (folder / "in").write_text("\n".join(LINES) + "\n")
        target, draft = save_pair(folder)
        self.flags = ["generate", "--input", str(folder / "in"), "--target", target]
        self.flags += ["--draft", draft, "--gamma", "2", "--max_tokens", "12", "--prefix", ""]
        self.flags += ["--temperature", "1", "--batch_size", str(BATCH), "--json"]

    def process(self, output, *extra, kill=None, devices=1):
        arguments = [*self.flags, "--output", str(self.folder / output), *map(str, extra)]
        log = str(self.folder / f"log_{len(self.runs)}_{extra[-1] if extra else 0}")
        return {"arguments": arguments, "log": log, "devices": devices, "kill": kill}

    def add(self, *processes):
        self.runs.append(processes)

    def add_hosts(self, output, *extra, hosts=2, kill=None, victim=1):
        """Two processes of two devices, or four of one; the victim dies where it is told."""
        port = jobs.free_port()
        flags = ("--mesh", "2x2", "--coordinator", f"localhost:{port}", "--num_processes", hosts)
        self.add(
            *(
                self.process(
                    *(output if host == 0 else f"{output}_{host}", *extra, *flags),
                    *("--process_id", host),
                    kill=kill if host == victim else None,
                    devices=4 // hosts,
                )
                for host in range(hosts)
            )
        )


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Run everything; returns the folder and, for each run, statuses, lines and logs."""
    folder = tmp_path_factory.mktemp("jobs")
    runs = Runs(folder)
    runs.add(runs.process("whole"))
    for kill in KILLS:
        runs.add(runs.process("killed", "--resume", kill=kill))
    runs.add(runs.process("killed", "--resume"))
    runs.add_hosts("hosts", kill=("after decoding", 2))
    runs.add_hosts("hosts", "--resume", hosts=4, kill=("after decoding", 2), victim=0)
    runs.add_hosts("hosts", "--resume")
    (folder / "runs.json").write_text(json.dumps(runs.runs))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("forked_specdec.py"), folder / "runs.json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    logs = [[Path(p["log"]).read_text() for p in processes] for processes in runs.runs]
    return folder, [(*result, log) for result, log in zip(found, logs, strict=True)]


def test_a_job_that_dies_five_times_writes_what_one_run_writes(ended):
    folder, runs = ended
    assert runs[0][0] == [0], runs[0][-1]
    for (kill, _), left, run in zip(KILLS, LEFT, runs[1:6], strict=True):
        statuses, lines, logs = run
        assert statuses == [-signal.SIGKILL], (kill, logs)
        assert lines.get("killed") == left, kill
    assert runs[6][0] == [0], runs[6][-1]
    # To the last digit of every score.
    assert (folder / "killed").read_bytes() == (folder / "whole").read_bytes()
    records = [json.loads(line) for line in (folder / "killed").read_text().splitlines()]
    assert [record["source"] for record in records] == LINES
    assert not list(folder.glob("*.partial*"))


def test_a_host_that_dies_ends_the_others_and_all_go_on_later(ended):
    folder, runs = ended
    (first, second), lines, (log, _) = runs[7]
    assert second == -signal.SIGKILL
    jobs.assert_ended_by_another(first, log)
    before = lines["hosts"]
    assert 0 < before < len(LINES)
    # The next time it is process 0, which writes, and keeps the account of the others.
    (first, *rest), lines, logs = runs[8]
    assert first == -signal.SIGKILL
    for status, log in zip(rest, logs[1:], strict=True):
        jobs.assert_ended_by_another(status, log)
    assert before < lines["hosts"] < len(LINES)
    statuses, lines, logs = runs[9]
    assert statuses == [0, 0], logs
    assert lines == {}
    assert not list(folder.glob("hosts_*"))
    for name in ("source", "tokens", "text", "accepted"):
        values = [
            [json.loads(line)[name] for line in (folder / output).read_text().splitlines()]
            for output in ("hosts", "whole")
        ]
        assert values[0] == values[1], name
