"""An upstream's answer without an end is given up, and its connection closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.support.scripted import Exchange, ScriptedServer, serving
from tests.upstream.callers import calling, everything
from tidemark.core.errors import UpstreamBroken
from tidemark.core.ports import Route, TextRequest
from tidemark.upstream.answer_bounds import AnswerBounds, OpenEvent
from tidemark.upstream.wire import WireLane

BOUNDS = AnswerBounds(error=4_000, event=6_000, answer=1_000_000)
PIECE = b"x" * 1_000


@pytest.fixture
def anyio_backend() -> str:
    """The product is asyncio only."""
    return "asyncio"


@pytest.fixture(params=["own", "library"])
async def lane(request: pytest.FixtureRequest) -> AsyncIterator[WireLane]:
    """A lane with small bounds, over either HTTP client."""
    made = WireLane(library=request.param == "library", bounds=BOUNDS)
    yield made
    await made.aclose()


def route_to(server: ScriptedServer) -> Route:
    """A wire route to a scripted server."""
    return Route("wire", "m", "m", "openai", server.base_url)


class Endless:
    """A server whose answer has no end; it tells when its client has closed the connection."""

    def __init__(self, status: str, kind: str, piece: bytes) -> None:
        self.closed = asyncio.Event()
        self._head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        self._piece = piece

    async def answer(self, exchange: Exchange) -> None:
        """Send until the client is gone."""
        with suppress(ConnectionError):
            await exchange.write(self._head)
            while not exchange.writer.is_closing():
                await exchange.chunk(self._piece)
        self.closed.set()
        raise ConnectionResetError


@pytest.mark.parametrize(
    ("status", "kind", "piece", "told"),
    [
        ("400 Bad Request", "application/json", PIECE, "an error of more than 4,000 bytes.*limits.max_error_mb"),
        ("503 Service Unavailable", "text/event-stream", b"data: x\n\n" * 99, "an error of more than 4,000 bytes"),
        ("200 OK", "application/json", PIECE, "an answer of more than 1,000,000 bytes.*limits.max_answer_mb"),
        ("200 OK", "text/html", PIECE + b"\n\n", "an answer of more than 1,000,000 bytes"),
        ("200 OK", "text/event-stream", b"data: x\n\n" * 99, "an answer of more than 1,000,000 bytes"),
        ("200 OK", "text/event-stream", PIECE, "one event of more than 6,000 bytes.*limits.max_event_mb"),
        ("200 OK", "text/event-stream; charset=utf-8", PIECE + b"\r\n", "one event of more than 6,000 bytes"),
    ],
)
async def test_an_answer_without_an_end_is_given_up(
    lane: WireLane, status: str, kind: str, piece: bytes, told: str
) -> None:
    """Its bound is told with its key; the upstream sees the connection end."""
    endless = Endless(status, kind, piece)
    async with serving(endless.answer) as server:
        reply = await lane.send(route_to(server), b"{}", calling())
        with pytest.raises(UpstreamBroken, match=told):
            await everything(reply)
        async with asyncio.timeout(10):
            await endless.closed.wait()


async def test_a_carried_answer_has_a_bound_if_it_is_an_error(lane: WireLane) -> None:
    """Nothing of other carried answers is held."""
    long = PIECE * 1_060
    status = "200 OK"

    async def script(exchange: Exchange) -> None:
        await exchange.answer(long, status)

    async with serving(script) as server:
        assert await everything(await lane.forward(route_to(server), "POST", "/files", b"", calling())) == long
        status = "404 Not Found"
        with pytest.raises(UpstreamBroken, match="an error of more than"):
            await everything(await lane.forward(route_to(server), "POST", "/files", b"", calling()))


@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error"])
async def test_an_answer_to_a_summarizer_has_the_same_bounds(lane: WireLane, status: str) -> None:
    """So have a server's lists of models, which are read by the same way."""
    endless = Endless(status, "application/json", PIECE)
    async with serving(endless.answer) as server:
        with pytest.raises(UpstreamBroken, match="of more than"):
            await lane.complete(route_to(server), TextRequest([], 10, 60), calling())
        async with asyncio.timeout(10):
            await endless.closed.wait()


async def test_a_stream_of_many_events_passes_however_its_pieces_are_cut(lane: WireLane) -> None:
    """Only an event counts that is longer than its bound, and not what came before it."""
    events = (b"data: " + b"x" * 2_990 + b"\n\n") * 16

    async def script(exchange: Exchange) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        await exchange.write(head)
        for place in range(0, len(events), 1_234):
            await exchange.chunk(events[place : place + 1_234])
        await exchange.write(b"0\r\n\r\n")

    async with serving(script) as server:
        assert await everything(await lane.send(route_to(server), b"{}", calling())) == events


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n"])
@pytest.mark.parametrize("cut", [1, 2, 3, 7, 40])
def test_an_event_ends_at_its_empty_line_wherever_that_is_cut(end: bytes, cut: int) -> None:
    """A line's end alone is none: an event may have any number of lines."""
    event, data = OpenEvent(), (b"data: a\ndata: b" + end) * 9 + b"data: begun"
    sizes = []
    for place in range(0, len(data), cut):
        event.add(data[place : place + cut])
        sizes.append(event.size)
    assert max(sizes) < 2 * len(b"data: a\ndata: b") + cut
    assert len(b"data: begun") <= event.size <= len(b"data: begun" + end)
    before = event.size
    event.add(b"\ndata: more\r\ndata: yet more\r\n")
    assert event.size > before + 20
