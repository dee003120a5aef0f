"""Runs `python -m t5x.infer` (or t5x.eval) several times, each in a child of one process.

Importing T5X takes longer than anything that the tests decode, and a run cannot be repeated in a
process, whose flags and gin bindings it uses up. So the import is done once, before forking.

    python forked_infer.py RUNS.json

RUNS.json is a list of {"module": .., "arguments": [..], "log": FILE, "devices": N, "quick": ..}, or
in the place of one a list of several, which run side by side; quick runs are compiled without
optimization, and one with "dies_at": NAME is killed where it would open the file or wait for the
others at T5X's barrier whose name ends so. Prints the exit statuses, of those side by side that
are to live the first that is not 0.
"""

import importlib
import json
import os
import runpy
import signal
import sys
import traceback

import jax


def arm(place):
    """Choose the instant of death."""
    from t5x import infer, utils

    wait, open_file = utils.sync_global_devices, infer.gfile.GFile

    def before(function):
        def armed(name, *rest, **named):
            if name.endswith(place):
                os.kill(os.getpid(), signal.SIGKILL)
            return function(name, *rest, **named)

        return armed

    utils.sync_global_devices = before(wait)
    infer.gfile.GFile = before(open_file)


def run(module, arguments, log, devices, quick, dies_at=None):
    """Become `python -m module arguments`, on so many devices."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(target, 1)
    os.dup2(target, 2)
    # XLA reads it when the first device is asked for, which no import does.
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    jax.config.update("jax_disable_most_optimizations", quick)
    if dies_at:
        arm(dies_at)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def leave(status):
    """End a child, without the exit handlers of libraries that were imported before the fork."""
    if status == 0:
        # JAX's own of them: the processes of a job wait for each other. Were process 0 to go at
        # once, with it would go the coordination service, and the others would be aborted.
        jax.distributed.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(status))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        runs = json.load(file)
    runs = [entry if isinstance(entry, list) else [entry] for entry in runs]
    for name in sorted({entry["module"] for entries in runs for entry in entries}):
        importlib.import_module(name)
        # Only its imports are wanted: run as __main__, it defines its flags for the first time.
        sys.modules.pop(name)
    # What the gin files and the tasks import.
    for name in ("specdec_jax.t5x_plugin.checkpoints", "specdec_jax.t5x_plugin.tasks"):
        importlib.import_module(name)
    for name in ("tensorflow_text", "tensorflow_datasets", "sacrebleu"):
        importlib.import_module(name)
    statuses = []
    for entries in runs:
        children = []
        for entry in entries:
            child = os.fork()
            if child == 0:
                leave(run(**entry))
            children.append((child, entry))
        found = []
        for child, entry in children:
            _, status, usage = os.wait4(child, 0)
            print(f"{entry['log']}: {usage.ru_utime:.1f} s", file=sys.stderr)
            code = os.waitstatus_to_exitcode(status)
            if entry.get("dies_at"):
                assert code == -signal.SIGKILL, (entry["log"], code)
            else:
                found.append(code)
        statuses.append(next((code for code in found if code), 0))
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
