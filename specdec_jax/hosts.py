"""A job of several processes, one on each host: how they join, agree and end.

Every process runs the same program on its own devices; JAX joins these to one mesh. Process 0 reads
what is done and writes what is new, the others only compute. When one ends, none can go on: what
waits for it inside a computation fails at once where the network says so (gloo, NCCL), and is ended
by JAX's coordination service after `HEARTBEAT_SECONDS` where it does not. That service lives in
process 0: when it goes, a thread of JAX aborts the others within milliseconds, saying that another
task died, be their own sentence out or not; JAX takes no callback for it that Python could give.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator

import jax
import numpy as np

from specdec_jax.errors import SpecdecError
from specdec_jax.resume import Job

HEARTBEAT_SECONDS = 60
"""Without a sign of life from a process, after which it counts as dead; JAX's own is 100."""
JOIN_SECONDS = 300
"""For all processes to be there."""
AUTO = "auto"
FAILED = 2


def join(coordinator: str, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Become one process of a job; before anything asks JAX for a device.

    Args:
        coordinator: HOST:PORT of process 0, or ``auto`` where JAX finds out by itself: Cloud TPU,
            Slurm, Open MPI and Kubernetes.
        num_processes: of the job; None with ``auto``.
        process_id: of this one, from 0; None with ``auto``.

    Raises:
        SpecdecError: the numbers do not fit each other, or the processes do not find each other.
    """
    given = (num_processes, process_id)
    if coordinator == AUTO:
        if given != (None, None):
            raise SpecdecError("--coordinator auto finds the numbers of the processes: leave out.")
    elif num_processes is None or process_id is None or not 0 <= process_id < num_processes:
        raise SpecdecError(
            f"Process {process_id} of {num_processes} with coordinator {coordinator}: give all "
            "three, each process its number, from 0 to one below their count."
        )
    try:
        jax.distributed.initialize(
            None if coordinator == AUTO else coordinator,
            num_processes,
            process_id,
            initialization_timeout=JOIN_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        raise SpecdecError(
            f"The processes do not find each other ({_first_line(error)}): start all of them with "
            "one coordinator, whose address and port are process 0's."
        ) from error


def leads() -> bool:
    """Return whether this process is the one that reads and writes: process 0, or the only one."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def agree(done: int, job: Job) -> int:
    """Return what process 0 says is done, once all processes have the same job.

    Raises:
        SpecdecError: this process has another job than process 0.
    """
    if not jax.distributed.is_initialized():
        return done
    from jax.experimental import multihost_utils

    digest = hashlib.sha256(json.dumps(dict(job), sort_keys=True).encode()).digest()
    mine = np.array([done, *np.frombuffer(digest, np.uint32)], np.uint32)
    first = np.asarray(multihost_utils.broadcast_one_to_all(mine))
    if not np.array_equal(first[1:], mine[1:]):
        raise SpecdecError(
            f"Process {jax.process_index()} has another job than process 0: give all of them the "
            "same lines, models and flags."
        )
    return int(first[0])


@contextlib.contextmanager
def together() -> Iterator[None]:
    """End this process at once when its part of a job fails, and say so when another's did.

    Raises:
        SpecdecError: in place of JAX's error when a computation of several processes fails.
    """
    try:
        yield
    except BaseException as error:
        ended_well = isinstance(error, SystemExit) and not error.code
        if ended_well or not jax.distributed.is_initialized():
            raise
        # JAX's own handler, which would run next, waits for processes that wait for this one.
        atexit.register(_leave)
        if isinstance(error, Exception) and isinstance(error, jax.errors.JaxRuntimeError):
            raise SpecdecError(
                f"Process {jax.process_index()} cannot go on, most likely because another has "
                f"ended ({_first_line(error)}): see the others' messages, then start all of them "
                "again; `specdec generate` goes on where it was with --resume, and T5X by itself."
            ) from error
        raise


def _leave() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(FAILED)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
