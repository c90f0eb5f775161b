"""Our server in a thread, for any ASGI application and bounds, and clients that write bytes of their own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import wait_until
from tidemark.server.connections import Bounds, Server, ServingConfig

WAIT_SECONDS = 30.0
"""For what takes a fraction of a second on an idle machine."""
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Served:
    """A server that runs as long as the ``with`` block."""

    def __init__(self, app: Any, bounds: Bounds | None = None, **options: Any) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        plain: dict[str, Any] = {"log_config": None, "access_log": False, "lifespan": "off", "proxy_headers": False}
        self.server = Server(ServingConfig(app, bounds=bounds or Bounds(), **(plain | options)))
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self.port = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self.server.started, WAIT_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End as SIGTERM does, and wait."""
        self.server.should_exit = True
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A connection of a client."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_SECONDS) as wire:
            yield Client(wire)


class Client:
    """One connection, byte by byte."""

    def __init__(self, wire: socket.socket) -> None:
        self.wire = wire
        self._left = b""

    def send(self, data: bytes) -> None:
        """Send, whether or not the server still reads."""
        self.wire.sendall(data)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, header lines, body; of a known length."""
        while b"\r\n\r\n" not in self._left:
            self._more()
        head, _, self._left = self._left.partition(b"\r\n\r\n")
        begun, *lines = head.decode().split("\r\n")
        named = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = int(named.get("content-length", 0))
        while len(self._left) < length:
            self._more()
        body, self._left = self._left[:length], self._left[length:]
        return int(begun.split()[1]), named, body

    def error(self) -> tuple[int, str]:
        """The next answer as an error in OpenAI's envelope: status and code. The connection ends after it."""
        status, lines, body = self.answer()
        assert lines["connection"] == "close"
        error = json.loads(body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert self.ended
        return status, error["code"]

    @property
    def ended(self) -> bool:
        """Whether the server sends nothing more."""
        try:
            self._left += (more := self.wire.recv(65_536))
        except ConnectionResetError:
            return True
        return not more

    def _more(self) -> None:
        more = self.wire.recv(65_536)
        assert more, f"the server has closed after {self._left!r}"
        self._left += more


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads the body and says how long it was."""
    assert scope["type"] == "http"
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        if not message["more_body"]:
            break
    await answered(send, b"%d" % size)


async def answered(send: Any, body: bytes) -> None:
    """Send an answer of a known length."""
    lines = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": lines})
    await send({"type": "http.response.body", "body": body})


class Slow:
    """An application that answers when it may. Mutable: how many requests wait, and whether they may."""

    def __init__(self) -> None:
        self.waiting = 0
        self.free = threading.Event()

    async def __call__(self, _: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        await receive()
        self.waiting += 1
        await asyncio.to_thread(self.free.wait, WAIT_SECONDS)
        self.waiting -= 1
        await answered(send, b"late")
