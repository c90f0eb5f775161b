"""Runs the server until a signal comes: in this process, or in several that share the listening sockets.

The command calls it after the application is configured. With ``transport.server: library`` uvicorn's own server,
protocol and supervisor take the place of this package, and nothing of ``bounds`` applies.

Several worker processes are started by uvicorn's supervisor. A socket that is open in any process accepts connections,
even if no process serves them. So the parent closes its socket at the signal, after which nobody can begin to connect.
Each worker first accepts the clients that had connected, then closes its own; the last close ends the listening. While
no worker is left, connections are refused; the next worker listens again once it is ready.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import multiprocess
from uvicorn.supervisors.multiprocess import Multiprocess

from tidemark.core.restarts import Restarts
from tidemark.server.connections.bounds import Bounds
from tidemark.server.connections.listening import end_listening
from tidemark.server.connections.server import Server, ServingConfig
from tidemark.server.connections.tls import TlsFiles

_LOG = logging.getLogger("tidemark")


def run(
    app: Any,
    listeners: list[socket.socket],
    bounds: Bounds | None,
    *,
    workers: int = 1,
    tls: TlsFiles | None = None,
    are_inherited: bool = False,
    **options: Any,
) -> None:
    """Serve an application until a signal comes.

    :param app: the application; for several workers a function that makes it, which can be pickled
    :param bounds: what the clients of a worker may take; None uses uvicorn's protocol, which has no such bounds
    :param tls: the certificate's files; None for plain HTTP. uvicorn's protocol has none
    :param are_inherited: another program has these sockets too, and passes them to the next process
    :param options: further options of ``uvicorn.Config``
    """
    if bounds is None:
        # Without a WebSocket library a handshake reaches the application, which refuses it by itself.
        library = uvicorn.Config(app, http="httptools", factory=workers > 1, workers=workers, **options)
        if workers > 1:
            Multiprocess(library, sockets=listeners).run()
        else:
            uvicorn.Server(library).run(sockets=listeners)
        return
    is_sole = workers == 1 and not are_inherited
    config = ServingConfig(
        app, bounds=bounds, tls=tls, is_sole=is_sole, factory=workers > 1, workers=workers, **options
    )
    if workers > 1:
        Workers(config, sockets=listeners, are_inherited=are_inherited).run()
    else:
        Server(config).run(sockets=listeners)


class WorkerProcess(multiprocess.Process):
    """A worker process with Tidemark's server."""

    config: ServingConfig

    @property
    def server(self) -> Server:
        """The server, made in the worker at the first use."""
        if not isinstance(self._server, Server):
            self._server = Server(self.config)
        return self._server


@dataclass(slots=True)
class _WorkerPlace:
    """One of the workers' places: its process may die and be replaced."""

    started_at: float
    restarts: Restarts = field(default_factory=Restarts)
    due_at: float | None = None
    """When the next process is started; None while one runs."""


class SignalEvent(threading.Event):
    """An event that a handler of signals may set.

    The lock of another one may be held by the very code that the signal interrupts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cond = threading.Condition(threading.RLock())


class Workers(multiprocess.Multiprocess):
    """The parent of the workers."""

    config: ServingConfig

    def __init__(self, config: ServingConfig, sockets: list[socket.socket], *, are_inherited: bool) -> None:
        multiprocess.Process = WorkerProcess  # type: ignore[misc] # uvicorn makes its workers of this class
        super().__init__(config, sockets)
        self._are_inherited = are_inherited
        self.should_exit = SignalEvent()
        self._ending = False
        self._places: list[_WorkerPlace] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def keep_subprocess_alive(self) -> None:
        """Called by uvicorn twice a second: replaces workers that have died, one that dies again later each time."""
        now = time.monotonic()
        self._places += [_WorkerPlace(now) for _ in self.processes[len(self._places) :]]
        del self._places[len(self.processes) :]  # a signal may take a worker away
        for number, place in enumerate(self._places):
            if self._ending or self.should_exit.is_set():
                return
            if place.due_at is None:
                self._look_after(number, place)
        if self._places and all(place.due_at is not None for place in self._places):
            self._refuse()
        for number, place in enumerate(self._places):
            if place.due_at is not None and place.due_at <= now and not self._ending:
                self.processes[number] = WorkerProcess(self.config, self.sockets)
                self.processes[number].start()
                place.started_at, place.due_at = time.monotonic(), None

    def _look_after(self, number: int, place: _WorkerPlace) -> None:
        """Plan when a worker is replaced, if it has died or hangs."""
        process = self.processes[number]
        if process.is_alive(timeout=self.config.timeout_worker_healthcheck):
            return
        process.kill()
        process.join()
        if self._ending:
            return
        if process.exitcode == STARTUP_FAILURE and place.restarts.count == 0:
            _LOG.error("A worker failed to start: the command ends.")  # as uvicorn: it would fail the same way again
            self.should_exit.set()
            return
        now = time.monotonic()
        pause = place.restarts.pause_after(now - place.started_at)
        place.due_at = now + pause
        _LOG.warning(
            f"WorkerProcess {process.pid} ended with exit code {process.exitcode}; another starts in {pause:.1f} s."
        )

    def _refuse(self) -> None:
        """Let nobody connect, since nobody would serve them: sockets that do not listen yet take the ports over."""
        for number, listener in enumerate(self.sockets):
            if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            address, bound = listener.getsockname(), socket.socket(listener.family, listener.type)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if listener.family == socket.AF_INET6:
                only = listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
            listener.close()
            self.sockets[number] = bound
            try:
                bound.bind(address)
            except OSError as error:
                _LOG.error(
                    f"{address[0]}:{address[1]} cannot be kept without workers, {error.strerror}: the command ends."
                )
                self.should_exit.set()

    def _end(self, number: int, _: FrameType | None) -> None:
        """Called at a signal: stop listening, and end at once. uvicorn looks for signals twice a second."""
        self._ending = True
        for listener in self.sockets:
            if not self._are_inherited:
                end_listening(listener)
            listener.close()
        self.signal_queue.append(number)
        self.should_exit.set()
