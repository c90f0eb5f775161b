"""How listening ends: nobody who connects in that moment is reset."""

from __future__ import annotations

import errno
import socket
import sys
import threading
from pathlib import Path

import pytest

from tests.server.connections.served import WAIT_SECONDS
from tests.support.waiting import wait_until
from tidemark.server.connections.listening import end_listening

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the filter is one of Linux")


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_who_connected_before_is_accepted_and_who_comes_after_is_refused(family: int, host: str) -> None:
    """The client between the last accept and the close waits, and is refused; before, it was reset."""
    listener = socket.create_server((host, 0), family=family)
    earlier = socket.create_connection((host, listener.getsockname()[1]))
    end_listening(listener)
    outcomes: list[object] = []

    def come_late() -> None:
        with socket.socket(family) as late:
            late.settimeout(WAIT_SECONDS)
            outcomes.append(late.connect_ex(listener_address))

    listener_address = listener.getsockname()
    thread = threading.Thread(target=come_late)
    thread.start()
    accepted, _ = listener.accept()
    wait_until(lambda: _is_asked(listener_address[1]), WAIT_SECONDS)
    listener.close()
    thread.join(WAIT_SECONDS)
    assert outcomes == [errno.ECONNREFUSED]
    earlier.sendall(b"whole")
    accepted.sendall(b"answer")
    assert (accepted.recv(10), earlier.recv(10)) == (b"whole", b"answer")
    earlier.close()
    accepted.close()


def _is_asked(port: int) -> bool:
    """Whether a client waits for this port's answer to its first packet (state SYN_SENT, 02, of proc_pid_net(5))."""
    lines = [line.split() for table in TABLES for line in table.read_text(encoding="ascii").splitlines()]
    return any(state == "02" and remote.endswith(f":{port:04X}") for _, _, remote, state, *_ in lines)
