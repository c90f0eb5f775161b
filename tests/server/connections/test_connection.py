"""The clients' connections: on the wire they are uvicorn's own, in fewer writes and with fewer timers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tests.support.clock import JUMPING, pass_seconds
from tests.support.waiting import settled as in_turn
from tidemark.server.connections import ClientConnection
from tidemark.server.connections.exchange import JOINED_BYTES

Lines = Sequence[tuple[bytes, bytes]]
PLAIN: Lines = [(b"content-type", b"application/json"), (b"content-length", b"5")]

HEAD_LINES = st.sampled_from(
    [
        (b"content-length", b"5"),
        (b"content-length", b"0"),
        (b"content-length", b" 5"),
        (b"Content-Length", b"5"),
        (b"Content-Length", b"7"),
        (b"transfer-encoding", b"chunked"),
        (b"Transfer-Encoding", b"identity"),
        (b"connection", b"close"),
        (b"connection", b"x-one"),
        (b"Connection", b"Close"),
        (b"X-One", b"1"),
        (b"x-one", b"caf\xe9\t1"),
        (b"x-one", b"1\r\nx-two: 2"),
        (b"x-one", b"1\x7f"),
        (b"x one", b"1"),
        (b"x-one\r\nx-two", b"1"),
        (b"", b"1"),
        (b"set-cookie", b""),
    ]
)
BODIES = st.lists(st.sampled_from([b"", b"Hello", b"Hi", b"x" * (JOINED_BYTES + 1)]), min_size=1, max_size=3)
REQUESTS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        b"GET / HTTP/1.0\r\nhost: x\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
    ]
)


class Wire(asyncio.Transport):
    """A transport that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sent."""
        self.writes.append(bytes(data))

    def close(self) -> None:
        """Ended."""
        self.closed = True

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return self.closed

    def can_write_eof(self) -> bool:
        """No: it ends in both directions at once."""
        return False

    def pause_reading(self) -> None:
        """Nothing is read here."""

    def resume_reading(self) -> None:
        """Nor now."""


def answering(status: int, lines: Lines, bodies: Sequence[bytes], raised: list[str], *, reads: bool = True) -> Any:
    """An application that answers so, and notes what that raises."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        while reads and (await receive()).get("more_body"):
            pass
        try:
            await send({"type": "http.response.start", "status": status, "headers": list(lines)})
            for left, body in zip(reversed(range(len(bodies))), bodies, strict=True):
                await send({"type": "http.response.body", "body": body, "more_body": left > 0})
        except Exception as error:
            raised.append(repr(error))
            raise

    return app


def opened(make: Callable[..., Any], app: Any, **options: Any) -> tuple[Any, Wire]:
    """A connection of this kind to an application."""
    plain: dict[str, Any] = {"log_config": None, "access_log": False, "lifespan": "off", "proxy_headers": False}
    protocol = make(config=uvicorn.Config(app, **(plain | options)), server_state=ServerState(), app_state={})
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire


async def settled(protocol: Any) -> None:
    """Until every request has been answered."""
    while protocol.tasks:
        await asyncio.wait(tuple(protocol.tasks))
        await asyncio.sleep(0)


@given(
    REQUESTS, st.sampled_from([200, 204, 304, 404, 599, 600]), st.lists(HEAD_LINES, max_size=4), BODIES, st.booleans()
)
def test_answers_are_uvicorns_byte_by_byte(
    request: bytes,
    status: int,
    lines: list[tuple[bytes, bytes]],
    bodies: list[bytes],
    reads: bool,  # noqa: FBT001 - hypothesis calls by place
) -> None:
    """Bytes, closing, failures and what is counted: whatever the request, the head and the pieces of the body."""
    seen = []

    async def run(make: Callable[..., Any]) -> None:
        raised: list[str] = []
        protocol, wire = opened(make, answering(status, lines, bodies, raised, reads=reads))
        protocol.data_received(request)
        await settled(protocol)
        timed = protocol.timeout_keep_alive_task is not None
        seen.append((b"".join(wire.writes), wire.closed, raised, protocol.server_state.total_requests, timed))
        protocol.connection_lost(None)

    logger = logging.getLogger("uvicorn.error")
    logger.disabled = True
    try:
        for make in (HttpToolsProtocol, ClientConnection):
            asyncio.run(run(make))
    finally:
        logger.disabled = False
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("lines", "bodies", "writes"),
    [
        pytest.param(PLAIN, [b"Hello"], 1, id="whole"),
        pytest.param(PLAIN, [b"He", b"llo"], 3, id="in pieces"),
        pytest.param([], [b"Hello"], 2, id="of unknown length"),
    ],
)
async def test_a_whole_answer_is_one_write(lines: Lines, bodies: list[bytes], writes: int) -> None:
    """The client has all of it with one look at its socket."""
    protocol, wire = opened(ClientConnection, answering(200, lines, bodies, []))
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await settled(protocol)
    assert len(wire.writes) == writes
    protocol.connection_lost(None)


@pytest.mark.parametrize("headers", [{}, {"headers": ()}, {"headers": dict(PLAIN).items()}])
async def test_header_lines_may_be_whatever_asgi_allows(headers: dict[str, Any]) -> None:
    """They may be missing, and need not be a list: such an answer goes uvicorn's own way."""
    came = []

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, **headers})
        await send({"type": "http.response.body", "body": b"Hello"})

    for make in (HttpToolsProtocol, ClientConnection):
        protocol, wire = opened(make, app)
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await settled(protocol)
        came.append(b"".join(wire.writes))
        protocol.connection_lost(None)
    assert came[0] == came[1]
    assert came[1].startswith(b"HTTP/1.1 200 ")


async def test_connect_is_refused() -> None:
    """The parser stops at such a request as it does at an offer, however often it is read."""
    protocol, wire = opened(ClientConnection, answering(200, PLAIN, [b"Hello"], []), ws="none")
    protocol.data_received(b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n")
    await settled(protocol)
    assert b"".join(wire.writes).startswith(b"HTTP/1.1 400 ")
    assert wire.is_closing()
    protocol.connection_lost(None)


@pytest.mark.parametrize("offer", [b"", b", upgrade\r\nupgrade: h2c"])
async def test_what_follows_the_last_request_does_not_spoil_its_answer(offer: bytes) -> None:
    """After ``Connection: close`` nothing more is heard, with an offer of another protocol and without."""
    protocol, wire = opened(ClientConnection, answering(200, PLAIN, [b"Hello"], []), ws="none")
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close%b\r\n\r\nGET /2 HTTP/1.1\r\n\r\n" % offer)
    await settled(protocol)
    assert b"".join(wire.writes).startswith(b"HTTP/1.1 200 ")
    assert wire.is_closing()
    protocol.connection_lost(None)


@pytest.mark.parametrize("code", range(256))
async def test_no_value_ends_its_line(code: int) -> None:
    """What uvicorn does not write in a header's value does not go out in one write either."""
    came = []
    for make in (HttpToolsProtocol, ClientConnection):
        raised: list[str] = []
        protocol, wire = opened(make, answering(200, [*PLAIN, (b"x-one", b"a%cb" % code)], [b"Hello"], raised))
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await settled(protocol)
        came.append((b"".join(wire.writes), raised))
        protocol.connection_lost(None)
    assert came[0] == came[1]
    assert bool(came[1][1]) == (code in {*range(9), *range(10, 32), 127})


async def test_a_client_that_does_not_read_is_waited_for() -> None:
    """Flow control is uvicorn's: nothing is written while the transport wants nothing."""
    protocol, wire = opened(ClientConnection, answering(200, PLAIN, [b"Hello"], []))
    protocol.pause_writing()
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await in_turn()
    assert wire.writes == []
    protocol.resume_writing()
    await settled(protocol)
    assert b"".join(wire.writes).endswith(b"\r\n\r\nHello")
    protocol.connection_lost(None)


async def test_a_client_that_has_left_is_written_nothing() -> None:
    """Its answer comes to an end all the same."""
    protocol, wire = opened(ClientConnection, answering(200, PLAIN, [b"Hello"], []))
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    protocol.connection_lost(None)
    await settled(protocol)
    assert wire.writes == []


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_an_idle_connection_is_closed_in_time() -> None:
    """One timer serves many requests: it neither closes too early nor while a request is on its way."""
    protocol, wire = opened(ClientConnection, answering(200, PLAIN, [b"Hello"], []), timeout_keep_alive=0.2)
    timers = set()
    for _ in range(3):
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await settled(protocol)
        timers.add(protocol.timeout_keep_alive_task)
        await pass_seconds(0.05)
    assert len(timers) == 1
    protocol.data_received(b"GET / HTTP/1.1\r\n")
    await pass_seconds(0.3)
    assert not wire.is_closing()
    protocol.data_received(b"host: x\r\n\r\n")
    await settled(protocol)
    assert not wire.is_closing()
    await pass_seconds(0.4)
    assert wire.is_closing()
    protocol.connection_lost(None)


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_a_timer_that_looks_too_early_looks_again() -> None:
    """It was set after the first answer, and counts from the last."""
    protocol, wire = opened(ClientConnection, answering(200, PLAIN, [b"Hello"], []), timeout_keep_alive=0.3)
    for pause in (0.2, 0.2):
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await settled(protocol)
        await pass_seconds(pause)
    assert not wire.is_closing()
    await pass_seconds(0.3)
    assert wire.is_closing()
    protocol.connection_lost(None)


@pytest.mark.parametrize("offer", [b"", b"connection: upgrade\r\nupgrade: h2c\r\n"])
async def test_what_was_read_is_let_go(offer: bytes) -> None:
    """An idle connection holds nothing of the request that came last, with an offer of another protocol or without."""
    protocol, _ = opened(ClientConnection, answering(200, PLAIN, [b"Hello"], []), ws="none")
    protocol.data_received(b'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n%b\r\n{"a": 1}' % offer)
    await settled(protocol)
    assert not [held for held in vars(protocol).values() if isinstance(held, bytes) and b'"a"' in held]
    protocol.connection_lost(None)


async def test_a_closed_connection_leaves_no_timer() -> None:
    """However it came to its end."""
    for reason in (None, ConnectionResetError()):
        protocol, _ = opened(ClientConnection, answering(200, PLAIN, [b"Hello"], []))
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await settled(protocol)
        timer = protocol.timeout_keep_alive_task
        protocol.connection_lost(reason)
        assert timer.cancelled()
        assert protocol.timeout_keep_alive_task is None
