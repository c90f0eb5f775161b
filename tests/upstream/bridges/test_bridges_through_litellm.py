"""The translate lane's rules hold over the bridges: refusals, breaks, headers and one request for one request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import respx

from tests.upstream import anthropic
from tests.upstream.callers import calling, collect, everything
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamBroken, UpstreamUnreachable
from tidemark.core.ports import UpstreamReply
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.upstream.overflow import Overflow, parse_overflow
from tidemark.upstream.upstream import LiteLLMUpstream

CHAT, RESPONSES, MESSAGES = ChatDialect(), ResponsesDialect(), MessagesDialect()
BRIDGED = pytest.mark.parametrize("dialect", [RESPONSES, MESSAGES], ids=lambda dialect: dialect.name)
ENTRY: dict[str, JsonValue] = {
    "model_name": "m",
    "litellm_params": {"model": "anthropic/claude-sonnet-4-5"},
    "lane": "translate",
}
"""Anthropic's own dialect would go over the wire; this entry asks for litellm."""


@pytest.fixture
def provider() -> Any:
    """Anthropic's endpoint; any other request fails the test."""
    with respx.mock(assert_all_called=False) as router:
        yield router.post(anthropic.MESSAGES_URL)


async def ask(dialect: Any, *, stream: bool = False) -> UpstreamReply:
    """Send a request as the pipeline does."""
    upstream = LiteLLMUpstream([ENTRY], write_chat=CHAT.write)
    route = await upstream.resolve("m")
    question = [{"role": "user", "content": "Hi."}]
    members = {"input": question} if dialect is RESPONSES else {"messages": question, "max_tokens": 9}
    body = json.dumps({"model": route.upstream_model, "stream": stream, **members}).encode()
    caller = calling(("authorization", "Bearer alice-key"))
    return await upstream.send(route, body, caller, dialect=dialect, stream=stream)


def streamed(*parts: list[dict[str, Any]]) -> httpx.Response:
    """A streamed answer."""

    async def reads() -> AsyncIterator[bytes]:
        for part in parts:
            yield anthropic.events(part)

    headers = {"content-type": "text/event-stream", "request-id": "req_1"}
    return httpx.Response(200, headers=headers, content=reads())


@BRIDGED
async def test_a_whole_stream_is_complete(dialect: Any, provider: respx.Route) -> None:
    """Text, counts and the provider's request id arrive."""
    provider.mock(return_value=streamed(anthropic.TEXT, anthropic.end("end_turn")))
    reply = await ask(dialect, stream=True)
    assert (b"x-request-id", b"req_1") in reply.headers
    fold = dialect.fold_stream()
    fold.feed(await everything(reply))
    read = fold.reply()
    assert read.complete
    assert read.message.text == "Hello world"
    assert dialect.usage(read.usage).output_tokens == 15
    assert provider.calls.last.request.headers["x-api-key"] == "alice-key"


@BRIDGED
async def test_a_stream_that_breaks_is_broken(dialect: Any, provider: respx.Route) -> None:
    """Tidemark makes up no end, where litellm's own bridge says ``end_turn``."""
    provider.mock(return_value=streamed(anthropic.TEXT))
    reply = await ask(dialect, stream=True)
    got: list[bytes] = []
    with pytest.raises(UpstreamBroken):
        await collect(reply, got)
    await reply.close()
    fold = dialect.fold_stream()
    fold.feed(b"".join(got))
    assert not fold.reply().complete
    assert b"Hello" in b"".join(got)


@BRIDGED
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_keeps_status_words_and_headers(dialect: Any, provider: respx.Route, *, stream: bool) -> None:
    """It has the dialect's envelope, and the provider was asked once."""
    error = anthropic.error("rate_limit_error", "Slow down.")
    provider.respond(429, json=error, headers={"retry-after": "7", "request-id": "req_9"})
    reply = await ask(dialect, stream=stream)
    assert reply.status == 429
    assert {(b"retry-after", b"7"), (b"x-request-id", b"req_9")} <= set(reply.headers)
    body = json.loads(await everything(reply))
    assert (body["error"]["message"], body["error"]["type"]) == ("Slow down.", "rate_limit_error")
    assert body["error"]["code"] == "rate_limit_exceeded"
    assert provider.call_count == 1


@BRIDGED
async def test_a_full_context_is_one_in_every_dialect(dialect: Any, provider: respx.Route) -> None:
    """The pipeline reads the window out of it, compacts and sends once more."""
    text = "prompt is too long: 210000 tokens > 200000 maximum"
    provider.respond(400, json=anthropic.error("invalid_request_error", text))
    reply = await ask(dialect, stream=True)
    assert parse_overflow(reply.status, await everything(reply)) == Overflow(200000, 210000)


@BRIDGED
async def test_a_provider_that_cannot_be_reached_is_asked_once(dialect: Any, provider: respx.Route) -> None:
    """Litellm sends nothing a second time; a connection that broke may have been charged."""
    provider.mock(side_effect=httpx.ConnectError("refused"))
    with pytest.raises(UpstreamUnreachable):
        await ask(dialect)
    assert provider.call_count == 1
