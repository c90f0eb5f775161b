"""One response in the making: what was sent decides what can follow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.requests import Request

from tidemark.core.errors import CompactionFailed, NotAuthenticated, TidemarkError, UpstreamBroken, UpstreamError
from tidemark.dialects.openai_errors import OPENAI_ERRORS, event
from tidemark.server.asgi import DISCONNECT_WATCH_DELAY_SECONDS, CancelOnDisconnect, Response
from tidemark.server.responses import with_error_envelope

ERROR = UpstreamBroken("The upstream stopped.")


async def test_nothing_follows_a_start_that_was_given_up_half_way() -> None:
    """Whether it went out cannot be known, so neither body nor error may come after it."""
    sent: list[MutableMapping[str, Any]] = []
    never = asyncio.Event()

    async def stuck(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            await never.wait()
        sent.append(message)

    response = Response(stuck)
    starting = asyncio.create_task(response.start(200, []))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert response.status is None
    await response.send_piece(b"a")
    await response.send_error(ERROR)
    await response.end(b"b")
    assert not sent


@pytest.mark.parametrize("begun", [True, False])
async def test_an_error_is_one_envelope_in_two_forms(*, begun: bool) -> None:
    """A response of its own before the first byte, an event after it."""
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    response = Response(send)
    if begun:
        await response.start(200, [])
    await response.send_error(ERROR, [(b"x-own", b"1")])
    body = sent[-1]["body"]
    assert sent[0]["status"] == (200 if begun else 502)
    told = json.loads(body.removeprefix(b"\n\ndata: ") if begun else body)["error"]
    assert told == {"message": "The upstream stopped.", "type": "upstream_error", "param": None, "code": ERROR.code}
    assert body.endswith(b"}}\n\n" if begun else b"}}")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CompactionFailed("No summary.", retry_after=1.2), (b"retry-after", b"2")),
        (NotAuthenticated("No token."), (b"www-authenticate", b"Bearer")),
    ],
)
async def test_what_an_error_says_in_header_lines_is_said_on_and_beside_the_road(
    error: TidemarkError, line: tuple[bytes, bytes]
) -> None:
    """When to ask again, in whole seconds, and by which scheme."""
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    @with_error_envelope
    async def fails(_: Request) -> Any:
        raise error

    await Response(send).send_error(error)
    assert line in sent[0]["headers"]
    assert line in (await fails(Request({"type": "http"}))).raw_headers


def test_an_event_is_one_line_whatever_the_body_looks_like() -> None:
    """A line end in the middle would end the event's data."""
    assert event(b'{\r\n "a":\n 1\r}') == b'\n\ndata: { "a": 1}\n\n'


@pytest.mark.parametrize("body", [b"<html>\n502\n</html>", b"", b"[]", b'{"detail": "x"}', b"[" * 100_000])
def test_a_refusal_that_is_none_in_openais_words_is_told_in_ours(body: bytes) -> None:
    """An SDK reads an ``error`` from an event, and nothing else."""
    told = json.loads(OPENAI_ERRORS.late_reply_event(502, body).removeprefix(b"\n\ndata: "))
    assert told["error"]["code"] == UpstreamError.code
    assert "502" in told["error"]["message"]


def test_a_refusal_in_openais_words_is_passed_on() -> None:
    """Its message, type and code are the upstream's own."""
    assert (
        OPENAI_ERRORS.late_reply_event(429, b'{"error":\n {"message": "slow"}}')
        == b'\n\ndata: {"error": {"message": "slow"}}\n\n'
    )


class ClientConnection:
    """A client, as the server sees it; it leaves when it is told to."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.asked = 0

    async def receive(self) -> MutableMapping[str, Any]:
        """Nothing until the client leaves."""
        self.asked += 1
        await self.left.wait()
        return {"type": "http.disconnect"}


async def test_who_leaves_ends_what_is_done_for_him() -> None:
    """At any step, and what comes after it goes on."""
    client, told = ClientConnection(), []

    async def answer() -> str:
        with CancelOnDisconnect(client.receive):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append("cancelled")
                raise
        return "over"

    task = asyncio.create_task(answer())
    await asyncio.sleep(2 * DISCONNECT_WATCH_DELAY_SECONDS)
    client.left.set()
    assert await asyncio.wait_for(task, 5) == "over"
    assert told == ["cancelled"]
    assert task.cancelling() == 0


async def test_who_has_left_before_anybody_listened_is_missed_all_the_same() -> None:
    """The server says it whenever it is asked."""
    client = ClientConnection()
    client.left.set()
    async with asyncio.timeout(5):
        with CancelOnDisconnect(client.receive):
            await asyncio.Event().wait()


async def test_nobody_listens_for_the_end_of_what_is_quick() -> None:
    """Listening has its price."""
    client = ClientConnection()
    with CancelOnDisconnect(client.receive):
        await asyncio.sleep(0)
    await asyncio.sleep(2 * DISCONNECT_WATCH_DELAY_SECONDS)
    assert client.asked == 0


async def test_a_client_that_leaves_after_the_end_cancels_nothing() -> None:
    """The same task goes on to other things."""
    client = ClientConnection()
    with CancelOnDisconnect(client.receive):
        await asyncio.sleep(2 * DISCONNECT_WATCH_DELAY_SECONDS)
    client.left.set()
    await asyncio.sleep(2 * DISCONNECT_WATCH_DELAY_SECONDS)
    assert client.asked == 1


async def test_a_cancellation_from_outside_goes_on_outwards() -> None:
    """The shutdown's, even where the client leaves at the same moment."""
    for leaves in (False, True):
        client = ClientConnection()

        async def answer(client: ClientConnection = client) -> None:
            with CancelOnDisconnect(client.receive):
                await asyncio.Event().wait()

        task = asyncio.create_task(answer())
        await asyncio.sleep(2 * DISCONNECT_WATCH_DELAY_SECONDS)
        if leaves:
            client.left.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_error_inside_is_told_whether_the_client_is_there_or_not() -> None:
    """It is never taken for the client's leaving."""
    client = ClientConnection()
    client.left.set()

    async def answer() -> None:
        with CancelOnDisconnect(client.receive):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("ours") from None

    with pytest.raises(ValueError, match="ours"):
        await answer()
