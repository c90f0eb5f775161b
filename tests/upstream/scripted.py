"""A tiny scripted HTTP server over raw sockets: it sends exactly the bytes that a test wants sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from proxy.core.ports import Caller, UpstreamReply
from proxy.server.headers import forwarded_lines

Script = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    """One request as it came in, and the way to answer it."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def header(self, name: str) -> list[str]:
        """All values of a header, in order."""
        return [value for key, value in self.headers if key == name]

    async def write(self, raw: bytes) -> None:
        """Send bytes as they stand."""
        self.writer.write(raw)
        await self.writer.drain()

    async def answer(self, body: bytes, status: str = "200 OK", headers: bytes = b"") -> None:
        """Send a whole answer."""
        length = f"content-length: {len(body)}\r\n".encode()
        await self.write(f"HTTP/1.1 {status}\r\n".encode() + headers + length + b"\r\n" + body)

    async def chunk(self, piece: bytes) -> None:
        """Send a chunk of a chunked body."""
        await self.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        with suppress(ConnectionResetError):
            assert await self.reader.read(1) == b""


@dataclass
class ScriptedServer:
    """Serves every request by its script."""

    base_url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    connections: int = 0
    open: int = 0

    @property
    def last(self) -> Exchange:
        """The newest request."""
        return self.exchanges[-1]


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[ScriptedServer]:
    """Run a server on a free port."""
    server = ScriptedServer()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        server.connections += 1
        server.open += 1
        try:
            while (exchange := await read_request(reader, writer)) is not None:
                server.exchanges.append(exchange)
                await script(exchange)
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            server.open -= 1
            writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**20)
    server.base_url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange | None:
    """Read one request, or None when the client has closed."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head.rstrip("\r\n").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (item.partition(":") for item in rest)]
    length = int(dict(headers).get("content-length", "0"))
    return Exchange(line, headers, await reader.readexactly(length), reader, writer)


def calling(*headers: tuple[str, str], fingerprint: bytes = b"alice") -> Caller:
    """A caller who sent these headers, as the edge lets them through."""
    return Caller(fingerprint, forwarded_lines((name.encode(), value.encode()) for name, value in headers))


async def collect(reply: UpstreamReply, into: list[bytes]) -> None:
    """Read a body; what came before a failure is kept in ``into``."""
    async for piece in reply.body():
        into.append(piece)  # noqa: PERF401 - extend() would keep nothing when the body fails


async def everything(reply: UpstreamReply) -> bytes:
    """The whole body."""
    return b"".join([piece async for piece in reply.body()])
