r"""One of T5X's programs as a process of a job of several, where nothing else tells JAX of them.

On Cloud TPU the hosts of a slice find each other. On GPUs and CPUs `t5x.infer` and `t5x.eval`,
unlike `t5x.train`, have no flags for it; so every host runs

    python -m specdec_jax.t5x_plugin.launch --coordinator HOST:PORT --num_processes 2 \
      --process_id N t5x.infer --gin_file=...

with N from 0 on, and what stands behind the program's name is its own. `--coordinator auto` finds
the rest out under Slurm, Open MPI and Kubernetes.

When one process dies, the others end too, and say why. Started anew, `t5x.infer` goes on where it
was, see `output`.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence

from specdec_jax import hosts
from specdec_jax.errors import told

PROGRAMS = ("t5x.infer", "t5x.eval", "t5x.train")


@told
def main(arguments: Sequence[str] | None = None) -> int:
    """Join the others, then become the program, and end when another ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--coordinator", required=True, help="HOST:PORT of process 0, or auto")
    parser.add_argument("--num_processes", type=int)
    parser.add_argument("--process_id", type=int, help="this one's, from 0")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    flags = parser.parse_args(arguments)
    hosts.join(flags.coordinator, flags.num_processes, flags.process_id)
    sys.argv = [flags.program, *flags.arguments]
    with hosts.together():
        runpy.run_module(flags.program, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
