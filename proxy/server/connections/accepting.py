"""Taking connections from the listening socket, no more than have a place.

The event loops' own servers accept whatever has come before anybody is asked, and run out of descriptors: then whoever
connects is reset, and the upstream cannot be reached either.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from math import inf

from proxy.server.connections.connection import ClientConnection
from proxy.server.connections.load import Load

AT_ONCE = 64
"""Connections that are taken before other work has its turn, and no more than a quarter of the bound: an idle one can
be closed for a new one only when it has been set up."""
PAUSE_SECONDS = 1.0
"""After a failure of the system that another attempt would only repeat, as asyncio has it."""


class Acceptor:
    """One listening socket. Mutable: whether it is listened to, and what is being set up.

    :param make: takes ``surplus``: whether the connection is one beyond the bound

    The server treats it as one of the event loop's servers: it is closed, and waited for.
    """

    def __init__(self, listener: socket.socket, make: Callable[..., ClientConnection], load: Load) -> None:
        self._listener = listener
        self._make = make
        self._load = load
        self._at_once = max(1, min(AT_ONCE, load.bounds.connections // 4))
        self._loop = asyncio.get_running_loop()
        self._setting_up: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        self._listening = self._closed = False
        listener.settimeout(0)
        load.ended = self.resume

    def resume(self) -> None:
        """Take connections, from now on."""
        if not self._listening and not self._closed and self._resuming is None:
            self._listening = True
            self._loop.add_reader(self._listener, self._take)

    def close(self) -> None:
        """Take what has connected already, and close the socket, so that whoever comes later is refused.

        Whatever connects between the two is reset, so nothing is done between them.
        """
        if self._closed:
            return
        self._closed = self._load.leaving = True
        self._pause()
        if self._resuming is not None:
            self._resuming.cancel()
        taken = []
        with suppress(OSError):
            while True:
                taken.append(self._listener.accept()[0])
        self._listener.close()
        for client in taken:
            self._set_up(client, surplus=self._load.surplus())

    async def wait_closed(self) -> None:
        """Wait until all that was taken is set up."""
        while self._setting_up:
            await asyncio.wait(self._setting_up)

    def _take(self) -> None:
        taken = 0
        while taken < self._at_once:
            delay = self._load.delay()
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
            taken += 1
            self._set_up(client, surplus=self._load.surplus())

    def _set_up(self, client: socket.socket, *, surplus: bool) -> None:
        client.settimeout(0)
        connection = self._make(surplus=surplus)
        self._load.begin(connection, surplus=surplus)
        task = self._loop.create_task(self._connect(client, connection))
        self._setting_up.add(task)
        task.add_done_callback(self._setting_up.discard)

    async def _connect(self, client: socket.socket, connection: ClientConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, client)
        except OSError as error:  # the client has gone meanwhile
            client.close()
            self._load.end(connection)
            self._load.notices.warn("set up", f"A connection could not be set up: {error}")

    def _fail(self, error: OSError) -> None:
        message = f"No connection can be taken for {PAUSE_SECONDS:g} s: {error.strerror or error}"
        self._load.notices.warn("accept", message)
        self._pause(PAUSE_SECONDS)

    def _try_again(self) -> None:
        self._resuming = None
        self.resume()

    def _pause(self, seconds: float = inf) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._listener)
            if seconds < inf:
                self._resuming = self._loop.call_later(seconds, self._try_again)
