"""``tidemark serve`` on a socket that systemd has opened for it, as sd_listen_fds(3) describes."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_command import WAIT_SECONDS, Machine, Tidemark, machine
from tests.request.talk import user

__all__ = ["machine"]
pytestmark = pytest.mark.e2e

ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""What systemd does: the socket is the descriptor 3, and the variables name the process that may use it."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A listening socket of somebody else."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        yield opened


def activated(machine: Machine, passed: socket.socket, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command line that starts it with a socket, and its environment."""
    command = [sys.executable, "-m", "tidemark", "serve", "--config", str(machine.config()), *arguments]
    return [sys.executable, "-c", ACTIVATE, str(passed.fileno()), *command], machine.environ


def started(
    machine: Machine, passed: socket.socket, command: list[str], environ: dict[str, str], log: Path
) -> Tidemark:
    """Start it for a client that has connected before."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environ,
            cwd=machine.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[passed.fileno()],
            start_new_session=True,
        )
    machine.stack.enter_context(process)
    machine.stack.callback(process.terminate)
    with socket.create_connection(passed.getsockname(), timeout=WAIT_SECONDS) as early:
        early.sendall(b"GET /health/liveliness HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        assert early.recv(4096).startswith(b"HTTP/1.1 200")
    return Tidemark(process, log)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_serves_on_the_socket_that_it_gets(machine: Machine, listener: socket.socket, workers: str) -> None:
    """In place of the configured port, with any number of workers; who connects meanwhile waits, and is served."""
    command, environ = activated(machine, listener, "--port", "1", "--workers", workers)
    log = machine.folder / "log"
    for _ in range(2):  # the next process gets the same socket
        tidemark = started(machine, listener, command, environ, log)
        assert tidemark.url.endswith(f":{listener.getsockname()[1]}")
        assert tidemark.chat([user("Hello?")]).status_code == 200
        assert tidemark.end() == 0


def test_a_socket_that_takes_no_connections_is_refused(machine: Machine) -> None:
    """By the line of the unit that mends it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        command, environ = activated(machine, datagrams)
        done = subprocess.run(
            command,
            env=environ,
            cwd=machine.folder,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            pass_fds=[datagrams.fileno()],
            check=False,
        )
    assert (done.returncode, "Set ListenStream to ADDRESS:PORT" in done.stderr) == (2, True)
