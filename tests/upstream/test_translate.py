"""The translate lane, through the real litellm, against answers of Anthropic's recorded shape."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from tests.support.scripted import Exchange, serving
from tests.support.waiting import settled, until
from tests.upstream import anthropic
from tests.upstream.callers import calling, collect, everything
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import CachedPrefix
from tidemark.core.errors import UpstreamBroken, UpstreamError, UpstreamStalled, UpstreamTimedOut, UpstreamUnreachable
from tidemark.core.ports import Route, TextRequest, UpstreamReply
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message
from tidemark.server.auth import PassthroughAuth
from tidemark.upstream.fields import BESIDE_OPENAIS, CHAT_FIELDS
from tidemark.upstream.overflow import Overflow, parse_overflow
from tidemark.upstream.upstream import LiteLLMUpstream

CHAT = ChatDialect()
ALICE = calling(("authorization", "Bearer alice-key"))
QUESTION: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 99,
}
PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
STREAM_HEADERS = {
    "content-type": "text/event-stream",
    "request-id": "req_1",
    "anthropic-ratelimit-requests-remaining": "3",
}


@pytest.fixture
def upstream() -> LiteLLMUpstream:
    """Resolves and sends by the real litellm."""
    return LiteLLMUpstream()


@pytest.fixture
def provider() -> Any:
    """Anthropic's endpoint; any other request fails the test."""
    with respx.mock(assert_all_called=False) as router:
        yield router.post(anthropic.MESSAGES_URL)


async def ask(upstream: LiteLLMUpstream, **fields: Any) -> UpstreamReply:
    """Send a request as the pipeline does."""
    route = await upstream.resolve("claude-sonnet-4-5")
    request = QUESTION | fields
    return await upstream.send(
        route, json.dumps(request).encode(), ALICE, dialect=CHAT, stream=bool(fields.get("stream"))
    )


def streamed(*parts: list[dict[str, Any]]) -> httpx.Response:
    """A streamed answer, one network read for each part."""

    async def reads() -> AsyncIterator[bytes]:
        for part in parts:
            yield anthropic.events(part)

    return httpx.Response(200, headers=STREAM_HEADERS, content=reads())


def chunks_of(body: bytes) -> list[dict[str, Any]]:
    """The chunks of an OpenAI stream, [DONE] left out."""
    events = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]
    return [json.loads(event) for event in events if event != b"[DONE]"]


async def test_plain_answer_becomes_a_chat_completion(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """A whole answer is one chat completion with the provider's usage and request id, and no empty fields."""
    provider.respond(json=anthropic.message({"type": "text", "text": "Hello"}), headers={"request-id": "req_1"})
    reply = await ask(upstream)
    answer = json.loads(await everything(reply))
    assert reply.status == 200
    assert (b"content-type", b"application/json") in reply.headers
    assert (b"x-request-id", b"req_1") in reply.headers
    assert answer["choices"] == [
        {"finish_reason": "stop", "index": 0, "message": {"content": "Hello", "role": "assistant"}}
    ]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (25, 15)
    assert "cost" not in answer["usage"]
    assert provider.calls.last.request.headers["x-api-key"] == "alice-key"


@pytest.mark.parametrize("stream", [True, False])
async def test_the_trace_of_a_request_reaches_the_provider(
    upstream: LiteLLMUpstream, provider: respx.Route, *, stream: bool
) -> None:
    """Beside ``anthropic-beta``; no other header of a client does."""
    provider.respond(json=anthropic.message({"type": "text", "text": "Hello"}))
    if stream:
        provider.mock(return_value=streamed([*anthropic.TEXT, *anthropic.end("end_turn")]))
    route = replace(await upstream.resolve("claude-sonnet-4-5"), lane="translate")
    sent = [(b"traceparent", PARENT), (b"tracestate", b"a=b"), (b"tracestate", b"c=d"), (b"x-other", b"e")]
    caller = PassthroughAuth(b"s").caller([*ALICE.headers, *sent, (b"anthropic-beta", b"context-1m-2025-08-07")])
    body = json.dumps(QUESTION | {"stream": stream}).encode()
    await everything(await upstream.send(route, body, caller, dialect=CHAT, stream=stream))
    headers = provider.calls.last.request.headers
    assert (headers["traceparent"], headers["tracestate"]) == (PARENT.decode(), "a=b,c=d")
    assert headers["anthropic-beta"] == "context-1m-2025-08-07"
    assert "x-other" not in headers


async def test_half_a_character_reaches_the_provider_as_a_mark(
    upstream: LiteLLMUpstream, provider: respx.Route
) -> None:
    """JavaScript leaves lone surrogates where it cuts an emoji; no request is lost for it."""
    provider.respond(200, json=anthropic.message({"type": "text", "text": "ok"}))
    reply = await ask(upstream, messages=[{"role": "user", "content": "cut \ud83d"}])
    assert reply.status == 200
    assert json.loads(provider.calls.last.request.content)["messages"][0]["content"][0]["text"] == "cut ?"


async def test_tool_use_becomes_a_tool_call(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """A tool call has its id, name and arguments, and ``content`` is there as null."""
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}}
    provider.respond(json=anthropic.message(use, stop_reason="tool_use"))
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    choice = json.loads(await everything(await ask(upstream, tools=[tool])))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["id"] == "toolu_1"
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Paris"}


async def test_stream_becomes_openai_events(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """Each chunk is one event, the last is [DONE]; usage is not sent to a client that did not ask."""
    provider.mock(return_value=streamed(anthropic.TEXT, anthropic.end("end_turn")))
    reply = await ask(upstream, stream=True)
    assert reply.status == 200
    assert reply.headers[0] == (b"content-type", b"text/event-stream")
    assert (b"x-request-id", b"req_1") in reply.headers
    assert (b"x-ratelimit-remaining-requests", b"3") in reply.headers
    body = await everything(reply)
    assert body.endswith(b"\n\ndata: [DONE]\n\n")
    chunks = chunks_of(body)
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks] == ["Hello", " world", None]
    assert [chunk["choices"][0].get("finish_reason") for chunk in chunks] == [None, None, "stop"]
    assert not any("usage" in chunk for chunk in chunks)
    assert b"null" not in body


async def test_usage_chunk_has_empty_choices(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """stream_options.include_usage: one more chunk, with ``choices: []`` as OpenAI sends it."""
    provider.mock(return_value=streamed(anthropic.TEXT, anthropic.end("end_turn")))
    chunks = chunks_of(await everything(await ask(upstream, stream=True, stream_options={"include_usage": True})))
    assert [len(chunk["choices"]) for chunk in chunks] == [1, 1, 1, 0]
    usage = chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (35, 15)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 10
    assert "cost" not in usage


async def test_streamed_tool_use(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """A streamed tool call's arguments come in pieces under one index, and end with ``tool_calls``."""
    provider.mock(return_value=streamed(anthropic.TOOL, anthropic.end("tool_use")))
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    chunks = chunks_of(await everything(await ask(upstream, stream=True, tools=[tool])))
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert calls[0]["id"] == "toolu_1"
    assert calls[0]["function"]["name"] == "weather"
    assert {call["index"] for call in calls} == {0}
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"city": "Paris"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
async def test_full_context_keeps_its_status_and_gets_its_code(
    upstream: LiteLLMUpstream, provider: respx.Route, *, stream: bool
) -> None:
    """A full context has OpenAI's code and the provider's words, where litellm would say "400"."""
    told = "prompt is too long: 210000 tokens > 200000 maximum"
    provider.respond(400, json=anthropic.error("invalid_request_error", told))
    reply = await ask(upstream, stream=stream)
    body = await everything(reply)
    assert reply.status == 400
    assert json.loads(body) == {
        "error": {
            "message": told,
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
    assert parse_overflow(reply.status, body) == Overflow(200000, 210000)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "kind", "text", "code"),
    [
        (429, "rate_limit_error", 'Number of requests it\'s "exceeded"\nslow down', "rate_limit_exceeded"),
        (401, "authentication_error", "invalid x-api-key", "invalid_api_key"),
        (404, "not_found_error", "model: claude-x", "model_not_found"),
        (400, "invalid_request_error", "messages: at least one message is required", None),
        (529, "overloaded_error", "Overloaded", None),
        (500, "api_error", "Internal server error", None),
    ],
)
async def test_refusals_keep_status_words_and_headers(
    upstream: LiteLLMUpstream,
    provider: respx.Route,
    *,
    stream: bool,
    status: int,
    kind: str,
    text: str,
    code: str | None,
) -> None:
    """Status, type, message, retry-after, request id and rate limits of a refusal are the provider's own."""
    headers = {"retry-after": "7", "request-id": "req_9", "anthropic-ratelimit-requests-reset": "soon"}
    provider.respond(status, json=anthropic.error(kind, text), headers=headers)
    reply = await ask(upstream, stream=stream)
    assert reply.status == status
    assert json.loads(await everything(reply)) == {
        "error": {"message": text, "type": kind, "param": None, "code": code}
    }
    assert {
        (b"content-type", b"application/json"),
        (b"retry-after", b"7"),
        (b"x-request-id", b"req_9"),
        (b"anthropic-ratelimit-requests-reset", b"soon"),
    } <= set(reply.headers)
    assert provider.call_count == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_status_that_there_is_not_goes_no_further(
    upstream: LiteLLMUpstream, provider: respx.Route, *, stream: bool
) -> None:
    """No server could send it on: the client would get nothing (RFC 9110, section 15)."""
    provider.respond(600, json=anthropic.error("api_error", "What"))
    reply = await ask(upstream, stream=stream)
    assert reply.status == 500
    assert json.loads(await everything(reply))["error"]["message"] == "What"


async def test_error_in_midstream_is_broken(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """After the first chunk an error is UpstreamBroken, with the provider's words; no [DONE]."""
    provider.mock(return_value=streamed(anthropic.TEXT, anthropic.OVERLOADED))
    reply = await ask(upstream, stream=True)
    pieces: list[bytes] = []
    with pytest.raises(UpstreamBroken, match="Overloaded"):
        await collect(reply, pieces)
    assert len(pieces) == 2


async def test_error_as_first_event_keeps_an_error_status(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """The first chunk is awaited, so an error in its place is still a refusal with a status."""
    provider.mock(return_value=streamed(anthropic.OVERLOADED))
    reply = await ask(upstream, stream=True)
    assert reply.status >= 500
    assert json.loads(await everything(reply))["error"]["message"].endswith("Overloaded")


@pytest.mark.parametrize("parts", [[], anthropic.TEXT])
async def test_stream_without_finish_reason_is_broken(
    upstream: LiteLLMUpstream, provider: respx.Route, parts: list[dict[str, Any]]
) -> None:
    """Litellm ends such a stream with a made-up "stop": neither that nor [DONE] is sent."""
    provider.mock(return_value=streamed(parts))
    reply = await ask(upstream, stream=True)
    pieces: list[bytes] = []
    with pytest.raises(UpstreamBroken):
        await collect(reply, pieces)
    assert not any(b"finish_reason" in piece or b"DONE" in piece for piece in pieces)


async def test_body_cannot_change_destination_or_credential(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """CVE-2024-6587: litellm's own parameters in a body have no effect and go nowhere."""
    provider.respond(json=anthropic.message({"type": "text", "text": "Hello"}))
    evil: dict[str, Any] = {
        "api_base": "http://169.254.169.254/",
        "base_url": "http://169.254.169.254/",
        "api_key": "evil",
        "custom_llm_provider": "openai",
        "extra_headers": {"x-evil": "1"},
        "headers": {"x-evil": "1"},
        "extra_body": {"evil": 1},
        "mock_response": "evil",
        "fallbacks": [{"model": "evil"}],
        "model_list": [],
        "proxy_server_request": {},
        "metadata": {"evil": 1},
        "api_version": "evil",
        "num_retries": 9,
        "timeout": 0.000001,
        "model": "openai/evil",
    }
    reply = await ask(upstream, **evil)
    assert json.loads(await everything(reply))["choices"][0]["message"]["content"] == "Hello"
    request = provider.calls.last.request
    assert request.headers["x-api-key"] == "alice-key"
    assert "x-evil" not in request.headers
    assert b"evil" not in request.content
    assert json.loads(request.content).keys() == {"model", "messages", "max_tokens"}


async def test_parameters_that_the_provider_lacks_are_dropped(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """A client cannot know who answers: what the provider lacks is left out, the rest goes through."""
    provider.respond(json=anthropic.message({"type": "text", "text": "Hello"}))
    await ask(upstream, seed=1, logit_bias={"1": 2}, frequency_penalty=0.1, temperature=0.5, stop=["x"])
    sent = json.loads(provider.calls.last.request.content)
    assert (sent["temperature"], sent["stop_sequences"]) == (0.5, ["x"])
    assert not {"seed", "logit_bias", "frequency_penalty"} & sent.keys()


@pytest.mark.parametrize("header", ["x-api-key", "api-key"])
async def test_credential_may_come_in_other_headers(
    upstream: LiteLLMUpstream, provider: respx.Route, header: str
) -> None:
    """SDKs send keys as Bearer token, x-api-key or api-key."""
    provider.respond(json=anthropic.message({"type": "text", "text": "Hello"}))
    route = await upstream.resolve("claude-sonnet-4-5")
    caller = calling((header, "bob-key"))
    await upstream.send(route, json.dumps(QUESTION).encode(), caller, dialect=CHAT, stream=False)
    assert provider.calls.last.request.headers["x-api-key"] == "bob-key"


async def test_server_environment_lends_no_key(
    upstream: LiteLLMUpstream, provider: respx.Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller without a key is refused; ANTHROPIC_API_KEY of the proxy's environment stays there."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "servers-own")
    route = await upstream.resolve("claude-sonnet-4-5")
    reply = await upstream.send(route, json.dumps(QUESTION).encode(), calling(), dialect=CHAT, stream=False)
    assert reply.status == 401
    assert json.loads(await everything(reply))["error"]["code"] == "invalid_api_key"
    with pytest.raises(UpstreamError, match="401"):
        await upstream.complete(route, TextRequest([], max_tokens=9, timeout_seconds=5), calling())
    assert provider.call_count == 0


async def test_configured_entry_is_put_in(provider: respx.Route) -> None:
    """litellm_params give the key and defaults; what the request itself says goes before a default."""
    provider.respond(json=anthropic.message({"type": "text", "text": "Hello"}))
    params = {
        "model": "anthropic/claude-sonnet-4-5",
        "api_key": "ours",
        "temperature": 0.1,
        "top_p": 0.2,
        "rpm": 5,
    }
    upstream = LiteLLMUpstream([{"model_name": "claude-sonnet-4-5", "litellm_params": params}])
    await ask(upstream, temperature=0.9)
    request = provider.calls.last.request
    sent = json.loads(request.content)
    assert request.headers["x-api-key"] == "ours"
    assert sent["temperature"] == 0.9
    assert "rpm" not in sent


async def test_completion_returns_its_text(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """A summarizer's call is one plain completion."""
    provider.respond(json=anthropic.message({"type": "text", "text": "In short."}))
    route = await upstream.resolve("claude-sonnet-4-5")
    messages = [{"role": "user", "content": "long"}]
    text = await upstream.complete(route, TextRequest(messages, max_tokens=50, timeout_seconds=5), ALICE)
    assert text == "In short."
    assert json.loads(provider.calls.last.request.content)["max_tokens"] == 50


async def test_a_live_prefix_goes_first(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """As the client's own requests are translated: messages, tools, cache marks; then the call's own message."""
    provider.respond(json=anthropic.message({"type": "text", "text": "In short."}))
    route = await upstream.resolve("claude-sonnet-4-5")
    said = {"role": "user", "content": [{"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}]}
    answered = {"role": "assistant", "content": "Yes."}
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    messages = tuple(parse_message(json.dumps(one).encode(), one, 0) for one in (said, answered))
    raws = tuple(message.raw for message in messages)
    live = CachedPrefix(messages, raws, {"tools": json.dumps([tool]).encode(), "prompt_cache_retention": b'"24h"'}, 100)
    question = [{"role": "user", "content": "Summarize."}]
    assert (
        await upstream.complete(
            route, TextRequest(question, max_tokens=50, timeout_seconds=5, cached_prefix=live), ALICE
        )
        == "In short."
    )
    sent = json.loads(provider.calls.last.request.content)
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert sent["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert sent["messages"][2]["content"][0]["text"] == "Summarize."
    assert [one["name"] for one in sent["tools"]] == ["look"]


async def test_failed_completion_is_an_upstream_error(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """A refusal to a summarizer's call has the provider's status and words in its message."""
    provider.respond(529, json=anthropic.error("overloaded_error", "Overloaded"))
    route = await upstream.resolve("claude-sonnet-4-5")
    with pytest.raises(UpstreamError, match="status 529: Overloaded"):
        await upstream.complete(route, TextRequest(QUESTION["messages"], max_tokens=50, timeout_seconds=5), ALICE)


@pytest.mark.parametrize("stream", [False, True])
async def test_no_connection_is_unreachable(upstream: LiteLLMUpstream, provider: respx.Route, *, stream: bool) -> None:
    """What happens beneath the provider's HTTP is told as on the wire lane."""
    provider.mock(side_effect=httpx.ConnectError("no route"))
    with pytest.raises(UpstreamUnreachable):
        await ask(upstream, stream=stream)
    provider.mock(side_effect=httpx.ReadTimeout("slow"))
    with pytest.raises(UpstreamTimedOut):
        await ask(upstream, stream=stream)


def slow_upstream(base_url: str) -> tuple[LiteLLMUpstream, Route]:
    """Anthropic's format at a scripted server."""
    base = base_url.removesuffix("/v1")
    return LiteLLMUpstream(), Route("translate", "c", "claude-sonnet-4-5", "anthropic", base, "k")


async def test_close_reaches_the_provider() -> None:
    """Giving up a stream between two chunks closes the provider's connection, as on the wire lane."""
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await exchange.chunk(anthropic.events(anthropic.TEXT))
        await exchange.gone()
        gone.set()

    async with serving(script) as server:
        upstream, route = slow_upstream(server.base_url)
        reply = await upstream.send(route, json.dumps(QUESTION).encode(), ALICE, dialect=CHAT, stream=True)
        assert b"Hello" in await anext(aiter(reply.body()))
        await reply.close()
        await reply.close()
        async with asyncio.timeout(2):
            await gone.wait()


async def test_close_during_a_read_reaches_the_provider() -> None:
    """Giving up a stream while its next chunk is awaited ends the wait and closes the connection."""
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await exchange.chunk(anthropic.events(anthropic.TEXT))
        await exchange.gone()
        gone.set()

    async with serving(script) as server:
        upstream, route = slow_upstream(server.base_url)
        reply = await upstream.send(route, json.dumps(QUESTION).encode(), ALICE, dialect=CHAT, stream=True)
        read: list[bytes] = []
        reading = asyncio.create_task(collect(reply, read))
        await until(lambda: read)
        await reply.close()
        async with asyncio.timeout(2):
            await gone.wait()
            with pytest.raises(UpstreamBroken):
                await reading


@pytest.mark.parametrize("headers", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"])
async def test_leaving_before_the_first_chunk_reaches_the_provider(headers: bytes) -> None:
    """A cancelled send closes the provider's connection, before its headers and before its first chunk."""
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(headers)
        asked.set()
        await exchange.gone()
        gone.set()

    async with serving(script) as server:
        upstream, route = slow_upstream(server.base_url)
        sending = asyncio.create_task(
            upstream.send(route, json.dumps(QUESTION).encode(), ALICE, dialect=CHAT, stream=True)
        )
        await asked.wait()
        await settled()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        async with asyncio.timeout(2):
            await gone.wait()


async def test_failed_streams_leave_no_connections_open() -> None:
    """Litellm does not close a stream that failed; the lane does."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await exchange.chunk(anthropic.events(anthropic.TEXT + anthropic.OVERLOADED))
        await exchange.gone()

    async with serving(script) as server:
        upstream, route = slow_upstream(server.base_url)
        for _ in range(3):
            reply = await upstream.send(route, json.dumps(QUESTION).encode(), ALICE, dialect=CHAT, stream=True)
            with pytest.raises(UpstreamBroken):
                await everything(reply)
        await until(lambda: server.open == 0)


OPENAI_URL = "https://api.openai.com/v1/chat/completions"
GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.0-flash"


async def test_openai_through_litellm_keeps_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """lane: translate for OpenAI itself: its message, type, code and param, at its own address."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8787/v1")
    told = {"message": "You ran out.", "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}
    entry: dict[str, Any] = {
        "model_name": "g",
        "litellm_params": {"model": "openai/gpt-4o"},
        "lane": "translate",
    }
    upstream = LiteLLMUpstream([entry])
    with respx.mock() as router:
        router.post(OPENAI_URL).respond(429, json={"error": told}, headers={"retry-after": "3"})
        body = json.dumps(QUESTION).encode()
        reply = await upstream.send(await upstream.resolve("g"), body, ALICE, dialect=CHAT, stream=True)
    assert reply.status == 429
    assert (b"retry-after", b"3") in reply.headers
    assert json.loads(await everything(reply)) == {"error": told}


async def test_chunks_of_one_answer_have_one_id() -> None:
    """Litellm makes up an id for each chunk of Gemini's; a client sees one completion with one id."""
    upstream = LiteLLMUpstream()

    def part(text: str, **more: str) -> bytes:
        content = {"parts": [{"text": text}], "role": "model"}
        return b"data: " + json.dumps({"candidates": [{"content": content, "index": 0, **more}]}).encode() + b"\n\n"

    with respx.mock() as router:
        route = router.post(url__startswith=GEMINI_URL)
        route.respond(content=part("Hi") + part(" you", finishReason="STOP"))
        body = json.dumps(QUESTION).encode()
        reply = await upstream.send(
            await upstream.resolve("gemini/gemini-2.0-flash"), body, ALICE, dialect=CHAT, stream=True
        )
        answer = await everything(reply)
    chunks = chunks_of(answer)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hi you"
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert b"vertex_ai" not in answer
    assert answer.endswith(b"data: [DONE]\n\n")


async def test_litellms_own_failures_do_not_show_its_insides(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """An answer that litellm trips over is an upstream error without a traceback in it."""
    provider.respond(json={"unexpected": True})
    with pytest.raises(UpstreamError) as failed:
        await ask(upstream)
    assert "Traceback" not in str(failed.value)
    assert "alice-key" not in str(failed.value)


@pytest.mark.parametrize(
    "model",
    ["anthropic/m", "openai/m", "azure/m", "ollama/m", "cohere_chat/m", "mistral/m", "huggingface/m", "gemini/m"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_no_provider_is_sent_a_request_twice(model: str, *, stream: bool) -> None:
    """A server that reads a paid request and dies over it has had it once: litellm's own second sending is off."""

    async def script(exchange: Exchange) -> None:
        if exchange.line.startswith("POST"):
            await asyncio.sleep(0.05)
            exchange.writer.close()
        else:
            await exchange.answer(b"{}")

    async with serving(script) as server:
        base = server.base_url.removesuffix("/v1")
        params: dict[str, JsonValue] = {"model": model, "api_base": base, "api_key": "k", "api_version": "2024-06-01"}
        upstream = LiteLLMUpstream([{"model_name": "m", "litellm_params": params, "lane": "translate"}])
        route = await upstream.resolve("m")
        with pytest.raises(UpstreamError):
            await upstream.send(
                route, json.dumps(QUESTION | {"model": "m"}).encode(), ALICE, dialect=CHAT, stream=stream
            )
        messages = [{"role": "user", "content": "long"}]
        with pytest.raises(UpstreamError):
            await upstream.complete(route, TextRequest(messages, max_tokens=9, timeout_seconds=5), ALICE)
        assert [one.line.split()[0] for one in server.exchanges].count("POST") == 2


@pytest.mark.parametrize("model", ["anthropic/m", "openai/m"])
async def test_a_stream_that_hangs_after_it_began_is_told_as_a_timeout(model: str) -> None:
    """The silence is bounded for each read from the socket: pings keep a stream alive that says nothing yet."""
    first = {
        "anthropic/m": anthropic.events(anthropic.TEXT),
        "openai/m": b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}\n\n',
    }[model]

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + first)
        for _ in range(5):
            await asyncio.sleep(0.5)
            await exchange.write(b": ping\n\n")
        pinged.set()
        await exchange.gone()

    pinged = asyncio.Event()
    async with serving(script) as server:
        base = server.base_url.removesuffix("/v1")
        params: dict[str, JsonValue] = {"model": model, "api_base": base, "api_key": "k", "stream_timeout": 2}
        upstream = LiteLLMUpstream([{"model_name": "m", "litellm_params": params, "lane": "translate"}])
        route = await upstream.resolve("m")
        body = json.dumps(QUESTION | {"model": "m", "stream": True}).encode()
        reply = await upstream.send(route, body, ALICE, dialect=CHAT, stream=True)
        read: list[bytes] = []
        with pytest.raises(UpstreamStalled, match="sent nothing for 2 seconds"):
            await collect(reply, read)
        assert pinged.is_set()
        assert b"Hello" in b"".join(read)


async def test_anthropics_beta_header_is_handed_on(upstream: LiteLLMUpstream, provider: respx.Route) -> None:
    """The window that a client asks for by it is Anthropic's to give; no other header of a client passes."""
    provider.respond(json=anthropic.message({"type": "text", "text": "Hello"}))
    caller = calling(
        ("authorization", "Bearer k"), ("anthropic-beta", "a-1, context-1m-2025-08-07"), ("x-custom", "stays")
    )
    route = await upstream.resolve("claude-sonnet-4-5")
    await everything(await upstream.send(route, json.dumps(QUESTION).encode(), caller, dialect=CHAT, stream=False))
    sent = provider.calls.last.request.headers
    assert "context-1m-2025-08-07" in sent["anthropic-beta"]
    assert "x-custom" not in sent
    messages = [{"role": "user", "content": "long"}]
    await upstream.complete(route, TextRequest(messages, max_tokens=9, timeout_seconds=5), caller)
    assert "context-1m-2025-08-07" in provider.calls.last.request.headers["anthropic-beta"]


def test_litellm_may_see_every_field_of_openais_but_some() -> None:
    """Two are the archive's, `model` is written by litellm, and litellm has no argument of the names of the others."""
    fields = CompletionCreateParamsBase.__annotations__.keys()
    assert fields - CHAT_FIELDS == {
        "metadata",
        "model",
        "moderation",
        "prompt_cache_options",
        "prompt_cache_retention",
        "store",
    }
    assert CHAT_FIELDS - fields == BESIDE_OPENAIS
