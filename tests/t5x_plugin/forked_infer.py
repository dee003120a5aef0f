"""Runs `python -m t5x.infer` (or t5x.eval) several times, each in a child of one process.

Importing T5X takes longer than anything that the tests decode, and a run cannot be repeated in a
process, whose flags and gin bindings it uses up. So the import is done once, before forking.

    python forked_infer.py RUNS.json

RUNS.json is a list of {"module": .., "arguments": [..], "log": FILE}; prints the exit statuses.
"""

import importlib
import json
import os
import runpy
import sys
import traceback


def run(module, arguments, log):
    """Become `python -m module arguments`."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(target, 1)
    os.dup2(target, 2)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        runs = json.load(file)
    for name in sorted({entry["module"] for entry in runs}):
        importlib.import_module(name)
        # Only its imports are wanted: run as __main__, it defines its flags for the first time.
        sys.modules.pop(name)
    statuses = []
    for entry in runs:
        child = os.fork()
        if child == 0:
            status = run(**entry)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(status))
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
