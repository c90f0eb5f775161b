"""The HTTP client over real sockets: every framing, every end that comes too early, and what is kept for later."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.support.clock import JUMPING, pass_seconds
from tests.support.scripted import Exchange, ScriptedServer, serving
from tests.support.waiting import settled, until
from tidemark.upstream.http1.answer import BUFFER_BYTES, LINE_BYTES, MAX_HEADERS, OVERHEAD_BYTES, HttpAnswer
from tidemark.upstream.http1.connection import JOINED_BYTES, WHOLE_BYTES, ConnectionState, UpstreamConnection
from tidemark.upstream.http1.failures import AnswerBroken, ConnectionGone, ConnectTimedOut
from tidemark.upstream.http1.pool import Pool
from tidemark.upstream.http1.target import Origin

OK = b"HTTP/1.1 200 OK\r\n"
SHORT = OK + b"content-length: 2\r\n\r\n{}"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
ORIGIN = Origin("host.test", 80, tls=False)
LONG = b"x" * (3 * WHOLE_BYTES)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both loops: uvicorn takes uvloop where it is installed, the commands take asyncio's."""
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """A client that is closed at the end."""
    made = Pool(keepalive_seconds=4, connect_seconds=5)
    yield made
    await made.aclose()


async def ask(pool: Pool, server: ScriptedServer, body: bytes | None = b"{}", seconds: float = 5) -> HttpAnswer:
    """One request, and the head of its answer."""
    due = asyncio.get_running_loop().time() + seconds
    method = "GET" if body is None else "POST"
    return await pool.ask(method, server.base_url, [(b"x-one", b"1")], body, due)


async def rest(answer: HttpAnswer, seconds: float = 5) -> bytes:
    """The whole body."""
    pieces = []
    while piece := await answer.read(seconds):
        pieces.append(piece)
    return b"".join(pieces)


async def open_at_most(server: ScriptedServer, connections: int = 0) -> None:
    """Wait until no more than so many connections are open."""
    await until(lambda: server.open <= connections)


@pytest.mark.parametrize(
    ("raw", "body", "kept"),
    [
        pytest.param(SHORT, b"{}", True, id="by its length"),
        pytest.param(OK + b"Content-Length: 0\r\n\r\n", b"", True, id="empty"),
        pytest.param(CHUNKED + b"2;a=b\r\n{}\r\n3 \r\nabc\r\n0\r\n\r\n", b"{}abc", True, id="in chunks"),
        pytest.param(CHUNKED + b"2\r\n{}\r\n0\r\nx-sum: 1\r\n\r\n", b"{}", True, id="with trailers"),
        pytest.param(OK + b"connection: close\r\ncontent-length: 2\r\n\r\n{}", b"{}", False, id="told to close"),
        pytest.param(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}", b"{}", False, id="of HTTP/1.0"),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}", b"{}", True, id="1.0, kept"
        ),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", True, id="204"),
        pytest.param(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", b"", True, id="304 with a length"),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + SHORT,
            b"{}",
            True,
            id="after interim answers",
        ),
        pytest.param(b"\r\nHTTP/1.1 200\ncontent-length: 2\n\n{}", b"{}", True, id="with bare line feeds"),
    ],
)
async def test_a_body_ends_where_its_framing_says(pool: Pool, raw: bytes, body: bytes, *, kept: bool) -> None:
    """RFC 9112, section 6.3; and the connection is used again exactly if it may be (section 9.3)."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(raw)

    async with serving(script) as server:
        for _ in range(2):
            answer = await ask(pool, server)
            assert await rest(answer) == body
            assert answer.status in {200, 204, 304}
            assert not {b"link", b"x-sum"} & {name for name, _ in answer.headers}
        assert server.connections == (1 if kept else 2)


@pytest.mark.parametrize("head", [OK, b"HTTP/1.0 200 OK\r\n", OK + b"transfer-encoding: gzip\r\n"])
async def test_a_body_without_a_length_ends_with_the_connection(pool: Pool, head: bytes) -> None:
    """Rules 4 and 8 of RFC 9112, section 6.3."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(head + b"\r\nab")
        await settled()
        await exchange.write(b"cd")
        exchange.writer.close()

    async with serving(script) as server:
        assert await rest(await ask(pool, server)) == b"abcd"
        assert await rest(await ask(pool, server)) == b"abcd"
        assert server.connections == 2


@pytest.mark.parametrize("head", [OK, OK + b"content-length: 9\r\n", OK + b"transfer-encoding: chunked\r\n"])
async def test_a_connection_that_is_reset_ends_no_body_well(pool: Pool, head: bytes) -> None:
    """What has come is handed on, and then told to be broken."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(head + b"\r\n" + (b"2\r\nab\r\n" if b"chunked" in head else b"ab"))
        await settled()
        linger = struct.pack("ii", 1, 0)
        exchange.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        exchange.writer.transport.abort()

    async with serving(script) as server:
        answer = await ask(pool, server)
        assert await answer.read(5) == b"ab"
        with pytest.raises(AnswerBroken):
            await answer.read(5)


@pytest.mark.parametrize(
    "head",
    [
        OK + b"content-length: 9\r\n\r\nab",
        OK + b"content-length : 9\r\n\r\nab",
        CHUNKED + b"9\r\nab",
        CHUNKED + b"2\r\nab\r\n",
        OK + b"transfer-encoding : chunked\r\n\r\n2\r\nab\r\n",
        OK + b"transfer-encoding:\r\n chunked\r\n\r\n2\r\nab\r\n",
    ],
)
async def test_a_connection_that_closes_too_early_ends_no_body_well(pool: Pool, head: bytes) -> None:
    """A shorter body than told, half a chunk, a missing last chunk; in whatever way the framing is written."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(head)
        exchange.writer.close()

    async with serving(script) as server:
        answer = await ask(pool, server)
        assert await answer.read(5) == b"ab"
        with pytest.raises(AnswerBroken):
            await answer.read(5)


MALFORMED = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "no status": b"HTTP/1.1 abc\r\n\r\n",
    "two framings": OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two lengths": OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a length that is none": OK + b"content-length: -2\r\n\r\n{}",
    "a header without a name": OK + b": 1\r\n\r\n",
    "a bare return in a value": OK + b"x: a\rb: c\r\n\r\n",
    "a NUL in a value": OK + b"x: a\x00b\r\ncontent-length: 0\r\n\r\n",
    "a control character in a value": OK + b"x: a\x1bb\r\ncontent-length: 0\r\n\r\n",
    "a DEL in a value": OK + b"x: a\x7fb\r\ncontent-length: 0\r\n\r\n",
    "a status above all": b"HTTP/1.1 600 What\r\ncontent-length: 0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "a status below all": b"HTTP/1.1 042 What\r\ncontent-length: 0\r\n\r\n",
    "too long a line": OK + b"x: " + b"a" * (LINE_BYTES + 1) + b"\r\ncontent-length: 0\r\n\r\n",
    "too many headers": OK + b"x: 1\r\n" * (MAX_HEADERS + 1) + b"content-length: 0\r\n\r\n",
    "a head without an end": OK + b"x: 1\r\n" * OVERHEAD_BYTES,
    "interim answers without an end": b"HTTP/1.1 100 Continue\r\n\r\n" * OVERHEAD_BYTES,
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_head_is_no_answer(pool: Pool, raw: bytes) -> None:
    """And the connection is closed."""
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        try:
            await exchange.write(raw)
            await exchange.gone()
        finally:
            gone.set()

    async with serving(script) as server:
        with pytest.raises(AnswerBroken):
            await ask(pool, server)
        async with asyncio.timeout(5):
            await gone.wait()


async def test_a_long_header_is_taken(pool: Pool) -> None:
    """Up to the bound: gateways tell their policies in headers."""
    value = b"a" * (LINE_BYTES - 10)

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}", headers=b"x-policy: " + value + b" \t\r\n")

    async with serving(script) as server:
        assert (b"x-policy", value) in (await ask(pool, server)).headers


@pytest.mark.parametrize("more", [b"zz\r\n", b"0\r\nx: " + b"a" * (2 * OVERHEAD_BYTES)], ids=["chunk", "trailer"])
async def test_a_body_that_becomes_malformed_breaks_off(pool: Pool, more: bytes) -> None:
    """What has come before is handed on. A trailer has a bound like a head."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(CHUNKED + b"2\r\nab\r\n")
        await settled()
        await exchange.write(more)
        await exchange.gone()

    async with serving(script) as server:
        answer = await ask(pool, server)
        assert await answer.read(5) == b"ab"
        with pytest.raises(AnswerBroken):
            await answer.read(5)


@pytest.mark.parametrize("surplus", [b"xx", OK + b"content-length: 4\r\n\r\nevil", b"HTTP/1.1"])
@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
async def test_what_stands_behind_an_answer_is_nobodys(pool: Pool, surplus: bytes, *, late: bool) -> None:
    """The answer is whole; the connection is not used again, so that its bytes cannot answer the next request."""

    async def script(exchange: Exchange) -> None:
        if late:
            await exchange.write(SHORT)
            await settled()
        await exchange.write(surplus if late else SHORT + surplus)

    async with serving(script) as server:
        for number in (1, 2):
            assert await rest(await ask(pool, server)) == b"{}"
            await open_at_most(server)
            assert server.connections == number


async def test_a_slow_reader_holds_the_server_back(pool: Pool) -> None:
    """No more is held than the bound and what a read or two bring; when it is read, the rest comes."""
    piece, written = b"x" * 65_536, 0

    async def script(exchange: Exchange) -> None:
        nonlocal written
        await exchange.write(OK + b"content-length: %d\r\n\r\n" % (600 * len(piece)))
        for _ in range(600):
            await exchange.write(piece)
            written += len(piece)

    async with serving(script) as server:
        answer = await ask(pool, server)
        stopped = -1
        while stopped != written:
            stopped = written
            await settled()
        assert stopped < 599 * len(piece)
        first = await answer.read(5)
        assert len(first) < BUFFER_BYTES + 2 * 262_144
        assert len(first) + len(await rest(answer)) == 600 * len(piece)
        assert await rest(await ask(pool, server)) == 600 * piece
        assert server.connections == 1


async def test_pieces_that_came_meanwhile_are_one(pool: Pool) -> None:
    """Whoever reads late reads once."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(CHUNKED)
        for number in range(5):
            await exchange.chunk(b"%d" % number)
            await settled()
        await exchange.write(b"0\r\n\r\n")
        written.set()

    written = asyncio.Event()
    async with serving(script) as server:
        answer = await ask(pool, server)
        await written.wait()
        await settled()
        assert await answer.read(5) == b"01234"
        assert await answer.read(5) == b""


async def raw_server(answer: bytes, *, read: int, then: int = 0) -> tuple[asyncio.Server, str, list[bytes]]:
    """A server that answers after so many bytes, and then reads so many more."""
    got: list[bytes] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            got.append(await reader.readexactly(read))
            writer.write(answer)
            await writer.drain()
            if then:
                got.append(await reader.readexactly(then))
                writer.write(b"4\r\ndone\r\n0\r\n\r\n")
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", got


async def test_an_answer_may_come_before_the_request_is_sent(pool: Pool) -> None:
    """It is handed on at once; what is left of the request is not sent, and the connection not used again."""
    server, url, got = await raw_server(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}", read=1000)
    body = b"x" * 50_000_000
    async with server:
        due = asyncio.get_running_loop().time() + 5
        for number in (1, 2):
            answer = await pool.ask("POST", url, [], body, due)
            assert (answer.status, await rest(answer)) == (413, b"{}")
            assert len(got) == number


class Slow(asyncio.Transport):
    """A connection over which so many bytes are still to go."""

    def __init__(self, unsent: int) -> None:
        super().__init__()
        self.unsent, self.aborted = unsent, False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """It takes everything."""

    def get_write_buffer_size(self) -> int:
        """What the socket has not taken."""
        return self.unsent

    def abort(self) -> None:
        """Closed."""
        self.aborted = True


@pytest.mark.parametrize("unsent", [0, 1])
async def test_an_answer_that_overtakes_its_request_is_the_last(unsent: int) -> None:
    """However little is left to send: whoever came next would wait behind what the server may never read."""
    idle: list[UpstreamConnection] = []
    connection = UpstreamConnection(asyncio.get_running_loop(), ORIGIN, idle.append, lambda _: None)
    transport = Slow(unsent)
    connection.connection_made(transport)
    asking = asyncio.create_task(connection.ask(b"", b"{}", asyncio.get_running_loop().time() + 5))
    await asyncio.sleep(0)
    connection.data_received(SHORT)
    assert await rest(await asking) == b"{}"
    assert (idle, transport.aborted) == (([], True) if unsent else ([connection], False))


async def test_a_connection_says_what_it_does() -> None:
    """One state at a time; its repr is a sentence, for whoever looks at a failing test or a debugger."""
    connection = UpstreamConnection(asyncio.get_running_loop(), ORIGIN, lambda _: None, lambda _: None)
    states = [str(connection)]
    connection.connection_made(Slow(0))
    states.append(str(connection))
    for _ in range(2):
        asking = asyncio.create_task(connection.ask(b"", b"{}", asyncio.get_running_loop().time() + 5))
        await asyncio.sleep(0)
        states.append(str(connection))
        connection.data_received(SHORT)
        assert str(await asking) == "<HttpAnswer of status 200 is complete>"
        states.append(str(connection))
    connection.eof_received()
    states.append(str(connection))
    assert [state.removeprefix("<UpstreamConnection to host.test:80 is ").removesuffix(">") for state in states] == [
        "connecting after 0 exchanges",
        "new after 0 exchanges",
        "active after 0 exchanges",
        "idle after 1 exchange",
        "active after 1 exchange",
        "idle after 2 exchanges",
        "closed after 2 exchanges",
    ]
    assert connection.state is ConnectionState.CLOSED
    with pytest.raises(ConnectionGone) as failure:
        await connection.ask(b"", b"{}", asyncio.get_running_loop().time() + 5)
    assert failure.value.reused


async def test_a_server_may_answer_while_it_reads(pool: Pool) -> None:
    """The rest of the request goes on while the answer comes."""
    head = b"POST /v1 HTTP/1.1\r\nHost: 127.0.0.1:00000\r\nContent-Length: 3145728\r\n\r\n"
    server, url, got = await raw_server(CHUNKED + b"5\r\nbegun\r\n", read=len(head), then=len(LONG))
    head = head.replace(b"00000", url.rpartition(":")[2][:-3].encode())
    async with server:
        answer = await pool.ask("POST", url, [], LONG, asyncio.get_running_loop().time() + 5)
        assert await answer.read(5) == b"begun"
        assert await rest(answer) == b"done"
        assert b"".join(got) == head + LONG


@pytest.mark.parametrize("size", [JOINED_BYTES + 1, WHOLE_BYTES, 3 * WHOLE_BYTES + 1])
async def test_a_long_request_keeps_its_connection(pool: Pool, size: int) -> None:
    """Once the server has read it; in however many writes it went out, it arrives as it is."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    body = random.Random(1).randbytes(size)
    async with serving(script) as server:
        for _ in range(3):
            assert await rest(await ask(pool, server, body)) == b"{}"
            assert server.last.body == body
        assert server.connections == 1


async def test_a_long_request_leaves_the_others_their_turn(pool: Pool) -> None:
    """A server that does not read delays nobody but its own caller."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    stuck, url, _ = await raw_server(b"", read=10**9)
    async with stuck, serving(script) as server:
        sending = asyncio.create_task(pool.ask("POST", url, [], LONG, asyncio.get_running_loop().time() + 30))
        for _ in range(3):
            async with asyncio.timeout(2):
                assert await rest(await ask(pool, server)) == b"{}"
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


async def test_a_connection_that_the_server_closed_is_not_used(pool: Pool) -> None:
    """An idle one whose end was heard of is replaced, and no request is lost."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(SHORT)
        exchange.writer.close()

    async with serving(script) as server:
        for _ in range(3):
            assert await rest(await ask(pool, server)) == b"{}"
            await settled()
        assert server.connections == 3


async def test_an_end_without_an_answer_says_whose_it_was(pool: Pool) -> None:
    """Of a connection that had been kept the request may be sent again; not of a fresh one, nor after a byte."""
    closing: list[bytes] = []

    async def script(exchange: Exchange) -> None:
        if closing:
            await exchange.write(closing.pop())
            exchange.writer.close()
        else:
            await exchange.write(SHORT)

    async with serving(script) as server:
        closing.append(b"")
        with pytest.raises(ConnectionGone) as fresh:
            await ask(pool, server)
        assert not fresh.value.reused
        began = time.monotonic()
        await rest(await ask(pool, server))
        took = time.monotonic() - began
        closing.append(b"")
        with pytest.raises(ConnectionGone) as kept:
            await ask(pool, server)
        assert kept.value.reused
        assert 0 < kept.value.round_trip_seconds <= took, "of the connect, on this machine"
        await rest(await ask(pool, server))
        closing.append(b"H")
        with pytest.raises(AnswerBroken):
            await ask(pool, server)


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_idle_connections_are_dropped_in_time() -> None:
    """By a timer, and by their age where the timer has not looked yet."""

    async def script(exchange: Exchange) -> None:
        if exchange.body != b"[]":
            await until(lambda: server.connections >= 2)
        await exchange.write(SHORT)

    pool = Pool(keepalive_seconds=0.5, connect_seconds=5)
    now = asyncio.get_running_loop().time
    async with serving(script) as server:
        both = await asyncio.gather(ask(pool, server), ask(pool, server))
        await asyncio.gather(*map(rest, both))
        began = now()
        await pass_seconds(0.2)
        await rest(await ask(pool, server, b"[]"))
        again = now()
        assert server.connections == 2
        await open_at_most(server, 1)
        assert now() - began == pytest.approx(0.5, abs=0.02)
        await open_at_most(server)
        assert now() - again == pytest.approx(0.5, abs=0.02)
        await rest(await ask(pool, server))
        assert server.connections == 3
        await pool.aclose()
        await open_at_most(server)


async def test_requests_at_the_same_time_have_connections_of_their_own(pool: Pool) -> None:
    """Each gets its own answer."""

    async def script(exchange: Exchange) -> None:
        await until(lambda: server.open == 20)
        await exchange.answer(exchange.body)

    async with serving(script) as server:
        for _ in range(2):
            answers = await asyncio.gather(*[ask(pool, server, b"%d" % number) for number in range(20)])
            assert [await rest(answer) for answer in answers] == [b"%d" % number for number in range(20)]
        assert server.connections == 20


async def test_an_answer_that_was_read_has_no_hold_on_its_connection(pool: Pool) -> None:
    """To close it late, or to read it again, does nothing to the exchange that came after."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(exchange.body)

    async with serving(script) as server:
        first = await ask(pool, server, b"first")
        assert await rest(first) == b"first"
        second = await ask(pool, server, b"second")
        first.close()
        assert await first.read(1) == b""
        assert await rest(second) == b"second"
        assert server.connections == 1


async def test_whoever_leaves_takes_the_connection_along(pool: Pool) -> None:
    """While the answer is waited for, and in the middle of its body; it is never used again."""
    heard = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        heard.set()
        if exchange.body == b"body":
            await exchange.write(CHUNKED + b"2\r\nab\r\n")
        await exchange.gone()

    async with serving(script) as server:
        asking = asyncio.create_task(ask(pool, server))
        await heard.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await open_at_most(server)
        answer = await ask(pool, server, b"body")
        assert await answer.read(5) == b"ab"
        answer.close()
        await open_at_most(server)
        with pytest.raises(ConnectionAbortedError):
            await answer.read(5)
        assert server.connections == 2


@pytest.mark.parametrize(
    "raw", [b"", b"SSH\r\n\r\n", OK + b"content-length: 9\r\n\r\nab"], ids=["gone", "no HTTP", "broken"]
)
async def test_what_failed_is_not_held_by_its_own_failure(pool: Pool, raw: bytes) -> None:
    """A request's megabytes are free when its caller has been told, and not at some later collection."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(raw)
        exchange.writer.close()

    async with serving(script) as server:
        gc.disable()
        gc.freeze()  # what is there already is looked at no more: a collection of it would take half a second
        try:
            for _ in range(3):
                with suppress(ConnectionError):
                    await rest(await ask(pool, server))
            await open_at_most(server)
            assert not [thing for thing in gc.get_objects() if type(thing) is HttpAnswer]
        finally:
            gc.unfreeze()
            gc.enable()


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_silence_has_its_bounds(pool: Pool) -> None:
    """Before the head until ``due``, then by each wait for a piece; the next exchange has bounds of its own."""

    async def script(exchange: Exchange) -> None:
        if exchange.body == b"body":
            await exchange.write(CHUNKED + b"2\r\nab\r\n")
        if exchange.body == b"slow":
            await pass_seconds(0.8)
            await exchange.write(SHORT)
        elif exchange.body == b"quick":
            await exchange.write(SHORT)
        else:
            await exchange.gone()

    async with serving(script) as server:
        with pytest.raises(TimeoutError):
            await ask(pool, server, seconds=0.1)
        answer = await ask(pool, server, b"body")
        assert await answer.read(5) == b"ab"
        with pytest.raises(TimeoutError):
            await answer.read(0.1)
        await rest(await ask(pool, server, b"quick", seconds=0.5))
        assert await rest(await ask(pool, server, b"slow")) == b"{}"
        await open_at_most(server, 1)
        assert (server.connections, server.open) == (3, 1)


@pytest.mark.parametrize("begun", [b"2;", b"0\r\nx-sum: "], ids=["chunk", "trailer"])
async def test_what_brings_nothing_of_the_body_is_silence(pool: Pool, begun: bytes) -> None:
    """A server that goes on with a chunk's size or a trailer, byte by byte, holds its reader no longer than others."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(CHUNKED + begun)
        with suppress(RuntimeError):  # uvloop's word for a caller who has left
            while not exchange.writer.is_closing():
                await exchange.write(b"a")
                await asyncio.sleep(0.02)

    async with serving(script) as server:
        answer = await ask(pool, server)
        async with asyncio.timeout(5):
            with pytest.raises(TimeoutError, match="silent"):
                await answer.read(0.3)
        await open_at_most(server)


async def test_connecting_has_its_own_time() -> None:
    """TLS included: a server that accepts and says nothing. The request's own time can be the shorter one."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/v1"
        now = asyncio.get_running_loop().time
        pool = Pool(keepalive_seconds=4, connect_seconds=0.2)
        with pytest.raises(ConnectTimedOut):
            await pool.ask("POST", url, [], b"{}", now() + 5)
        with pytest.raises(TimeoutError) as failed:
            await pool.ask("POST", url, [], b"{}", now() + 0.1)
        assert not isinstance(failed.value, ConnectTimedOut)
        await pool.aclose()


async def test_a_client_that_is_closed_keeps_no_connection() -> None:
    """Neither one that was being made, nor one whose answer came to its end after."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(SHORT)

    async with serving(script) as server:
        pool = Pool(keepalive_seconds=4, connect_seconds=5)
        asking = asyncio.create_task(ask(pool, server))
        await asyncio.sleep(0)
        await pool.aclose()
        with pytest.raises(ConnectionError):
            await asking
        await open_at_most(server)


async def test_closing_ends_what_is_under_way() -> None:
    """Whoever waits is told, and nothing is kept after."""
    heard = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        heard.set()
        await exchange.gone()

    pool = Pool(keepalive_seconds=4, connect_seconds=5)
    async with serving(script) as server:
        asking = asyncio.create_task(ask(pool, server))
        await heard.wait()
        await pool.aclose()
        with pytest.raises(ConnectionAbortedError):
            await asking
        await open_at_most(server)


async def test_a_request_without_a_body_has_no_length(pool: Pool) -> None:
    """An empty body has one."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(SHORT)

    async with serving(script) as server:
        await rest(await ask(pool, server, None))
        assert server.last.line == "GET /v1 HTTP/1.1"
        assert server.last.header("content-length") == []
        await rest(await ask(pool, server, b""))
        assert server.last.header("content-length") == ["0"]


async def test_a_dead_address_is_passed_over(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with two addresses, one of which nobody listens at."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(SHORT)
        exchange.writer.close()

    async with serving(script) as server:
        port = int(server.base_url.rpartition(":")[2].removesuffix("/v1"))

        async def looked_up(_: asyncio.AbstractEventLoop, place: tuple[str, int]) -> list[object]:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, ("127.0.0.2", 1)), (*kind, ("127.0.0.1", place[1]))]

        monkeypatch.setattr("tidemark.upstream.http1.pool._look_up", looked_up)
        for _ in range(2):  # the second time the other address comes first
            due = asyncio.get_running_loop().time() + 5
            answer = await pool.ask("GET", f"http://two.test:{port}/", [], None, due)
            assert await rest(answer) == b"{}"
            await settled()


async def test_a_name_that_nobody_knows_is_an_error_each_time(pool: Pool) -> None:
    """It is not remembered."""
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await pool.ask("GET", "http://nowhere.invalid/", [], None, asyncio.get_running_loop().time() + 5)
