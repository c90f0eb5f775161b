"""A request's body goes upstream while it arrives: never as a whole in memory, and never a second time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.waiting import settled
from tests.upstream.callers import calling, everything
from tidemark.core.errors import UpstreamError
from tidemark.core.ports import Route, Upload
from tidemark.upstream.upstream import LiteLLMUpstream
from tidemark.upstream.wire import WireLane

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
PIECE = b"p" * 65_536
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[tuple[Route, list[int]]]:
    """Run a server that reads and writes as its test says; yield the route to it, and a list of its connections."""
    connections: list[int] = []
    tasks: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Route("wire", "m", "m", "openai", f"http://127.0.0.1:{port}/v1"), connections
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def each(*pieces: bytes) -> AsyncGenerator[bytes, None]:
    """Yield pieces."""
    for piece in pieces:
        yield piece


async def test_a_body_of_known_length_goes_out_with_it(each_wire: WireLane) -> None:
    """Its encoding goes with it, too."""
    heads: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        assert await reader.readexactly(6) == b"onetwo"
        writer.write(ANSWER)

    async with listening(talk) as (route, _):
        upload = Upload(each(b"one", b"", b"two"), 6, b"gzip")
        assert await everything(await each_wire.forward(route, "POST", "/files?x=1", upload, calling())) == b"{}"
    head = heads[0].lower()
    assert head.startswith(b"post /v1/files?x=1 http/1.1\r\n")
    assert b"\r\ncontent-length: 6\r\n" in head
    assert b"\r\ncontent-encoding: gzip\r\n" in head
    assert b"transfer-encoding" not in head


async def test_a_body_of_unknown_length_goes_out_in_chunks(each_wire: WireLane) -> None:
    """RFC 9112, section 7.1."""
    bodies: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"\r\ntransfer-encoding: chunked\r\n" in (await reader.readuntil(b"\r\n\r\n")).lower()
        bodies.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(ANSWER)

    async with listening(talk) as (route, _):
        await everything(await each_wire.forward(route, "PUT", "/files", Upload(each(b"one", b"three")), calling()))
    assert bodies == [b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"]


async def test_the_upstream_has_each_piece_before_the_next_one_exists(each_wire: WireLane) -> None:
    """Nothing waits for the end of the body."""
    arrived = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"one"
        await arrived.wait()
        yield b"two"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(3)
        arrived.set()
        await reader.readexactly(3)
        writer.write(ANSWER)

    async with listening(talk) as (route, _):
        assert (
            await everything(await each_wire.forward(route, "POST", "/files", Upload(pieces(), 6), calling())) == b"{}"
        )


async def test_an_answer_before_the_end_of_the_upload_is_carried_and_ends_it(each_wire: WireLane) -> None:
    """A server refuses a file by its head; nobody reads the rest of the file."""
    stopped = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            yield b"one"
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(3)
        writer.write(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno")
        await reader.read()

    async with listening(talk) as (route, _):
        reply = await each_wire.forward(route, "POST", "/files", Upload(pieces(), 6), calling())
        assert reply.status == 413
        assert await everything(reply) == b"no"
        await reply.close()
        await asyncio.wait_for(stopped.wait(), 10)


@pytest.mark.parametrize("length", [5, 7, None], ids=["longer", "shorter", "broken"])
async def test_a_body_that_breaks_off_fails_and_is_never_sent_again(each_wire: WireLane, length: int | None) -> None:
    """The upstream sees that it broke off: its connection ends, and no end of the body comes."""
    rest: list[bytes] = []
    ended = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"one"
        yield b"two"
        if length is None:
            raise ConnectionAbortedError("the client left")

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        rest.append(await reader.read())
        ended.set()

    async with listening(talk) as (route, connections):
        with pytest.raises(UpstreamError):
            await each_wire.forward(route, "POST", "/files", Upload(pieces(), length), calling())
        await asyncio.wait_for(ended.wait(), 10)
        assert len(connections) == 1
    assert b"0\r\n\r\n" not in rest[0]


async def test_an_upload_waits_for_an_upstream_that_reads_slowly(each_wire: WireLane) -> None:
    """Of 64 MB for a server that reads nothing, most is never asked for; giving up closes the connection."""
    asked, closed = [0], asyncio.Event()
    reading = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        for _ in range(1024):
            asked[0] += 1
            yield PIECE

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reading.wait()
        try:
            while await reader.read(2**20):
                pass
        finally:
            closed.set()

    async with listening(talk) as (route, _):
        upload = Upload(pieces(), 1024 * len(PIECE))
        sending = asyncio.create_task(each_wire.forward(route, "POST", "/files", upload, calling()))
        before = -1
        while asked[0] != before or not before:  # until it asks for no more
            before = asked[0]
            await settled()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        reading.set()
        await asyncio.wait_for(closed.wait(), 10)
    assert asked[0] < 512


async def test_an_answer_to_head_ends_with_its_headers(each_wire: WireLane) -> None:
    """Its length is that of the body that GET would get, and nothing waits for it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HEAD /v1/files/f HTTP/1.1\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        await reader.read()

    async with listening(talk) as (route, _):
        reply = await each_wire.forward(route, "HEAD", "/files/f", b"", calling())
        assert (b"content-length", b"1000") in [(name.lower(), value) for name, value in reply.headers]
        assert await everything(reply) == b""


async def test_a_post_without_a_body_says_so(each_wire: WireLane) -> None:
    """Some servers insist on a length (RFC 9110, section 8.6)."""
    heads: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).lower())
        writer.write(ANSWER)

    async with listening(talk) as (route, _):
        await everything(await each_wire.forward(route, "POST", "/batches/b/cancel", b"", calling()))
        await everything(await each_wire.forward(route, "GET", "/batches", b"", calling()))
    assert b"\r\ncontent-length: 0\r\n" in heads[0]
    assert b"content-length" not in heads[1]


def entry(name: str, model: str, **params: Any) -> dict[str, Any]:
    """Return an entry of ``model_list``."""
    return {"model_name": name, "litellm_params": {"model": model, **params}}


HERE, THERE = "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"


@pytest.mark.parametrize(
    ("entries", "upstream", "base"),
    [
        ([], HERE, HERE),
        ([], None, None),
        ([entry("a", "openai/a", api_base=THERE)], HERE, HERE),
        ([entry("a", "openai/a", api_base=HERE), entry("b", "openai/b", api_base=HERE + "/")], None, None),
        ([entry("a", "openai/a", api_base=HERE), entry("b", "openai/b", api_base=HERE)], None, HERE),
        ([entry("a", "openai/a", api_base=HERE), entry("b", "openai/b", api_base=THERE)], None, None),
        ([entry("a", "openai/a", api_base=HERE, api_key="1"), entry("b", "openai/b", api_base=HERE)], None, None),
        ([entry("a", "openai/a", api_base=HERE), entry("c", "anthropic/claude-sonnet-4-5")], None, HERE),
        ([entry("*", "openai/*")], None, "https://api.openai.com/v1"),
    ],
)
def test_a_request_without_a_model_goes_to_the_only_upstream(
    entries: list[dict[str, Any]], upstream: str | None, base: str | None
) -> None:
    """TIDEMARK_UPSTREAM, or the one address and key that the entries of the wire lane share."""
    route = LiteLLMUpstream(entries, upstream).sole_route()
    assert (route and route.base_url) == base


@pytest.mark.parametrize(
    ("key", "base"), [("sk-proj-1", "https://api.openai.com/v1"), ("sk-ant-1", None), ("local", None), ("", None)]
)
def test_without_a_configuration_a_key_of_openais_leads_to_openai(key: str, base: str | None) -> None:
    """A key of another form is never tried there."""
    route = LiteLLMUpstream().sole_route(calling(("authorization", f"Bearer {key}")))
    assert (route.base_url if route else None) == base
    listed = {"model_name": "m", "litellm_params": {"model": "cohere/m"}}
    assert LiteLLMUpstream([listed]).sole_route(calling(("authorization", f"Bearer {key}"))) is None
