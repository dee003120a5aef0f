"""Jobs of several processes on this machine: where they meet, and how the living ones end."""

import signal
import socket

OURS = "cannot go on, most likely because another has ended"
JAXS = "This most likely indicates that another task died; see the other task logs"


def free_port():
    """Return a port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def assert_ended_by_another(status, log):
    """A process of the job said that another has ended, and ended too.

    With process 0 goes JAX's coordination service, and a thread of JAX then aborts the others: at
    about the time at which their computation fails and they say so themselves.
    """
    assert status in (2, -signal.SIGABRT), (status, log[-3000:])
    told = OURS in log or (status == -signal.SIGABRT and JAXS in log)
    assert told, (status, log[-3000:])
