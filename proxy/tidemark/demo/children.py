"""Starts child processes that serve HTTP, waits until they answer, and always stops them.

`run.py` starts the model's server and Tidemark with `child`, and `tidemark wrap` its Tidemark. Leaving this context
manager in any way ends the process and its process group. `exit_on_signals` makes SIGTERM and SIGHUP leave it too.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tidemark.core.frozen import frozen

HOST = "127.0.0.1"
START_SECONDS = 60.0
"""The longest time until a child answers; importing litellm alone takes 3 to 7 s of CPU."""
STOP_SECONDS = 8.0
"""The longest time that a child has to end after SIGTERM, before it is killed."""
_DIE_WITH_PARENT = Path(__file__).parents[1] / "store" / "embedded" / "die_with_parent.py"
"""Ends a child when its parent ends, in any way; started by its path, it imports no package."""
_SIGNALS = tuple(number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)))


class ChildError(Exception):
    """A child process ended early or did not answer in time; the message contains its last log lines."""


@frozen
class Child:
    """A running process and its port on 127.0.0.1."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def wait_ready(self, path: str) -> None:
        """Return as soon as `GET path` is answered with 200; raise `ChildError` after `START_SECONDS`."""
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self.port, path):
            self.check()
            if time.monotonic() > deadline:
                raise ChildError(f"{self.name} did not answer in {START_SECONDS:.0f} s.\n{self.last_lines()}")
            time.sleep(0.05)

    def check(self) -> None:
        """Raise `ChildError` if the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise ChildError(f"{self.name} has ended with exit code {code}.\n{self.last_lines()}")

    def last_lines(self) -> str:
        """Return the end of its log, as text to print."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        return "\n".join([f"The last lines of its log ({self.log.name}):", *(f"  | {line}" for line in lines)])


@contextlib.contextmanager
def child(
    name: str, port: int, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Run `command`, which serves `port`, in a session of its own while the block runs; `log` gets its output.

    Signals are blocked while the process is started and stopped, so that none can arrive in between.
    """
    if not hasattr(signal, "pthread_sigmask"):
        raise ChildError(f"Windows cannot start {name} from here. Start `tidemark serve` first, or use WSL.")
    guarded = [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *command]
    with log.open("wb") as output, contextlib.ExitStack() as stack:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        process = subprocess.Popen(
            guarded, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ, start_new_session=True
        )
        try:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                yield Child(name, port, process, log)
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty (EPERM on macOS)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port(wanted: int = 0) -> int:
    """Return `wanted` if it can be listened on at this moment, else another port that can."""
    try:
        with socket.create_server((HOST, wanted)) as probe:  # it finds a port in TIME_WAIT free, as servers do
            port: int = probe.getsockname()[1]
            return port
    except OSError:
        return free_port()


def exit_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise `SystemExit` in the main thread, as SIGINT raises `KeyboardInterrupt`."""
    for number in _SIGNALS[1:]:
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=2)  # it ignores the environment's proxies
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    return False
