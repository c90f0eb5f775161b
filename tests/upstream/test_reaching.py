"""Why an upstream cannot be reached: each cause has its own words, with the URL and the mend."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.support.scripted import Exchange, serving
from tests.upstream.callers import calling
from tests.upstream.http1.test_http1_tls import CERTIFICATE
from tidemark.core.errors import UpstreamUnreachable
from tidemark.core.ports import Route
from tidemark.upstream.reaching import proxy_of
from tidemark.upstream.wire import WireLane

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Each loop raises exceptions of its own."""
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment that names no proxy."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    proxy_of.cache_clear()
    yield
    proxy_of.cache_clear()


@pytest.fixture(params=[False, True], ids=["ours", "aiohttp"])
async def lane(request: pytest.FixtureRequest) -> AsyncIterator[WireLane]:
    """The wire lane with either HTTP client."""
    made = WireLane(library=request.param)
    yield made
    await made.aclose()


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that nobody listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@asynccontextmanager
async def plain_port() -> AsyncIterator[int]:
    """A port of a server that answers what is no HTTP with 400, as most do."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def tls_port() -> AsyncIterator[int]:
    """A port of a server that speaks TLS only, with a certificate that nobody vouches for."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_server(close, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def failed_request(lane: WireLane, base: str, key: str | None = None) -> UpstreamUnreachable:
    """Return the error of a request to a base URL; its internal text has the cause, too."""
    with pytest.raises(UpstreamUnreachable) as failed:
        await lane.send(Route("wire", "gpt-x", "m", "openai", base, api_key=key), b"{}", calling())
    assert "gpt-x" in str(failed.value)
    assert base in str(failed.value)
    return failed.value


async def test_a_port_that_nobody_listens_on(lane: WireLane, dead_port: int) -> None:
    """By address and by name."""
    for host in ("127.0.0.1", "localhost"):
        error = await failed_request(lane, f"http://{host}:{dead_port}/v1")
        assert error.fault.endswith(f"nothing listens at http://{host}:{dead_port}/v1")
        assert "start the server there" in error.mend


async def test_a_host_that_nobody_knows(lane: WireLane) -> None:
    """The host is named."""
    error = await failed_request(lane, "http://ollama.invalid:11434/v1")
    assert "no address is known of the host 'ollama.invalid'" in error.fault
    assert "correct the name" in error.mend


async def test_tls_to_a_plain_port(lane: WireLane) -> None:
    """The mend is the other scheme."""
    async with plain_port() as port:
        error = await failed_request(lane, f"https://127.0.0.1:{port}/v1")
    assert "does not speak TLS" in error.fault
    assert "write http://" in error.mend


async def test_plain_text_to_a_tls_port(lane: WireLane) -> None:
    """Such a server ends the connection without a word; a handshake tells it from a server that died."""
    async with tls_port() as port:
        error = await failed_request(lane, f"http://127.0.0.1:{port}/v1")
    assert "speaks TLS only" in error.fault
    assert "write https://" in error.mend


async def test_a_server_that_ends_the_connection(lane: WireLane) -> None:
    """It speaks no TLS either."""

    async def script(exchange: Exchange) -> None:
        exchange.writer.close()

    async with serving(script) as server:
        error = await failed_request(lane, server.base_url)
    assert "closed the connection before it answered" in error.fault


async def test_a_certificate_that_is_not_trusted(lane: WireLane) -> None:
    """With OpenSSL's own reason."""
    async with tls_port() as port:
        error = await failed_request(lane, f"https://localhost:{port}/v1")
    assert "is not trusted (self-signed certificate)" in error.fault
    assert "SSL_CERT_FILE" in error.mend


async def test_a_key_with_a_line_break(lane: WireLane, dead_port: int) -> None:
    """The upstream is not asked, and the key is not told."""
    error = await failed_request(lane, f"http://127.0.0.1:{dead_port}/v1", "sk-hush\n")
    assert "line break" in error.fault
    assert "api_key" in error.mend
    assert "hush" not in f"{error}{error.internal}"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_of_the_environment_that_is_not_there(
    lane: WireLane, dead_port: int, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """The proxy and its variable are named, without its password."""
    monkeypatch.setenv(f"{scheme}_proxy", f"http://user:hush@127.0.0.1:{dead_port}")
    error = await failed_request(lane, f"{scheme}://far.test/v1")
    assert f"through the proxy http://127.0.0.1:{dead_port}, which refuses connections" in error.fault
    assert f"correct {scheme.upper()}_PROXY" in error.mend
    assert "name far.test in NO_PROXY" in error.mend
    assert "hush" not in str(error)


async def test_a_proxy_that_refuses(lane: WireLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the proxy that is told, and not the upstream."""
    async with plain_port() as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        error = await failed_request(lane, "https://far.test/v1")
    assert f"through the proxy http://127.0.0.1:{port}, which gave no connection" in error.fault


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_no_proxy_is_used_for_this_machine(
    lane: WireLane, dead_port: int, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """A proxy elsewhere cannot reach it; Go's clients do the same."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{dead_port}")

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    async with serving(script) as server:
        base = server.base_url.replace("127.0.0.1", host)
        reply = await lane.send(Route("wire", "m", "m", "openai", base), b"{}", calling())
        assert reply.status == 200
        await reply.close()
