"""What bridges do with servers that answer oddly, and with requests that OpenAI itself would refuse."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.upstream.callers import calling, everything
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import DialectNotServed, UpstreamBroken
from tidemark.core.ports import Caller, Headers, Route, UpstreamReply
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.upstream.bridges.bridge import ChatBridge
from tidemark.upstream.headers import outgoing
from tidemark.upstream.upstream import LiteLLMUpstream

CHAT, RESPONSES, MESSAGES = ChatDialect(), ResponsesDialect(), MessagesDialect()
WIRE = Route("wire", "m", "m", "openai", "http://a/v1")
FINISHED = b'data: {"choices":[{"index":0,"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class OddUpstream:
    """``UpstreamReply`` of these bytes."""

    def __init__(self, *pieces: bytes, kind: bytes = b"application/json") -> None:
        self.status = 200
        self.headers: Headers = [(b"content-type", kind)]
        self.body_sent: Any = None
        self._pieces = pieces

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the pieces."""
        for piece in self._pieces:
            yield piece

    async def close(self) -> None:
        """Do nothing."""

    async def answer(self, body: bytes) -> UpstreamReply:
        """Note the request, and return the reply."""
        self.body_sent = json.loads(body)
        return self


async def send_messages(upstream: OddUpstream, *, to_openai: bool = False, **members: Any) -> UpstreamReply:
    """Send a request of messages over the bridge."""
    question = [{"role": "user", "content": "Hi."}]
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": question, **members}).encode()
    return await ChatBridge(CHAT.write).send(
        await MESSAGES.parse(body), upstream.answer, "openai" if to_openai else "server"
    )


@pytest.mark.parametrize("answer", [b"<html>Welcome</html>", b'{"error":{"message":"Out of memory"}}', b"{}"])
async def test_an_answer_that_is_no_completion_is_an_error(answer: bytes) -> None:
    """An empty message would look like the model's."""
    with pytest.raises(UpstreamBroken, match=r"no chat completion|Out of memory"):
        await send_messages(OddUpstream(answer))


@pytest.mark.parametrize("dialect", [RESPONSES, MESSAGES])
async def test_comments_of_a_stream_reach_the_client_before_its_first_event(dialect: Any) -> None:
    """A server that reads a long prompt says so with comments; the first event waits for its first chunk."""
    upstream = OddUpstream(b": reading\n\n", FINISHED, kind=b"text/event-stream")
    members = {"input": "Hi."} if dialect is RESPONSES else {"messages": [{"role": "user", "content": "Hi."}]}
    request = await dialect.parse(json.dumps({"model": "m", "max_tokens": 9, "stream": True, **members}).encode())
    pieces = [piece async for piece in (await ChatBridge(CHAT.write).send(request, upstream.answer)).body()]
    assert pieces[0] == b": reading\n\n"
    assert pieces[1].startswith((b"event: response.created", b"event: message_start"))


async def test_openai_gets_the_names_that_all_its_models_take() -> None:
    """Its reasoning models refuse ``max_tokens``, and all of them ``top_k``; other servers know no other name."""
    members: dict[str, Any] = {"top_k": 5}
    upstream = OddUpstream(b'{"choices":[{"index":0,"message":{"content":"Hi."},"finish_reason":"stop"}]}')
    await everything(await send_messages(upstream, to_openai=True, **members))
    assert upstream.body_sent["max_completion_tokens"] == 9
    assert not {"max_tokens", "top_k"} & upstream.body_sent.keys()
    await everything(await send_messages(upstream, **members))
    assert (upstream.body_sent["max_tokens"], upstream.body_sent["top_k"]) == (9, 5)


@pytest.mark.parametrize(("user", "expected"), [("u" * 64, "u" * 64), ("u" * 65, None)])
async def test_a_users_id_that_is_too_long_for_chat_stays_here(user: str, expected: str | None) -> None:
    """Claude Code sends JSON there."""
    upstream = OddUpstream(b'{"choices":[{"index":0,"message":{"content":"Hi."},"finish_reason":"stop"}]}')
    await everything(await send_messages(upstream, metadata={"user_id": user}))
    assert upstream.body_sent.get("user") == expected


async def test_allowed_tools_are_the_only_ones() -> None:
    """Not many servers know ``allowed_tools``."""
    tools: list[JsonValue] = [{"type": "function", "name": name, "parameters": {}} for name in ("a", "b")]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "b"}]}
    body = json.dumps({"model": "m", "input": "Hi.", "tools": tools, "tool_choice": choice}).encode()
    upstream = OddUpstream(b'{"choices":[{"index":0,"message":{"content":"Hi."},"finish_reason":"stop"}]}')
    await everything(await ChatBridge(CHAT.write).send(await RESPONSES.parse(body), upstream.answer))
    assert [tool["function"]["name"] for tool in upstream.body_sent["tools"]] == ["b"]
    assert upstream.body_sent["tool_choice"] == "required"


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        (calling(("x-api-key", "k")), [b"Bearer k"]),
        (calling(("x-api-key", "k"), ("authorization", "Bearer other")), [b"Bearer other"]),
        (calling(), []),
    ],
)
def test_a_key_in_x_api_key_goes_out_as_a_bearers_too(caller: Caller, expected: list[bytes]) -> None:
    """OpenAI and vLLM read ``Authorization`` only."""
    assert [value for name, value in outgoing(WIRE, caller) if name == b"authorization"] == expected


def entry(model: str, **more: JsonValue) -> dict[str, JsonValue]:
    """An entry of ``model_list``."""
    return {"model_name": "m", "litellm_params": {"model": model, "api_base": "http://127.0.0.1:9"}, **more}


async def test_an_entry_that_asks_for_litellm_gets_it() -> None:
    """Parameters that only litellm applies would be lost over the wire; so would ``lane: translate``."""
    plain = await LiteLLMUpstream([entry("anthropic/c")]).resolve("m")
    assert plain.dialects == frozenset()
    pinned = await LiteLLMUpstream([entry("anthropic/c", lane="translate")]).resolve("m")
    assert pinned.dialects == frozenset({"chat"})
    params: JsonValue = {"model": "anthropic/c", "temperature": 0.1}
    tuned = await LiteLLMUpstream([{"model_name": "m", "litellm_params": params}]).resolve("m")
    assert tuned.dialects == frozenset({"chat"})


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES])
async def test_dialects_that_leave_no_way_are_named(dialect: Any) -> None:
    """Bridges lead to chat completions only."""
    upstream = LiteLLMUpstream([entry("openai/m", model_info={"dialects": ["responses"]})], write_chat=CHAT.write)
    route = await upstream.resolve("m")
    with pytest.raises(DialectNotServed, match=r"speaks responses, as model_info\.dialects says"):
        await upstream.send(route, b"{}", calling(), dialect=dialect, stream=False)
