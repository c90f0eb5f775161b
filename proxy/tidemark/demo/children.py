"""Starts the demo's child processes, waits until they answer, and always stops them.

`run.py` starts the model's server and Tidemark with `child`. Leaving this context manager in any way ends the process
and its process group. `ended_by_signals` makes SIGTERM and SIGHUP leave it too.
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
from types import FrameType

from tidemark.core.frozen import frozen

HOST = "127.0.0.1"
START_SECONDS = 60.0
"""The longest time until a child answers; importing litellm alone takes 3 to 7 s of CPU."""
STOP_SECONDS = 8.0
"""The longest time that a child has to end after SIGTERM, before it is killed."""
_POLL_SECONDS = 0.05
_LOG_LINES = 12
_DIE_WITH_PARENT = Path(__file__).parents[1] / "store" / "embedded" / "die_with_parent.py"
"""The program that ends a child when the demo ends, in any way. It is started by its path, so no package is
imported."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ChildError(Exception):
    """A child process ended early or did not answer in time; the message contains its last log lines."""


class EndedBySignal(KeyboardInterrupt):
    """SIGTERM or SIGHUP arrived; `number` is the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@frozen
class Child:
    """A running process of the demo."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait_ready(self, port: int, path: str, seconds: float = START_SECONDS) -> None:
        """Return as soon as `GET path` is answered with 200; raise `ChildError` after `seconds`."""
        deadline = time.monotonic() + seconds
        while not _answers(port, path):
            self.check()
            if time.monotonic() > deadline:
                raise ChildError(f"{self.name} did not answer on port {port} in {seconds:.0f} s.\n{self.last_lines()}")
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise `ChildError` if the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise ChildError(f"{self.name} has ended with exit code {code}.\n{self.last_lines()}")

    def last_lines(self) -> str:
        """Return the end of its log, as text to print."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"The last lines of its log ({self.log.name}):", *(f"  | {line}" for line in lines)])


@contextlib.contextmanager
def child(name: str, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> Iterator[Child]:
    """Run `command` in a session of its own while the block runs; its output goes to the file `log`.

    Signals are blocked while the process is started and stopped, so that none can arrive in between.
    """
    guarded = [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *command]
    with _signals(signal.SIG_BLOCK), log.open("wb") as output:
        process = subprocess.Popen(
            guarded,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environ,
            start_new_session=True,
        )
        try:
            with _signals(signal.SIG_UNBLOCK):
                yield Child(name, process, log)
        finally:
            _stop(process)


def free_port(wanted: int = 0) -> int:
    """Return `wanted` if it can be listened on at this moment, else another port that can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT is free
        try:
            probe.bind((HOST, wanted))
        except OSError:
            probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `EndedBySignal` in the main thread, as Python does with SIGINT."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise EndedBySignal(number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process with SIGTERM, then kill the rest of its group."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty (macOS answers EPERM then)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _signals(how: int) -> Iterator[None]:
    """Block or unblock the signals while the block runs."""
    before = signal.pthread_sigmask(how, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=2)  # it ignores the environment's proxies
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
