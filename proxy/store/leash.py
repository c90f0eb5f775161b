"""Run the embedded server so that it ends when its parent ends, even by ``kill -9``.

``embedded.py`` starts Valkey through this file, which asks the kernel for a signal at the parent's death and
then becomes the server: the request survives ``exec`` (prctl(2), PR_SET_PDEATHSIG). Elsewhere than on Linux
there is no such request; there the next start replaces a server that was left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: list[str]) -> None:
    """Become the command ``arguments[1:]``; ``arguments[0]`` is the process id of the parent."""
    parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # it died before the request was made
            return
    os.execv(command[0], command)  # noqa: S606 - the command is the embedded server's own


if __name__ == "__main__":
    main(sys.argv[1:])
