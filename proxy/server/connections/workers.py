"""Starts several worker processes on one listening socket, by uvicorn's supervisor.

A socket that is open in any process accepts connections that no process serves. So the parent closes its own at the
signal, and each worker after it has accepted the clients that had connected; the last close ends the listening.
"""

from __future__ import annotations

import signal
import socket
from types import FrameType

from uvicorn.supervisors import multiprocess

from proxy.server.connections.server import Server, ServingConfig


class Worker(multiprocess.Process):
    """A worker process with Tidemark's server."""

    config: ServingConfig

    @property
    def server(self) -> Server:
        """The server, made in the worker at the first use."""
        if not isinstance(self._server, Server):
            self._server = Server(self.config)
        return self._server


class Workers(multiprocess.Multiprocess):
    """The parent of the workers."""

    def __init__(self, config: ServingConfig, sockets: list[socket.socket]) -> None:
        multiprocess.Process = Worker  # type: ignore[misc] # uvicorn makes its workers of this class
        super().__init__(config, sockets)
        self._ending = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def keep_subprocess_alive(self) -> None:
        """Called by uvicorn twice a second: replaces workers that have died."""
        if not self._ending:
            super().keep_subprocess_alive()

    def _end(self, number: int, _: FrameType | None) -> None:
        self._ending = True
        for listener in self.sockets:
            listener.close()
        self.signal_queue.append(number)
