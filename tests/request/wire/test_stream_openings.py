"""The first pieces of a stream are looked at, and none of them is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.dialects.responses.events import events_of, response, sse, text_item
from tidemark.codings.opened_reply import OpenedReply
from tidemark.core.errors import UpstreamBroken
from tidemark.core.ports import Headers
from tidemark.dialects.responses.state import opening_error

EVENTS = [sse([event]) for event in events_of([text_item("Fine weather.")])]


class Pieces:
    """An upstream's reply whose pieces come when the test says so."""

    status = 200
    headers: Headers = ()

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = 0

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the pieces; None ends them."""
        while (piece := await self.pieces.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def close(self) -> None:
        """Note it."""
        self.closed += 1


async def test_pieces_that_were_read_come_first() -> None:
    """Then the one that was waited for, and the rest."""
    reply = Pieces()
    opened = OpenedReply(reply)
    reply.pieces.put_nowait(b"a")
    assert await opened.read(30)
    assert not await opened.read(0)
    for piece in (b"b", b"c", None):
        reply.pieces.put_nowait(piece)
    assert [piece async for piece in opened.body()] == [b"a", b"b", b"c"]
    await opened.close()
    assert reply.closed == 1


@pytest.mark.parametrize("waits", [False, True])
async def test_an_end_is_an_end(*, waits: bool) -> None:
    """Whether it came while the opening was looked at or later."""
    reply = Pieces()
    opened = OpenedReply(reply)
    if waits:
        assert not await opened.read(0)
    reply.pieces.put_nowait(None)
    assert waits or not await opened.read(30)
    assert [piece async for piece in opened.body()] == []


async def test_a_broken_connection_is_told_where_the_body_is_read() -> None:
    """The relay knows what to do with it."""
    reply = Pieces()
    opened = OpenedReply(reply)
    reply.pieces.put_nowait(UpstreamBroken("It broke."))
    assert not await opened.read(30)
    with pytest.raises(UpstreamBroken):
        [piece async for piece in opened.body()]


async def test_a_reply_that_nobody_reads_is_closed() -> None:
    """The piece that was waited for is given up."""
    reply = Pieces()
    opened = OpenedReply(reply)
    assert not await opened.read(0)
    await opened.close()
    assert reply.closed == 1


@pytest.mark.parametrize("count", range(1, 4))
def test_the_events_tell_when_a_reply_begins(count: int) -> None:
    """The first two say only that it was asked for."""
    assert opening_error(b"".join(EVENTS[:count])) == (None if count < 3 else b"")
    assert opening_error(b"".join(EVENTS[: count - 1]) + EVENTS[count - 1][:-1]) is None


def test_a_refusal_is_the_envelope_of_a_request_without_a_stream() -> None:
    """From the failed response, or from either form of the event before it."""
    failure = {"code": "context_length_exceeded", "message": "Too long."}
    for event in (
        {"type": "response.failed", "response": response([], "failed", error=failure)},
        {"type": "error", "error": {"type": "invalid_request_error", **failure}},
        {"type": "error", "param": None, **failure},
    ):
        stream = b": a comment\n\n" + b"".join(EVENTS[:2]) + sse([event]).replace(b"\n", b"\r\n")
        envelope = opening_error(stream)
        assert envelope is not None
        for words in (b'"code":"context_length_exceeded"', b'"message":"Too long."', b'"type":"invalid_request_error"'):
            assert words in envelope
