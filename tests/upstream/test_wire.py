"""The wire lane, against a real server that sends exactly the bytes of its script."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from pathlib import Path

import pytest

from tests.support.clock import JUMPING, pass_seconds
from tests.support.scripted import Exchange, ScriptedServer, serving
from tests.support.waiting import settled, until
from tests.upstream.callers import calling, collect, everything
from tidemark.catalog.probe import Probe
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import CachedPrefix
from tidemark.core.errors import (
    DialectNotServed,
    SummaryRejected,
    UpstreamBroken,
    UpstreamError,
    UpstreamStalled,
    UpstreamTimedOut,
    UpstreamUnreachable,
)
from tidemark.core.ports import Caller, Route, TextRequest, UpstreamReply
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message
from tidemark.upstream.answers import text_of
from tidemark.upstream.reaching import proxy_of
from tidemark.upstream.upstream import LiteLLMUpstream
from tidemark.upstream.wire import MAX_ATTEMPTS, WireLane

CHAT = ChatDialect()
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ODD = b'{ "model":"m",\n\t"messages" : [ ],"\\u00e9":1.0e2 ,  "x":{"b":1,"a":2}}  \n'
BEARER = ("authorization", "Bearer caller-key")


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both loops: uvicorn takes uvloop where it is installed, the commands take asyncio's."""
    return "asyncio", {"use_uvloop": request.param}


FAR = Route("wire", "m", "m", "openai", "http://far.test/v1")
"""A route that a proxy of the environment serves: none is used for this machine's own addresses."""


def route_to(server: ScriptedServer, **fields: object) -> Route:
    """A wire route to a scripted server."""
    return Route("wire", "m", "m", "openai", server.base_url, **fields)  # type: ignore[arg-type]


async def test_request_bytes_arrive_as_they_are(wire: WireLane) -> None:
    """What goes out is the body's very bytes, odd white space included, to {base}/chat/completions."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    async with serving(script) as server:
        await everything(await wire.send(route_to(server), ODD, calling(BEARER)))
        assert server.last.body == ODD
        assert server.last.line == "POST /v1/chat/completions HTTP/1.1"


async def test_answer_bytes_arrive_as_they_are(wire: WireLane) -> None:
    """What comes back is the upstream's very bytes."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(ODD)

    async with serving(script) as server:
        assert await everything(await wire.send(route_to(server), b"{}", calling())) == ODD


async def test_clients_headers_go_upstream_without_the_hop_by_hop_ones(wire: WireLane) -> None:
    """RFC 9110 7.6.1: hop-by-hop headers and those that Connection names stay; all others go."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    caller = calling(
        BEARER,
        ("host", "tidemark.example"),
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("te", "trailers"),
        ("accept-encoding", "gzip, br"),
        ("content-length", "99"),
        ("expect", "100-continue"),
        ("user-agent", "OpenAI/Python 1.2"),
        ("x-repeated", "one"),
        ("x-repeated", "two"),
        ("content-type", "application/json; charset=utf-8"),
    )
    async with serving(script) as server:
        await everything(await wire.send(route_to(server), b"{}", caller))
        exchange = server.last
    names = [name for name, _ in exchange.headers]
    assert exchange.header("x-repeated") == ["one", "two"]
    assert exchange.header("authorization") == ["Bearer caller-key"]
    assert exchange.header("accept-encoding") == ["identity"]
    assert exchange.header("content-length") == ["2"]
    assert exchange.header("user-agent") == ["OpenAI/Python 1.2"]
    assert exchange.header("content-type") == ["application/json; charset=utf-8"]
    assert exchange.header("host") == [server.base_url.removeprefix("http://").removesuffix("/v1")]
    assert not {"x-hop", "te", "expect", "accept"} & set(names)


async def test_configured_key_takes_the_place_of_every_credential(wire: WireLane) -> None:
    """With a configured key no credential of the client is forwarded, in whatever header it came."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    caller = calling(BEARER, ("x-api-key", "caller-key"), ("api-key", "caller-key"), ("x-team", "theirs"))
    async with serving(script) as server:
        route = route_to(server, api_key="ours", headers=((b"X-Team", b"ours"),))
        await everything(await wire.send(route, b"{}", caller))
        assert server.last.header("authorization") == ["Bearer ours"]
        assert server.last.header("x-team") == ["ours"]
        assert "caller-key" not in str(server.last.headers)


async def test_header_values_go_out_byte_by_byte(wire: WireLane) -> None:
    """In whatever encoding they came; but no line may hold the end of one."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    async with serving(script) as server:
        caller = Caller(b"", ((b"x-latin", b"caf\xe9"), (b"x-utf8", "café".encode())))
        await everything(await wire.send(route_to(server), b"{}", caller))
        assert [server.last.header(name)[0].encode("latin-1") for name in ("x-latin", "x-utf8")] == [
            b"caf\xe9",
            b"caf\xc3\xa9",
        ]
        for value in (b"a\r\nauthorization: Bearer other", b"a\nb", b"a\rb", b"a\0b"):
            with pytest.raises(UpstreamUnreachable):
                await wire.send(route_to(server), b"{}", Caller(b"", ((b"x-one", value),)))
        assert len(server.exchanges) == 1


async def test_framing_and_a_users_credential_are_the_clients_own(wire: WireLane) -> None:
    """A configured length cannot contradict the body; a user in the base URL is Basic, and the host names none."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    configured = ((b"Content-Length", b"99"), (b"Transfer-Encoding", b"chunked"), (b"Host", b"inner.test"))
    async with serving(script) as server:
        await everything(await wire.send(route_to(server, headers=configured), b"{}", calling()))
        assert server.last.header("content-length") == ["2"]
        assert server.last.header("transfer-encoding") == []
        assert server.last.header("host") == ["inner.test"]
        base = server.base_url.replace("http://", "http://me:secret@")
        await everything(await wire.send(Route("wire", "m", "m", "openai", base), b"{}", calling()))
        assert server.last.header("authorization") == ["Basic bWU6c2VjcmV0"]
        assert "secret" not in str(server.last.header("host"))


async def test_server_environment_lends_no_credentials(
    wire: WireLane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A caller without a key gets none from the proxy's environment: not OPENAI_API_KEY, not ~/.netrc."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    async with serving(script) as server:
        await everything(await wire.send(route_to(server), b"{}", calling()))
        assert server.last.header("authorization") == []


async def test_answer_headers_keep_order_and_repetition(wire: WireLane) -> None:
    """Every header of the answer comes back in order, repeated ones too, but for the hop-by-hop ones."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(
            b"{}",
            headers=b"Set-Cookie: a=1\r\nX-Request-ID: req_1\r\nSet-Cookie: b=2\r\n"
            b"Connection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\n"
            b"X-RateLimit-Remaining-Tokens: 7\r\nX-Word: caf\xe9\r\n",
        )

    async with serving(script) as server:
        reply = await wire.send(route_to(server), b"{}", calling())
        await everything(reply)
        assert list(reply.headers) == [
            (b"set-cookie", b"a=1"),
            (b"x-request-id", b"req_1"),
            (b"set-cookie", b"b=2"),
            (b"x-ratelimit-remaining-tokens", b"7"),
            (b"x-word", b"caf\xe9"),
            (b"content-length", b"2"),
        ]
        await everything(await wire.send(route_to(server), b"{}", calling()))
        assert server.last.header("cookie") == []


@pytest.mark.parametrize("by_proxy", [False, True], ids=["ours", "by proxy"])
async def test_a_space_before_a_colon_hides_no_framing(
    wire: WireLane, monkeypatch: pytest.MonkeyPatch, *, by_proxy: bool
) -> None:
    """It is taken off (RFC 9112 5.1): the client is not told of chunks that are gone, nor gets what is for one hop."""

    async def script(exchange: Exchange) -> None:
        head = b"transfer-encoding : chunked\r\nconnection : keep-alive, x-hop\r\nx-hop: 1\r\nx-one: 1\r\n\r\n"
        await exchange.write(b"HTTP/1.1 200 OK\r\n" + head + b"2\r\n{}\r\n0\r\n\r\n")

    proxy_of.cache_clear()
    async with serving(script) as server:
        if by_proxy:
            monkeypatch.setenv("no_proxy", "")
            monkeypatch.setenv("http_proxy", server.base_url.removesuffix("/v1"))
        reply = await wire.send(FAR if by_proxy else route_to(server), b"{}", calling())
        assert list(reply.headers) == [(b"x-one", b"1")]
        assert await everything(reply) == b"{}"
    proxy_of.cache_clear()


@pytest.mark.parametrize("head", [b"200 OK\r\nx-one: a\x1bb", b"600 What", b"999 What"], ids=["control", "600", "999"])
@pytest.mark.parametrize("by_proxy", [False, True], ids=["ours", "by proxy"])
async def test_a_head_that_cannot_be_sent_on_is_no_answer(
    wire: WireLane, monkeypatch: pytest.MonkeyPatch, head: bytes, *, by_proxy: bool
) -> None:
    """The client is told so; else its server would fail with nothing sent. The connection is closed."""
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 %b\r\ncontent-length: 9\r\n\r\n{}" % head)
        await exchange.gone()
        gone.set()

    proxy_of.cache_clear()
    async with serving(script) as server:
        if by_proxy:
            monkeypatch.setenv("no_proxy", "")
            monkeypatch.setenv("http_proxy", server.base_url.removesuffix("/v1"))
        with pytest.raises(UpstreamError):
            await wire.send(FAR if by_proxy else route_to(server), b"{}", calling())
        async with asyncio.timeout(5):
            await gone.wait()
    proxy_of.cache_clear()


@pytest.mark.parametrize("status", ["400 Bad Request", "429 Too Many Requests", "529 Overloaded", "302 Found"])
async def test_refusals_and_redirects_come_back_untouched(wire: WireLane, status: str) -> None:
    """An error's status and body are the upstream's own, and a redirect is not followed."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b'{"error" : {"code":"x"}}\n', status, b"retry-after: 7\r\nlocation: /elsewhere\r\n")

    async with serving(script) as server:
        reply = await wire.send(route_to(server), b"{}", calling())
        assert reply.status == int(status[:3])
        assert (b"retry-after", b"7") in reply.headers
        assert await everything(reply) == b'{"error" : {"code":"x"}}\n'
        assert len(server.exchanges) == 1


async def test_compressed_answer_stays_compressed(wire: WireLane) -> None:
    """A server that compresses unasked: its bytes and its header are handed on as they are."""
    packed = gzip.compress(b'{"a":1}', mtime=0)

    async def script(exchange: Exchange) -> None:
        await exchange.answer(packed, headers=b"content-encoding: gzip\r\n")

    async with serving(script) as server:
        reply = await wire.send(route_to(server), b"{}", calling())
        assert (b"content-encoding", b"gzip") in reply.headers
        assert await everything(reply) == packed


async def test_stream_keeps_its_pace(wire: WireLane) -> None:
    """Each piece is handed on before the next one has been sent."""
    seen = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(CHUNKED)
        for number in range(5):
            seen.clear()
            await exchange.chunk(f"data: {number}\n\n".encode())
            async with asyncio.timeout(5):
                await seen.wait()
        await exchange.write(b"0\r\n\r\n")

    async with serving(script) as server:
        reply = await wire.send(route_to(server), b"{}", calling())
        pieces = []
        async for piece in reply.body():
            pieces.append(piece)
            seen.set()
        assert pieces == [f"data: {number}\n\n".encode() for number in range(5)]


async def test_connections_are_kept_and_used_again(wire: WireLane) -> None:
    """A body that was read to its end puts its connection back into the pool."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    async with serving(script) as server:
        for _ in range(3):
            await everything(await wire.send(route_to(server), b"{}", calling()))
        assert (len(server.exchanges), server.connections) == (3, 1)


async def test_close_reaches_the_upstream_at_once(wire: WireLane) -> None:
    """Giving up a stream closes its connection, so that the upstream stops working; twice does no harm."""
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(CHUNKED)
        await exchange.chunk(b"data: 1\n\n")
        await exchange.gone()
        gone.set()

    async with serving(script) as server:
        reply = await wire.send(route_to(server), b"{}", calling())
        assert await anext(aiter(reply.body())) == b"data: 1\n\n"
        await reply.close()
        await reply.close()
        async with asyncio.timeout(2):
            await gone.wait()


async def test_close_during_a_read_ends_it(wire: WireLane) -> None:
    """Whoever waits for the next piece when a stream is given up hears that it broke off."""
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(CHUNKED)
        await exchange.chunk(b"data: 1\n\n")
        await exchange.gone()
        gone.set()

    async with serving(script) as server:
        reply = await wire.send(route_to(server), b"{}", calling())
        reading = asyncio.create_task(everything(reply))
        await settled()
        await reply.close()
        async with asyncio.timeout(2):
            await gone.wait()
            with pytest.raises(UpstreamBroken):
                await reading


async def test_leaving_before_the_headers_reaches_the_upstream(wire: WireLane) -> None:
    """A cancelled send closes the connection before there was any answer."""
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        asked.set()
        await exchange.gone()
        gone.set()

    async with serving(script) as server:
        sending = asyncio.create_task(wire.send(route_to(server), b"{}", calling()))
        await asked.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        async with asyncio.timeout(2):
            await gone.wait()


@pytest.mark.parametrize("length", [b"transfer-encoding: chunked", b"content-length: 500"])
async def test_body_that_breaks_off_is_told(wire: WireLane, length: bytes) -> None:
    """A body that ends before its end is UpstreamBroken; the host is for the log only."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n")
        await exchange.chunk(b"data: 1\n\n")
        await settled()
        exchange.writer.close()

    async with serving(script) as server:
        reply = await wire.send(route_to(server), b"{}", calling())
        pieces: list[bytes] = []
        with pytest.raises(UpstreamBroken) as broken:
            await collect(reply, pieces)
        assert b"data: 1\n\n" in b"".join(pieces)
        assert "127.0.0.1" not in str(broken.value)
        assert "127.0.0.1" in broken.value.internal


async def test_nobody_listening_is_unreachable(wire: WireLane) -> None:
    """No connection: the message names the model, the URL and the mend."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(UpstreamUnreachable) as failed:
            await wire.send(Route("wire", "gpt-x", "m", "openai", base), b"{}", calling())
    assert "gpt-x" in str(failed.value)
    assert "TIDEMARK_UPSTREAM" in str(failed.value)
    assert f"nothing listens at {base}" in str(failed.value)
    assert base in failed.value.internal


@pytest.mark.parametrize("base", ["", "not a url", "http://", "http://[::1", "ftp://127.0.0.1/v1"])
async def test_base_url_that_is_none_is_unreachable(wire: WireLane, base: str) -> None:
    """A base URL that nobody can ask is told like a server that is not there."""
    with pytest.raises(UpstreamUnreachable):
        await wire.send(Route("wire", "m", "m", "openai", base), b"{}", calling())


async def test_a_connection_that_is_never_made_is_unreachable(wire: WireLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting, TLS included, has a time of its own: nobody is told to raise the model's."""
    monkeypatch.setattr("tidemark.upstream.wire.CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        base = f"https://127.0.0.1:{silent.getsockname()[1]}/v1"
        with pytest.raises(UpstreamUnreachable) as failed:
            await wire.send(Route("wire", "m", "m", "openai", base), b"{}", calling())
    assert "litellm_params.timeout" not in str(failed.value)


async def test_silent_upstream_times_out(wire: WireLane) -> None:
    """No headers within the route's time: UpstreamTimedOut, and the connection is closed."""

    async def script(exchange: Exchange) -> None:
        await exchange.gone()

    async with serving(script) as server:
        with pytest.raises(UpstreamTimedOut, match=r"0\.1 seconds.*litellm_params\.timeout"):
            await wire.send(route_to(server, timeout_seconds=0.1), b"{}", calling())


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_stream_has_no_total_time(wire: WireLane) -> None:
    """The route's time is for the headers; a stream may take longer."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(CHUNKED)
        await pass_seconds(0.4)
        await exchange.chunk(b"late")
        await exchange.write(b"0\r\n\r\n")

    async with serving(script) as server:
        assert await everything(await wire.send(route_to(server, timeout_seconds=0.2), b"{}", calling())) == b"late"


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_a_body_that_falls_silent_is_broken_off(wire: WireLane) -> None:
    """By the silence between two pieces, not by the whole time, nor by the time that a client takes to read."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(CHUNKED)
        for _ in range(4):
            await exchange.chunk(b"x")
            await pass_seconds(0.15)
        await exchange.gone()

    read: list[bytes] = []

    async def slowly(reply: UpstreamReply) -> None:
        async for piece in reply.body():
            if not read:
                await pass_seconds(0.5)
            read.append(piece)

    async with serving(script) as server:
        reply = await wire.send(route_to(server, silence_seconds=0.3), b"{}", calling())
        with pytest.raises(UpstreamStalled, match=r"sent nothing for 0\.3 seconds"):
            await slowly(reply)
    assert b"".join(read) == b"xxxx"


async def test_kept_connection_that_died_is_replaced(each_wire: WireLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that met a kept connection's end goes over a fresh one; a fresh one is not tried twice."""
    monkeypatch.setattr("tidemark.upstream.wire.DEAD_SECONDS", 5.0)  # however busy the machine is
    closing = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if len(exchange.body) > 2 and not closing.is_set():
            closing.set()
            exchange.writer.close()
        else:
            await exchange.answer(b"{}")

    async with serving(script) as server:
        await everything(await each_wire.send(route_to(server), b"{}", calling()))
        assert await everything(await each_wire.send(route_to(server), b"[1]", calling())) == b"{}"
        assert (len(server.exchanges), server.connections) == (3, 2)

    async def hang_up(exchange: Exchange) -> None:
        exchange.writer.close()

    async with serving(hang_up) as server:
        with pytest.raises(UpstreamUnreachable):
            await each_wire.send(route_to(server), b"{}", calling())
        assert len(server.exchanges) == 1


async def test_many_kept_connections_that_died_fail_no_request(
    each_wire: WireLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt goes over a fresh one, however many of the kept ones are dead."""
    monkeypatch.setattr("tidemark.upstream.wire.DEAD_SECONDS", 5.0)  # however busy the machine is
    dying = False
    known: set[asyncio.StreamWriter] = set()

    async def script(exchange: Exchange) -> None:
        if dying and exchange.writer in known:
            exchange.writer.close()
            return
        known.add(exchange.writer)
        await until(lambda: server.open >= MAX_ATTEMPTS + 2)
        await exchange.answer(b"{}")

    async with serving(script) as server:

        async def ask() -> bytes:
            return await everything(await each_wire.send(route_to(server), b"{}", calling()))

        await asyncio.gather(*[ask() for _ in range(MAX_ATTEMPTS + 2)])
        assert server.connections == MAX_ATTEMPTS + 2
        dying = True
        assert await ask() == b"{}"
        assert len(server.exchanges) == MAX_ATTEMPTS + 2 + MAX_ATTEMPTS


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_is_sent_at_most_twice(
    each_wire: WireLane, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Over a kept connection that turns out dead and over a fresh one, whatever the library would do by itself.

    The last connection carries no request: it asks whether the server speaks TLS.
    """
    monkeypatch.setattr("tidemark.upstream.wire.DEAD_SECONDS", 5.0)  # however busy the machine is
    dying = False

    async def script(exchange: Exchange) -> None:
        if dying:
            exchange.writer.close()
            return
        await until(lambda: server.open == 4)
        await exchange.answer(b"{}")

    async with serving(script) as server:

        async def ask() -> None:
            if method == "GET":
                await each_wire.get_json(route_to(server), server.base_url, calling(), timeout_seconds=5)
            else:
                await everything(await each_wire.send(route_to(server), b"{}", calling()))

        await asyncio.gather(*[ask() for _ in range(4)])
        dying = True
        with pytest.raises(UpstreamError):
            await ask()
        assert (len(server.exchanges), server.connections) == (4 + MAX_ATTEMPTS, 5 + 1)


@pytest.mark.parametrize("anyio_backend", [JUMPING])
@pytest.mark.parametrize("worked_seconds", [0.1, 0.4, 0.9])
async def test_a_request_that_a_server_worked_on_is_never_sent_again(wire: WireLane, worked_seconds: float) -> None:
    """A server that reads a paid request and dies over it looks like a dead connection, but for the time it took."""
    dying = False

    async def script(exchange: Exchange) -> None:
        if dying:
            await pass_seconds(worked_seconds)
            exchange.writer.close()
        else:
            await until(lambda: server.open == 3)
            await exchange.answer(b"{}")

    async with serving(script) as server:

        async def ask() -> bytes:
            return await everything(await wire.send(route_to(server), b"{}", calling()))

        await asyncio.gather(*[ask() for _ in range(3)])
        dying = True
        with pytest.raises(UpstreamUnreachable):
            await ask()
        assert len(server.exchanges) == 3 + 1
        with pytest.raises(UpstreamError):
            await wire.complete(route_to(server), TextRequest([], max_tokens=9, timeout_seconds=5), calling())
        assert len(server.exchanges) == 3 + 2, "a summarizer's call is paid, too"


async def test_completion_returns_its_text(wire: WireLane) -> None:
    """A summarizer's call is one plain completion, asked with the caller's credential."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b'{"choices":[{"message":{"role":"assistant","content":"In short."}}]}')

    async with serving(script) as server:
        messages = [{"role": "user", "content": "long"}]
        route, request = route_to(server), TextRequest(messages, max_tokens=9, timeout_seconds=5)
        assert text_of(await wire.complete(route, request, calling(BEARER)), route) == "In short."
        asked = json.loads(server.last.body)
        assert asked == {"model": "m", "messages": messages, "max_tokens": 9, "stream": False}
        assert server.last.header("authorization") == ["Bearer caller-key"]


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        ("429 Slow", b'{"error":{"message":"slow down"}}', "status 429: slow down"),
        ("200 OK", b'{"choices":[{"message":{"content":null}}]}', "without any text"),
        ("200 OK", b'{"choices":[]}', "without any text"),
        ("200 OK", b'{"error":{"message":"Slow down.","code":429}}', "with an error: Slow down"),
        ("200 OK", b"<html>", "no JSON"),
        ("502 Bad", b"<html>", "status 502"),
    ],
)
async def test_completion_without_text_is_an_upstream_error(
    wire: WireLane, status: str, body: bytes, told: str
) -> None:
    """An answer that holds no text says why, with the upstream's status and words."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(body, status)

    async with serving(script) as server:
        route, request = route_to(server), TextRequest([], max_tokens=9, timeout_seconds=5)
        with pytest.raises(UpstreamError, match=told):
            text_of(await wire.complete(route, request, calling()), route)


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (b'{"message":{"content":null,"tool_calls":[{"id":"c"}]},"finish_reason":"tool_calls"}', "tool call"),
        (b'{"message":{"content":"I will look that up first.","tool_calls":[{"id":"c"}]}}', "tool call"),
        (b'{"message":{"content":"","function_call":{"name":"f","arguments":"{}"}}}', "tool call"),
        (b'{"message":{"content":null,"refusal":"I cannot help with that."}}', "refused"),
        (b'{"message":{"content":"The talk was"},"finish_reason":"content_filter"}', "refused"),
    ],
)
async def test_a_completion_that_is_no_text_is_a_rejected_summary(wire: WireLane, choice: bytes, told: str) -> None:
    """Tool calls and refusals in place of text, and what a filter left of one."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b'{"choices":[%s]}' % choice)

    async with serving(script) as server:
        route, request = route_to(server), TextRequest([], max_tokens=9, timeout_seconds=5)
        with pytest.raises(SummaryRejected, match=told):
            text_of(await wire.complete(route, request, calling()), route)


async def test_a_live_prefix_goes_first_byte_by_byte(wire: WireLane) -> None:
    """The client's own bytes, and what is cached with them; what the call itself says comes after."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b'{"choices":[{"message":{"content":"In short."}}]}')

    raw = b'{ "role":"user",\t"content":"caf\\u00e9 \\ud83d", "x":1.0e2}'
    live = CachedPrefix((parse_message(raw, json.loads(raw), 0),), (raw,), {"tools": b'[ {"type": "function"} ]'}, 100)
    async with serving(script) as server:
        question = [{"role": "user", "content": "Summarize."}]
        await wire.complete(
            route_to(server), TextRequest(question, max_tokens=9, timeout_seconds=5, cached_prefix=live), calling()
        )
        assert server.last.body == (
            b'{"model":"m","tools":[ {"type": "function"} ],"messages":[%s,{"role":"user","content":"Summarize."}],'
            b'"max_tokens":9,"stream":false}' % raw
        )


async def test_completion_has_its_own_time(wire: WireLane) -> None:
    """A summarizer's call ends after its own timeout, body included."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{")
        await exchange.gone()

    async with serving(script) as server:
        with pytest.raises(UpstreamTimedOut) as failed:
            await wire.complete(route_to(server), TextRequest([], max_tokens=9, timeout_seconds=0.1), calling())
    assert "litellm_params.timeout" not in str(failed.value)  # another time was over


async def test_proxy_of_the_environment_is_used(wire: WireLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY carries the request, unless NO_PROXY names the host."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    proxy_of.cache_clear()
    async with serving(script) as server:
        monkeypatch.setenv("http_proxy", server.base_url.removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "near.test")
        await everything(await wire.send(Route("wire", "m", "m", "openai", "http://far.test/v1"), b"{}", calling()))
        assert server.last.line == "POST http://far.test/v1/chat/completions HTTP/1.1"
        assert proxy_of("http://near.test/v1") is None
    proxy_of.cache_clear()


async def test_by_a_proxy_everything_is_told_alike(wire: WireLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's pieces, a kept connection that died, an end that comes too early, and a proxy that is not there."""
    dying: list[bool] = []

    async def script(exchange: Exchange) -> None:
        if dying:
            dying.pop()
        elif exchange.body == b"[1]":
            await exchange.write(CHUNKED)
            await exchange.chunk(b"data: 1\n\n")
            await settled()
        else:
            await exchange.answer(b"{}", headers=b"X-One: 1\r\n")
            return
        exchange.writer.close()

    proxy_of.cache_clear()
    monkeypatch.setenv("no_proxy", "")
    async with serving(script) as server:
        monkeypatch.setenv("http_proxy", server.base_url.removesuffix("/v1"))
        reply = await wire.send(FAR, b"{}", calling())
        assert list(reply.headers) == [(b"x-one", b"1"), (b"content-length", b"2")]
        assert await everything(reply) == b"{}"
        dying.append(True)
        assert await everything(await wire.send(FAR, b"{}", calling())) == b"{}"
        assert (len(server.exchanges), server.connections) == (3, 2)
        pieces: list[bytes] = []
        with pytest.raises(UpstreamBroken):
            await collect(await wire.send(FAR, b"[1]", calling()), pieces)
        assert pieces == [b"data: 1\n\n"]
    with pytest.raises(UpstreamUnreachable):
        await wire.send(FAR, b"{}", calling())
    proxy_of.cache_clear()


async def test_large_bodies_travel_whole(wire: WireLane) -> None:
    """Requests with images are tens of megabytes: sent as they are, without a word about it."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    large = b"x" * 20_000_000
    async with serving(script) as server:
        await everything(await wire.send(route_to(server), large, calling()))
        assert server.last.body == large
        assert server.last.header("transfer-encoding") == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/embeddings", ODD), ("GET", "/files?limit=2&after=a%20b", b""), ("DELETE", "/files/f%2Fg", b"")],
    ids=["a body", "a query", "an escape"],
)
async def test_a_request_that_is_not_understood_is_carried_as_it_came(
    wire: WireLane, method: str, path: str, body: bytes
) -> None:
    """Method, path, query and bytes; the credential is the route's, or else the caller's."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    async with serving(script) as server:
        assert await everything(await wire.forward(route_to(server), method, path, body, calling(BEARER))) == b"{}"
        assert server.last.line == f"{method} /v1{path} HTTP/1.1"
        assert server.last.body == body
        assert server.last.header("authorization") == [BEARER[1]]
        configured = route_to(server, api_key="sk-configured")
        await everything(await wire.forward(configured, method, path, body, calling(BEARER)))
        assert server.last.header("authorization") == ["Bearer sk-configured"]


async def test_litellm_carries_no_unknown_request() -> None:
    """The error names the path, and the way to serve it."""
    upstream = LiteLLMUpstream([{"model_name": "c", "litellm_params": {"model": "gemini/gemini-2.5-flash"}}])
    route = await upstream.resolve("c")
    with pytest.raises(DialectNotServed, match=r"does not serve /images/generations.*lane: wire"):
        await upstream.forward(route, "POST", "/images/generations", b"{}", calling(BEARER))


@pytest.mark.parametrize("base", ["{}?sig=SIG1&v=2/", "{}/?sig=SIG1&v=2/", "{}?sig=SIG1&v=2/#part"])
async def test_a_query_of_the_base_stays_behind_the_path(wire: WireLane, base: str) -> None:
    """Gateways sign whole addresses; the query goes along with every request, and into no log."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    async with serving(script) as server:
        address = base.format(server.base_url.replace("http://", "http://user:PASSWORD1@"))
        entry: dict[str, JsonValue] = {"model": "openai/m", "api_base": address}
        upstream = LiteLLMUpstream([{"model_name": "m", "litellm_params": entry}], wire=wire)
        route = await upstream.resolve("m")
        await everything(await upstream.send(route, b"{}", calling(), dialect=CHAT, stream=False))
        assert server.last.line == "POST /v1/chat/completions?sig=SIG1&v=2/ HTTP/1.1"
        await Probe(wire.get_json).window(route, calling())
        asked = [one.line.split()[1] for one in server.exchanges[1:]]
        assert asked == ["/v1/models?sig=SIG1&v=2/", "/props?sig=SIG1&v=2/"]
        await everything(await upstream.forward(route, "GET", "/files?limit=2", b"", calling()))
        assert server.last.line == "GET /v1/files?limit=2&sig=SIG1&v=2/ HTTP/1.1"
    assert "SIG1" not in repr(route)
    assert "PASSWORD1" not in repr(route)
    with pytest.raises(UpstreamUnreachable) as gone:
        await upstream.send(route, b"{}", calling(), dialect=CHAT, stream=False)
    assert "SIG1" not in f"{gone.value} {gone.value.internal}"
    assert "PASSWORD1" not in f"{gone.value} {gone.value.internal}"
