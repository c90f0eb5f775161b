"""How long a client may be silent: before a request, in its head, in its body, after its refusal."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any

import pytest

from tests.server.connections.served import GET, Served, Slow, answered, hello
from tidemark.server.asgi import ClientGone, read_body
from tidemark.server.connections import Bounds
from tidemark.server.connections.bounds import REST_BYTES

SHORT = Bounds(head_seconds=0.3, body_seconds=0.3)
HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n"


def test_a_connection_that_says_nothing_is_closed() -> None:
    """As one that has said all it wanted: without a word, since nobody asked."""
    with Served(hello, timeout_keep_alive=1) as served, served.client() as silent, served.client() as idle:
        idle.send(GET)
        assert idle.answer()[0] == 200
        assert silent.ended
        assert idle.ended


@pytest.mark.parametrize("before", [b"", GET])
@pytest.mark.parametrize("half", [b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nhost: x\r\nx-a"])
def test_half_a_head_is_refused_in_words(before: bytes, half: bytes) -> None:
    """On a connection that is new, and on one that has been kept."""
    with Served(hello, SHORT) as served, served.client() as client:
        if before:
            client.send(before)
            assert client.answer()[0] == 200
        client.send(half)
        assert client.error() == (408, "request_timeout")


def test_a_head_that_comes_in_drops_has_no_more_time() -> None:
    """The time is that of the whole head."""
    with Served(hello, Bounds(head_seconds=1.0)) as served, served.client() as client:
        client.send(b"GET / HTTP/1.1\r\nx: ")
        for _ in range(40):  # twice its time, and as long again
            asyncio.run(asyncio.sleep(0.05))
            with suppress(ConnectionError):
                client.send(b"a")
        assert client.error() == (408, "request_timeout")


@pytest.mark.parametrize("before", [b"", GET])
def test_half_a_body_is_refused_in_words(before: bytes) -> None:
    """And whoever was reading it is told that the client has gone."""
    outcomes: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await read_body(receive, scope["headers"], 1000)
        except ClientGone:
            outcomes.append("gone")
            raise
        await answered(send, b"")

    with Served(app, SHORT) as served, served.client() as client:
        client.send(before)
        if before:
            assert client.answer()[0] == 200
        client.send(HEAD + b"abc")
        assert client.error() == (408, "request_timeout")
    assert outcomes == ["gone"]


def test_a_body_that_keeps_coming_has_all_the_time_it_takes() -> None:
    """The time is that between two pieces."""
    with Served(hello, Bounds(body_seconds=1.0)) as served, served.client() as client:
        client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 15\r\n\r\n")
        for _ in range(15):
            asyncio.run(asyncio.sleep(0.1))
            client.send(b"a")
        assert client.answer()[2] == b"15"


def test_a_client_that_waits_for_its_answer_has_all_the_time_it_takes() -> None:
    """However long the answer takes, and though it has begun its next request meanwhile."""
    slow = Slow()
    with Served(slow, SHORT, timeout_keep_alive=1) as served, served.client() as client, served.client() as other:
        client.send(HEAD + b"abcde")
        other.send(GET + b"GET / HTT")
        asyncio.run(asyncio.sleep(1.5))
        slow.free.set()
        assert client.answer()[2] == b"late"
        assert other.answer()[2] == b"late"
        assert other.error() == (408, "request_timeout")


def test_an_answer_that_comes_before_the_body_is_whole_keeps_the_connection() -> None:
    """Clients send head and body apart, and an error may be faster than the body."""

    async def app(_: Any, __: Any, send: Any) -> None:
        await answered(send, b"early")

    with Served(app, SHORT) as served, served.client() as client:
        for _ in range(2):
            client.send(HEAD)
            assert client.answer()[2] == b"early"
            client.send(b"abcde")
        client.send(GET)
        assert client.answer()[2] == b"early"


def test_an_answer_before_a_body_that_is_not_read_to_its_end_says_that_the_connection_ends() -> None:
    """Its client would send the next request on a connection that is closed; and it gets the answer while it sends."""

    async def app(_: Any, __: Any, send: Any) -> None:
        await answered(send, b"early")

    for length, ends in ((REST_BYTES, False), (REST_BYTES + 1, True)):
        with Served(app) as served, served.client() as client:
            client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % length)
            _, headers, body = client.answer()
            client.send(b"a" * length)
            assert (headers.get("connection"), body) == ("close" if ends else None, b"early")
            if not ends:
                client.send(GET)
                assert client.answer()[2] == b"early"


def test_a_refusal_reaches_a_client_that_is_still_sending() -> None:
    """A connection that is closed at once is reset, and the refusal with it (RFC 9112, section 9.6)."""
    with Served(hello) as served, served.client() as client:
        client.wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        client.send(b"GET / HTTP/1.1\r\nx: " + b"a" * 200_000)
        for _ in range(20):
            client.send(b"a" * 16_384)
            asyncio.run(asyncio.sleep(0.01))
        assert client.error() == (431, "request_head_too_large")


def test_a_refused_client_that_does_not_close_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its descriptor is given back."""
    monkeypatch.setattr("tidemark.server.connections.connection.LINGER_SECONDS", 0.2)
    with Served(hello) as served, served.client() as client:
        client.send(b"nonsense\r\n\r\n")
        status, _, body = client.answer()
        assert status == 400
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
        while served.server.load.open:
            client_closed = client.ended
            assert client_closed
