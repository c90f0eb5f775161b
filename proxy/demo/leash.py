"""Run a command that ends when its parent ends: `python -m proxy.demo.leash COMMAND...`.

`children.py` starts both processes of the demo through this file. It asks the kernel for a signal at the
parent's death and then becomes the command, so that even a `kill -9` of the demo leaves nothing behind. The
request survives `exec` (prctl(2), PR_SET_PDEATHSIG). Elsewhere than on Linux there is no such request and
only `children.py` ends them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: list[str]) -> None:
    """Become the command `arguments[1:]`; `arguments[0]` is the process id of the parent."""
    parent, *command = arguments
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent starts its children with signals held back
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # it died before the request was made
            return
    os.execv(command[0], command)  # noqa: S606 - the command is the demo's own


if __name__ == "__main__":
    main(sys.argv[1:])
