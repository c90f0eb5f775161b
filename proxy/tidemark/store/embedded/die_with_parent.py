"""Runs a command that ends when its parent ends, even by ``kill -9``.

``python -I -S die_with_parent.py PARENT COMMAND...`` is a program of its own, started by its path and never imported.
``server.py`` starts Valkey through it, the demo its two processes, and the benchmarks the systems that they measure.
It asks the kernel for a signal at the parent's death and then becomes the command: the request survives ``exec``
(prctl(2), PR_SET_PDEATHSIG). Only Linux has it. Elsewhere the store's next start ends a server that was left behind,
and the demo ends its processes itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: list[str]) -> None:
    """Become the command ``arguments[1:]``, for the parent with the process id ``arguments[0]``."""
    parent, *command = arguments
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the demo starts its children with signals held back
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # it died before the request was made
            return
    os.execv(command[0], command)  # noqa: S606 - the parent's own command


if __name__ == "__main__":
    main(sys.argv[1:])
