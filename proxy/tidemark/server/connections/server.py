"""Accepts connections with bounds over all of them, within uvicorn's server.

The event loops' own servers accept every connection and run out of descriptors. Then new clients are reset, and the
upstream cannot be reached either.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

import uvicorn

from tidemark.server.connections.bounds import Bounds
from tidemark.server.connections.connection import ClientConnection
from tidemark.server.connections.listening import end_listening
from tidemark.server.connections.load import Load
from tidemark.server.connections.tls import LOOK_SECONDS, Certificates, TlsFiles

_LOG = logging.getLogger("tidemark")
BATCH = 64
"""Connections that are accepted before other work has its turn, and no more than a quarter of the bound. An idle
connection can be closed for a new one only after it has been set up."""
PAUSE_SECONDS = 1.0
"""After an error of the system, which another attempt would only repeat. asyncio waits as long."""


class ServingConfig(uvicorn.Config):
    """uvicorn's configuration and the bounds of a worker. Both are sent to worker processes.

    :param is_sole: no other process has the listening sockets
    """

    def __init__(
        self, app: Any, *, bounds: Bounds, tls: TlsFiles | None = None, is_sole: bool = True, **options: Any
    ) -> None:
        super().__init__(app, http=ClientConnection, **options)
        self.bounds = bounds
        self.tls = tls
        self.is_sole = is_sole


class Server(uvicorn.Server):
    """The server of one worker."""

    config: ServingConfig

    def __init__(self, config: ServingConfig) -> None:
        super().__init__(config)
        self.load = Load(config.bounds)
        self._certificates = None if config.tls is None else Certificates(config.tls, _LOG.warning)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn: start the application, then listen."""
        await super().startup(sockets=[])
        make = partial(
            ClientConnection,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            load=self.load,
        )
        for listener in sockets or ():
            listener.listen(self.config.backlog)  # a parent without workers lets it refuse
            acceptor = Acceptor(listener, make, self.load, self._certificates, is_sole=self.config.is_sole)
            self.servers.append(acceptor)  # type: ignore[arg-type] # has what uvicorn asks of a server
            acceptor.resume()
        if self._certificates is not None:
            self._look_at(self._certificates)

    def _look_at(self, certificates: Certificates) -> None:
        """Look for new files of the certificate, now and from now on."""
        certificates.refresh()
        asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_at, certificates)


class Acceptor:
    """Accepts the connections of one listening socket.

    uvicorn's server treats it as one of the event loop's servers: it closes it and waits for it. Mutable: whether it
    accepts connections now, and the connections that are being set up.

    :param make: makes a connection; its argument ``surplus`` says whether the connection exceeds the bound
    :param certificates: those of TLS; None for plain HTTP
    :param is_sole: nobody else accepts connections of this socket, or will
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[..., ClientConnection],
        load: Load,
        certificates: Certificates | None = None,
        *,
        is_sole: bool = False,
    ) -> None:
        self._listener = listener
        self._is_sole = is_sole
        self._certificates = certificates
        self._make = make
        self._load = load
        self._batch = max(1, min(BATCH, load.bounds.connections // 4))
        self._loop = asyncio.get_running_loop()
        self._setting_up: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        self._listening = self._closed = False
        listener.settimeout(0)
        load.on_end = self.resume

    def resume(self) -> None:
        if not self._listening and not self._closed and self._resuming is None:
            self._listening = True
            self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Accept the clients that have connected, and close the socket, so that later ones are refused.

        A client that connects between the two would be reset. So none can begin to: see `end_listening`.
        """
        if self._closed:
            return
        if self._is_sole:
            end_listening(self._listener)
        self._closed = self._load.ending = True
        self._pause()
        if self._resuming is not None:
            self._resuming.cancel()
        clients = []
        with suppress(OSError):
            while True:
                clients.append(self._listener.accept()[0])
        self._listener.close()
        for client in clients:
            self._set_up(client, surplus=not self._load.admit())

    async def wait_closed(self) -> None:
        """Wait until all accepted connections are set up."""
        while self._setting_up:
            await asyncio.wait(self._setting_up)

    def _accept(self) -> None:
        accepted = 0
        while accepted < self._batch:
            delay = self._load.accept_delay()
            if delay:
                self._pause(delay)
                return
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._fail(error)
                return
            accepted += 1
            self._set_up(client, surplus=not self._load.admit())

    def _set_up(self, client: socket.socket, *, surplus: bool) -> None:
        client.settimeout(0)
        connection = self._make(surplus=surplus)
        self._load.begin(connection, surplus=surplus)
        task = self._loop.create_task(self._connect(client, connection))
        self._setting_up.add(task)
        task.add_done_callback(self._setting_up.discard)

    async def _connect(self, client: socket.socket, connection: ClientConnection) -> None:
        try:
            if self._certificates is None:
                await self._loop.connect_accepted_socket(lambda: connection, client)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    client,
                    ssl=self._certificates.context,
                    ssl_handshake_timeout=self._load.bounds.head_seconds,
                )
        except OSError as error:  # the client has disconnected meanwhile
            client.close()
            self._load.end(connection)
            self._load.notices.warn("set up", f"A connection could not be set up: {error}")

    def _fail(self, error: OSError) -> None:
        message = f"No connection can be accepted for {PAUSE_SECONDS:g} s: {error.strerror or error}"
        self._load.notices.warn("accept", message)
        self._pause(PAUSE_SECONDS)

    def _resume_after_pause(self) -> None:
        self._resuming = None
        self.resume()

    def _pause(self, seconds: float = inf) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._listener)
            if seconds < inf:
                self._resuming = self._loop.call_later(seconds, self._resume_after_pause)
