"""Keep-alive comments: what they open a response with, and how they make way."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from tests.support.clock import JUMPING, pass_seconds
from tests.support.waiting import settled
from tidemark.server.asgi import Response
from tidemark.server.keepalive import COMMENT, EVENT_STREAM, FIRST, KeepAlive

FACTS = [(b"x-tidemark-action", b"none")]


class Socket:
    """What a response is sent to. ``opened`` is clear while the client does not read."""

    def __init__(self) -> None:
        self.sent: list[MutableMapping[str, Any]] = []
        self.opened = asyncio.Event()
        self.opened.set()
        self.asked = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """ASGI's send."""
        self.asked.set()
        await self.opened.wait()
        self.sent.append(message)

    @property
    def bodies(self) -> list[bytes]:
        """The pieces that were sent."""
        return [one["body"] for one in self.sent if one["type"] == "http.response.body"]


async def comments(socket: Socket, count: int) -> None:
    """Wait until so many comments were sent."""
    while socket.bodies.count(COMMENT) < count:
        socket.asked.clear()
        await socket.asked.wait()
        await asyncio.sleep(0)


async def test_the_first_comment_opens_the_response_with_what_was_done() -> None:
    """Promise 9: the first block of headers says it, also where no upstream has answered yet."""
    socket = Socket()
    async with KeepAlive(Response(socket.send), 0.01, lambda: FACTS):
        await comments(socket, 2)
    assert socket.sent[0] == {"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM, *FACTS]}
    assert set(socket.bodies) == {COMMENT}


async def test_the_upstreams_own_headers_come_with_the_comment_when_they_are_there() -> None:
    """An upstream that has answered and thinks on: its status and headers, not made-up ones."""
    socket = Socket()
    async with KeepAlive(Response(socket.send), 0.01, lambda: FACTS) as keepalive:
        keepalive.status, keepalive.lines = 201, [(b"x-request-id", b"1")]
        await comments(socket, 1)
    assert (socket.sent[0]["status"], socket.sent[0]["headers"]) == (201, [(b"x-request-id", b"1"), *FACTS])


async def test_what_the_headers_could_not_say_is_told_in_a_comment() -> None:
    """A compaction that takes longer than a balancer waits: the facts follow as soon as they are known, once."""
    socket, facts = Socket(), list[tuple[bytes, bytes]]()
    async with KeepAlive(Response(socket.send), 0.01, lambda: facts) as keepalive:
        await comments(socket, 1)
        facts += FACTS
        await keepalive.stop()
    assert socket.sent[0]["headers"] == list(EVENT_STREAM)
    assert socket.bodies[-1] == b": x-tidemark-action: none\n\n"
    assert len([body for body in socket.bodies if body != COMMENT]) == 1


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_nothing_is_sent_before_its_time() -> None:
    """An upstream may still refuse: until then the status stays open. 0 seconds: for ever."""
    assert FIRST > 1
    for seconds in (0.0, 60.0):
        socket = Socket()
        async with KeepAlive(Response(socket.send), seconds, lambda: FACTS):
            await pass_seconds(59)
        assert not socket.sent


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_a_comment_on_its_way_is_neither_cut_short_nor_followed() -> None:
    """The client does not read: what follows waits until the comment is out, and then nothing of it is left."""
    socket = Socket()
    socket.opened.clear()
    response = Response(socket.send)
    async with KeepAlive(response, 0.001, lambda: FACTS) as keepalive:
        await socket.asked.wait()
        assert response.status is None
        stopping = asyncio.create_task(keepalive.stop())
        await settled()
        assert not stopping.done()
        socket.opened.set()
        await stopping
        await response.send_piece(b"first")
        await pass_seconds(0.01)
    assert socket.bodies == [COMMENT, b"first"]


async def test_a_comment_that_nobody_takes_does_not_outlive_its_request() -> None:
    """The request has failed and waits for a comment that is on its way; then the client leaves."""
    socket = Socket()
    socket.opened.clear()

    async def work() -> None:
        async with KeepAlive(Response(socket.send), 0.001, lambda: FACTS):
            await socket.asked.wait()
            raise ValueError("ours")

    others, task = asyncio.all_tasks(), asyncio.create_task(work())
    await socket.asked.wait()
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == others


async def test_stopping_does_not_swallow_the_requests_own_cancellation() -> None:
    """The client leaves while a comment is on its way: the request ends there."""
    socket = Socket()
    socket.opened.clear()
    reached = []

    async def work() -> None:
        async with KeepAlive(Response(socket.send), 0.001, lambda: FACTS) as keepalive:
            await socket.asked.wait()
            await keepalive.stop()
            reached.append("what comes after")

    task = asyncio.create_task(work())
    await socket.asked.wait()
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert not reached
    assert not [one for one in asyncio.all_tasks() if "_comment" in repr(one)]


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_a_client_that_is_gone_ends_the_comments() -> None:
    """The server says so by OSError; whoever listens for the client's leaving does the rest."""

    async def fail(_: MutableMapping[str, Any]) -> None:
        raise OSError("gone")

    async with KeepAlive(Response(fail), 0.001, lambda: FACTS):
        await pass_seconds(0.02)
