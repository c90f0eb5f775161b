"""The HTTP client over TLS: whom it trusts, and whom it asks for.

``tls/localhost.pem`` is a certificate for ``localhost``, signed with the key that lies beside it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidemark.upstream.http1.pool import Pool

CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Each loop has a TLS of its own."""
    return "asyncio", {"use_uvloop": request.param}


@dataclass
class Met:
    """A server, and what its clients asked it for before they said anything."""

    port: int = 0
    names: list[str | None] = field(default_factory=list)
    protocols: list[str | None] = field(default_factory=list)


@asynccontextmanager
async def secured() -> AsyncIterator[Met]:
    """A server for TLS that answers every request alike."""
    met = Met()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.sni_callback = lambda _, name, __: met.names.append(name)
    tasks: set[asyncio.Task[None] | None] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        met.protocols.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        try:
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context, family=socket.AF_INET)
    met.port = server.sockets[0].getsockname()[1]
    yield met
    server.close()
    await asyncio.gather(*[task for task in tasks if task], return_exceptions=True)


async def get(pool: Pool, url: str) -> bytes:
    """One body."""
    answer = await pool.ask("GET", url, [], None, asyncio.get_running_loop().time() + 5)
    return await answer.read(5)


async def test_the_environments_authorities_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """``SSL_CERT_FILE``, as for every program that uses OpenSSL. The server is told its name and the protocol."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    pool = Pool(keepalive_seconds=4, connect_seconds=5)
    async with secured() as met:
        assert await get(pool, f"https://localhost:{met.port}/") == b"{}"
        assert await get(pool, f"https://localhost:{met.port}/") == b"{}"
        assert (met.names, met.protocols) == (["localhost"], ["http/1.1"])
        await pool.aclose()


@pytest.mark.parametrize(("trusted", "host"), [(False, "localhost"), (True, "127.0.0.1")])
async def test_a_server_that_cannot_show_who_it_is_gets_no_request(
    monkeypatch: pytest.MonkeyPatch, host: str, *, trusted: bool
) -> None:
    """An authority that nobody knows, and a certificate for another name."""
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    pool = Pool(keepalive_seconds=4, connect_seconds=5)
    async with secured() as met:
        with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            await get(pool, f"https://{host}:{met.port}/")
        await pool.aclose()


async def test_plain_and_secured_connections_are_never_taken_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle connection without TLS to the same host and port does not carry a request that asks for it."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    pool = Pool(keepalive_seconds=4, connect_seconds=5)
    async with secured() as met:
        assert await get(pool, f"https://localhost:{met.port}/") == b"{}"
        with pytest.raises(ConnectionError):
            await get(pool, f"http://localhost:{met.port}/")
        await pool.aclose()


def serve_and_vanish(listener: socket.socket, head: bytes, body: bytes) -> None:
    """Answer one request, and close the socket without a word of it within TLS, as many servers do."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    accepted, _ = listener.accept()
    with context.wrap_socket(accepted, server_side=True) as secure:
        asked = b""
        while not asked.endswith(b"\r\n\r\n"):
            asked += secure.recv(65_536)
        secure.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body)
        os.close(secure.detach())


@pytest.mark.parametrize(
    "head", [b"content-length: 3000000\r\n", b"connection: close\r\ncontent-length: 3000000\r\n", b""]
)
@pytest.mark.parametrize("pace", [0, 0.002], ids=["at once", "slowly"])
async def test_a_slow_reader_loses_nothing_when_the_server_vanishes(
    monkeypatch: pytest.MonkeyPatch, head: bytes, pace: float
) -> None:
    """What came before the end is read to its last byte, however late; the event loop has nothing to complain of."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    pool = Pool(keepalive_seconds=4, connect_seconds=5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(asyncio.to_thread(serve_and_vanish, listener, head, b"x" * 3_000_000))
        due = asyncio.get_running_loop().time() + 5
        answer = await pool.ask("GET", f"https://localhost:{listener.getsockname()[1]}/", [], None, due)
        await asyncio.sleep(20 * pace)
        length = 0
        while piece := await answer.read(5):
            length += len(piece)
            await asyncio.sleep(pace)
        await serving
    await pool.aclose()
    assert (length, complaints) == (3_000_000, [])
