"""A real uvicorn in a thread, for any ASGI application: what the tests of the flow talk to over a socket."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import uvicorn

from tests.support.waiting import wait_until

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For the clients of the tests' servers, which speak plain HTTP: without it httpx reads all certificates of the
machine for each client, 25 ms of CPU each time."""
GRACE_SECONDS = 2
"""How long open requests may take to end when the server is told to."""

_START_SECONDS = 20
"""How long a thread may take to answer on a busy machine."""

_LOOKS = 3
"""How often in a row a server must be idle: a task that ends begins the next one a round of the loop later."""


class _Server(uvicorn.Server):
    """One that ends when it is told to; uvicorn's looks every tenth of a second, and the tests are hundreds."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn first."""
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        await super().startup(sockets)
        self._lasting = asyncio.all_tasks()

    async def main_loop(self) -> None:
        """Called by uvicorn between its beginning and its end."""
        await self.on_tick(0)
        await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close as uvicorn does, in its order, without its fixed pause of a tenth of a second."""
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        until = self._loop.time() + GRACE_SECONDS
        state = self.server_state
        while (state.connections or state.tasks) and self._loop.time() < until:  # noqa: ASYNC110 - two sets
            await asyncio.sleep(0.002)
        for task in state.tasks:
            task.cancel("the grace of a test's server is over")
        await self.lifespan.shutdown()

    def is_idle(self) -> bool:
        """Whether no task is left that a request began; asked from any thread."""
        idle: Future[bool] = Future()
        self._loop.call_soon_threadsafe(lambda: idle.set_result(asyncio.all_tasks() <= self._lasting))
        return idle.result(_START_SECONDS)

    def leave(self) -> None:
        """End, from any thread."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._told.set)


class Serving:
    """A server that runs as long as the ``with`` block."""

    def __init__(self, app: Any) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, date_header=False, ws="none"
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    @property
    def url(self) -> str:
        """Without a path: ``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def settle(self, seconds: float = _START_SECONDS) -> None:
        """Wait until the server does nothing any more, also nothing that goes on after an answer."""
        wait_until(lambda: all(self._server.is_idle() for _ in range(_LOOKS)), seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self._server.started or not self._thread.is_alive(), _START_SECONDS)
        assert self._server.started
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.leave()
        self._thread.join(10)
        self._socket.close()
