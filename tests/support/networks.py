"""Networks of a test's own, of Linux's network namespaces: a machine in one can be cut off and joined again.

Making them takes root. What listens in them is reached by nobody else.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import wait_until

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_OWN = Path("/proc/thread-self/ns/net")


@dataclass(frozen=True)
class Place:
    """Where a server runs: its address, what its command begins with, and its further options there."""

    host: str = "127.0.0.1"
    prefix: Sequence[str] = ()
    options: Sequence[str] = ()


LOOPBACK = Place()
_OPEN = ("--protected-mode", "no")
"""Valkey answers other machines only with a password, or with this."""


@contextlib.contextmanager
def private_network() -> Iterator[None]:
    """Give this thread, and the threads and processes that it starts, a network that has nothing but loopback.

    :raises PermissionError: the user may not make one
    """
    with _OWN.open() as before:
        _call("unshare", _CLONE_NEWNET)
        try:
            _ip("link", "set", "lo", "up")
            yield
        finally:
            _call("setns", before.fileno(), _CLONE_NEWNET)


class Machine:
    """A network with one cable to the thread's own."""

    def __init__(self, number: int = 1) -> None:
        self.here, self.there = (f"10.77.{number}.{end}" for end in (1, 2))
        self._holder = subprocess.Popen([_program("unshare"), "--net", "sleep", "infinity"])
        name = Path(f"/proc/{self._holder.pid}/ns/net")
        wait_until(lambda: name.readlink() != _OWN.readlink())
        self._prefix = [_program("nsenter"), f"--net={name}", "--"]
        _ip("link", "add", f"cable{number}", "type", "veth", "peer", "name", "cable", "netns", str(self._holder.pid))
        _ip("address", "add", f"{self.here}/30", "dev", f"cable{number}")
        _ip("link", "set", f"cable{number}", "up")
        self._inside("address", "add", f"{self.there}/30", "dev", "cable")
        for interface in ("lo", "cable"):
            self._inside("link", "set", interface, "up")

    @property
    def outside(self) -> Place:
        """The end of the cable in the thread's own network."""
        return Place(self.here, options=_OPEN)

    @property
    def inside(self) -> Place:
        """The machine."""
        return Place(self.there, self._prefix, _OPEN)

    def cut(self) -> None:
        """Drop whatever the machine sends: nobody hears of it, as if the cable were out."""
        self._inside("route", "add", "blackhole", f"{self.here}/32")

    def join(self) -> None:
        """Let it be heard again."""
        self._inside("route", "del", "blackhole", f"{self.here}/32")

    def end(self) -> None:
        """Take the machine away, after what runs on it has ended."""
        self._holder.kill()
        self._holder.wait()

    def _inside(self, *arguments: str) -> None:
        subprocess.run([*self._prefix, _program("ip"), *arguments], check=True)


def _ip(*arguments: str) -> None:
    subprocess.run([_program("ip"), *arguments], check=True)


def _program(name: str) -> str:
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if found is None:
        raise FileNotFoundError(f"{name} is not here: apt-get install iproute2 util-linux")
    return found


def _call(name: str, *arguments: int) -> None:
    if getattr(_LIBC, name)(*arguments):
        number = ctypes.get_errno()
        raise PermissionError(number, f"{name}: {os.strerror(number)}")
