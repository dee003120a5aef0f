"""Runs commands of `specdec`, each in processes of its own, and kills some where they are told.

Importing the package takes longer than a tiny job, so it is done once, before forking.

    python forked_specdec.py RUNS.json

RUNS.json is a list of runs, one after the other; a run is a list of processes, side by side, each
{"arguments": [..], "log": FILE, "devices": N, "kill": [WHERE, COUNT] or null}. Prints for each run
its processes' exit statuses, and how many lines the files *.partial beside RUNS.json have.
"""

import importlib
import json
import os
import signal
import sys
from pathlib import Path

import jax

from specdec_jax import cli, generate, resume

# What `generate` imports when it runs.
for name in ("tqdm", "orbax.checkpoint", "specdec_jax.hosts", "specdec_jax.checkpoints.bundle"):
    importlib.import_module(name)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(owner, name, count, instead=lambda *_: None):
    """Die at the count-th call of owner.name, after doing something instead of it."""
    original, calls = getattr(owner, name), []

    def counted(*arguments, **keywords):
        calls.append(name)
        if len(calls) == count:
            instead(*arguments)
            die()
        return original(*arguments, **keywords)

    setattr(owner, name, counted)


def half(growing, lines):
    """Write one of two lines and a part of the other."""
    growing._file.write(f"{lines[0]}\n{lines[1][:5]}".encode())


def arm(where, count):
    """Choose the instant of death."""
    if where == "amid a line":
        at_call(resume.Growing, "append", count, half)
    elif where == "at the disk":
        at_call(os, "fsync", count)
    elif where == "at the start":
        at_call(resume, "write_json", count)
    elif where == "before the rename":
        at_call(Path, "replace", count)
    elif where == "after the rename":
        at_call(resume, "_sync_folder", count)
    elif where == "after decoding":
        at_call(generate, "unpack", count)
    else:
        raise ValueError(where)


def become(arguments, log, devices, kill):
    """Be `specdec` with these arguments, on so many devices."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    jax.config.update("jax_disable_most_optimizations", True)
    if kill:
        arm(*kill)
    cli.main(cli.parser().parse_args(arguments))


def main():
    listed = Path(sys.argv[1])
    runs = json.loads(listed.read_text())
    # They compile the same programs.
    jax.config.update("jax_compilation_cache_dir", str(listed.parent / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    for processes in runs:
        children = []
        for process in processes:
            child = os.fork()
            if child == 0:
                become(**process)  # ends by sys.exit, so that JAX takes its leave as usual
            children.append(child)
        statuses = []
        for child in children:
            _, status, usage = os.wait4(child, 0)
            statuses.append(os.waitstatus_to_exitcode(status))
            print(f"{usage.ru_utime + usage.ru_stime:.1f} s of a core", file=sys.stderr, flush=True)
        partial = listed.parent.glob("*.partial")
        left = {path.stem: path.read_bytes().count(b"\n") for path in partial}
        print(json.dumps([statuses, left]), flush=True)


if __name__ == "__main__":
    main()
