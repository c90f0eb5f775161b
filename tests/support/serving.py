"""A real uvicorn in a thread, for any ASGI application: what the tests of the flow talk to over a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from types import TracebackType
from typing import Any, Self

import uvicorn


class _Server(uvicorn.Server):
    """One that ends when it is told to; uvicorn's looks every tenth of a second, and the tests are hundreds."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn first."""
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        await super().startup(sockets)

    async def main_loop(self) -> None:
        """Called by uvicorn between its beginning and its end."""
        await self.on_tick(0)
        await self._told.wait()

    def leave(self) -> None:
        """End, from any thread."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._told.set)


class Serving:
    """A server that runs as long as the ``with`` block."""

    def __init__(self, app: Any) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, date_header=False, timeout_graceful_shutdown=2
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    @property
    def url(self) -> str:
        """Without a path: ``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        until = time.monotonic() + 20
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                message = "the server did not start"
                raise RuntimeError(message)
            time.sleep(0.005)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.leave()
        self._thread.join(10)
        self._socket.close()
