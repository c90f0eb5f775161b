"""Defines the benchmark's client, which sends prepared bytes over open connections and times the answers.

It is a bare ``asyncio.Protocol`` with httptools' parser. So it costs a few hundredths of a millisecond for a request,
and does not change the measurement.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import httptools

from benchmarks.speed.upstream import REPLY as REPLY_TEXT

HOST = "127.0.0.1"
REPLY = REPLY_TEXT.encode()
TAIL_BYTES = 1000


@dataclass
class Answered:
    """The result of one request; times are seconds since its first byte was sent."""

    first: float = 0.0
    """The time to the first byte of the body."""
    whole: float = 0.0
    status: int = 0
    action: str = ""
    """``X-Tidemark-Action``, where there is one."""
    retry_after: str = ""
    """``Retry-After``, where there is one."""
    tail: bytes = b""
    """The end of the body."""

    @property
    def good(self) -> bool:
        """Return whether the answer is the upstream's, up to its end."""
        return self.status == 200 and (b"[DONE]" in self.tail or REPLY in self.tail)


@dataclass
class Outcome:
    """The result of a batch of requests."""

    answers: list[Answered] = field(default_factory=list)
    seconds: float = 0.0
    """The seconds from the first request to the last answer."""


def request(path: str, body: bytes) -> bytes:
    """Return the bytes of a request."""
    return b"\r\n".join(
        [
            f"POST {path} HTTP/1.1".encode(),
            f"host: {HOST}".encode(),
            b"authorization: Bearer sk-bench",
            b"content-type: application/json",
            b"accept: */*",
            b"user-agent: bench",
            b"content-length: %d" % len(body),
            b"",
            body,
        ]
    )


class ClientConnection(asyncio.Protocol):
    """An open connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._waiter: asyncio.Future[Answered] | None = None
        self._answer = Answered()
        self._sent_at = 0.0
        self._framed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own is none

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side closed, or the network failed. Some answers have no other end (RFC 9112, section 6.3)."""
        if self._answer.first and not self._framed and exc is None:
            self.on_message_complete()
        if self._waiter and not self._waiter.done():
            self._waiter.set_exception(ConnectionError(f"closed before the end of the answer: {exc!r}"))

    def data_received(self, data: bytes) -> None:
        """A piece of the answer came."""
        if self._parser is not None:
            self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser for each header line."""
        lower = name.lower()
        if lower == b"x-tidemark-action":
            self._answer.action = value.decode()
        elif lower == b"retry-after":
            self._answer.retry_after = value.decode()
        elif lower in {b"content-length", b"transfer-encoding"}:
            self._framed = True

    def on_body(self, data: bytes) -> None:
        """Called by the parser for each piece of the body."""
        if not self._answer.first:
            self._answer.first = time.perf_counter() - self._sent_at
        self._answer.tail = data if len(data) >= TAIL_BYTES else (self._answer.tail + data)[-TAIL_BYTES:]

    def on_message_complete(self) -> None:
        """Called by the parser at the end."""
        assert self._parser is not None
        self._answer.whole = time.perf_counter() - self._sent_at
        self._answer.status = self._parser.get_status_code()
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(self._answer)

    async def ask(self, data: bytes) -> Answered:
        """Send a request and wait for the end of its answer."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self._answer = Answered()
        self._framed = False
        self._waiter = asyncio.get_running_loop().create_future()
        self._sent_at = time.perf_counter()
        self._transport.write(data)
        return await self._waiter

    @property
    def closed(self) -> bool:
        """Return whether the connection accepts no further request."""
        return self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


async def connect(port: int) -> ClientConnection:
    """Open a connection."""
    _, connection = await asyncio.get_running_loop().create_connection(ClientConnection, HOST, port)
    return connection


async def drive(port: int, requests: Sequence[bytes], concurrency: int, limit_seconds: float) -> Outcome:
    """Send all requests, some at a time; those beyond the time limit are missing in the outcome.

    A server that closes a connection gets a new one for the next request.
    """
    outcome, pending = Outcome(), iter(requests)
    connections = [await connect(port) for _ in range(concurrency)]
    started = time.perf_counter()

    async def work(connection: ClientConnection) -> None:
        try:
            for data in pending:
                if connection.closed:
                    connection = await connect(port)
                try:
                    outcome.answers.append(await connection.ask(data))
                except ConnectionError:
                    outcome.answers.append(Answered())
                    connection.close()
                outcome.seconds = time.perf_counter() - started
        finally:
            connection.close()

    workers = [asyncio.create_task(work(connection)) for connection in connections]
    _, late = await asyncio.wait(workers, timeout=limit_seconds)
    for task in late:
        task.cancel()
    results = await asyncio.gather(*workers, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return outcome
