"""Replies that break off, fail in the middle, or come in odd pieces over a bridge: no half answer looks whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.upstream.bridges.test_bridge_limits import OddUpstream
from tidemark.core.errors import InvalidRequest, UpstreamBroken
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.upstream.bridges import pieces
from tidemark.upstream.bridges.asking import ChatGoal
from tidemark.upstream.bridges.bridge import ChatBridge

CHAT, RESPONSES, MESSAGES = ChatDialect(), ResponsesDialect(), MessagesDialect()
EVENTS = b"text/event-stream"
BOTH = pytest.mark.parametrize("dialect", [MESSAGES, RESPONSES], ids=["messages", "responses"])


async def ask(
    dialect: MessagesDialect | ResponsesDialect,
    upstream: OddUpstream,
    *,
    stream: bool = False,
    goal: ChatGoal = "server",
    **members: Any,
) -> bytes:
    """Ask over the bridge, and return the whole body of the answer."""
    question = {"messages": [{"role": "user", "content": "Hi."}]} if dialect is MESSAGES else {"input": "Hi."}
    body = {"model": "m", "stream": stream, **question, **({"max_tokens": 9} if dialect is MESSAGES else {}), **members}
    request = await dialect.parse(json.dumps(body).encode())
    reply = await ChatBridge(CHAT.write).send(request, upstream.answer, goal)
    return b"".join([piece async for piece in reply.body()])


def chunk(finish: str | None = None, **delta: Any) -> bytes:
    """An event of chat completions."""
    return (
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode() + b"\n\n"
    )


def kinds(body: bytes) -> list[str]:
    """The kinds of the events of a stream."""
    return [line[7:].decode() for line in body.split(b"\n") if line.startswith(b"event: ")]


@BOTH
async def test_half_an_answer_is_no_answer(dialect: MessagesDialect | ResponsesDialect) -> None:
    """A server that streams although nobody asked for it, and breaks off."""
    with pytest.raises(UpstreamBroken, match="broke off"):
        await ask(dialect, OddUpstream(chunk(content="Half an"), kind=EVENTS))
    whole = await ask(dialect, OddUpstream(chunk("stop", content="All of it."), kind=EVENTS))
    assert b"All of it." in whole


@BOTH
async def test_a_stream_that_is_no_completion_is_an_error(dialect: MessagesDialect | ResponsesDialect) -> None:
    """Nothing has gone out yet, so it can still be one."""
    for answer in (b"{}", b"", b"<html>", b'{"error": {"message": "Out of memory"}}'):
        with pytest.raises(UpstreamBroken):
            await ask(dialect, OddUpstream(answer), stream=True)


@BOTH
async def test_nothing_follows_an_error_in_a_stream(dialect: MessagesDialect | ResponsesDialect) -> None:
    """Not even where the server goes on and says that it has finished."""
    failing = OddUpstream(chunk(content="Hi"), b'data: {"error": {"message": "boom"}}\n\n', chunk("stop"), kind=EVENTS)
    body = await ask(dialect, failing, stream=True)
    assert kinds(body)[-1] == "error"
    assert kinds(body).count("error") == 1
    assert b"boom" in body
    together = OddUpstream(b'data: {"error": {"message": "boom"}}\n\n' + chunk("stop"), kind=EVENTS)
    assert kinds(await ask(dialect, together, stream=True))[-1] == "error"


@BOTH
@pytest.mark.parametrize("cut", range(1, 14))
async def test_a_comment_may_come_in_pieces(dialect: MessagesDialect | ResponsesDialect, cut: int) -> None:
    """It goes on as a comment, and never touches the event after it."""
    sent = b": keep-alive\n\n" + chunk("stop", content="Hi")
    body = await ask(dialect, OddUpstream(sent[:cut], sent[cut:], kind=EVENTS), stream=True)
    assert body.startswith(b": keep-alive\n\nevent: ")
    assert kinds(body)[-1] in ("message_stop", "response.completed")


@BOTH
async def test_events_may_come_byte_by_byte(dialect: MessagesDialect | ResponsesDialect) -> None:
    """The text is the same."""
    sent = chunk(content="One ") + chunk(content="two.") + chunk("stop")
    body = await ask(dialect, OddUpstream(*[bytes([byte]) for byte in sent], kind=EVENTS), stream=True)
    assert b"One " in body
    assert kinds(body)[-1] in ("message_stop", "response.completed")


async def test_an_endless_line_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory."""
    monkeypatch.setattr(pieces, "MAX_LINE_BYTES", 100)
    with pytest.raises(UpstreamBroken, match="more than"):
        await ask(MESSAGES, OddUpstream(b"data: " + b"x" * 60, b"x" * 60, kind=EVENTS), stream=True)


def call(arguments: str, index: int = 0, **first: str) -> dict[str, Any]:
    """A piece of a tool call."""
    function = {"arguments": arguments, **({"name": first["name"]} if first else {})}
    return {"tool_calls": [{"index": index, "function": function, **({"id": first["id"]} if first else {})}]}


@pytest.mark.parametrize("between", [{"content": "\n"}, {"content": "Wait."}, {"reasoning_content": "Hm."}])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_comes_within_a_call_does_not_cut_it(between: dict[str, str], *, stream: bool) -> None:
    """It stands behind the calls; white space alone is left out."""
    sent = (
        chunk(**call('{"a":', id="c1", name="first")),
        chunk(**between),
        chunk(**call("1}")),
        chunk(**call('{"b":2}', 1, id="c2", name="second")),
        chunk("tool_calls"),
    )
    body = await ask(MESSAGES, OddUpstream(*sent, kind=EVENTS), stream=stream)
    if stream:
        assert body.count(b'"type":"tool_use"') == 2
        assert body.count(b"content_block_start") == body.count(b"content_block_stop")
        return
    blocks = json.loads(body)["content"]
    calls = [{"type": "tool_use", "id": "c1", "name": "first", "input": {"a": 1}}]
    calls.append({"type": "tool_use", "id": "c2", "name": "second", "input": {"b": 2}})
    assert blocks[:2] == calls
    assert len(blocks) == (2 if between == {"content": "\n"} else 3)


async def test_each_thinking_block_keeps_its_own_signature() -> None:
    """A signature is valid for its own text only; counts of the provider's cache are told, too."""
    thinking = [{"type": "thinking", "thinking": text, "signature": text.upper()} for text in ("one", "two")]
    message = {"content": "Hi", "reasoning_content": "onetwo", "thinking_blocks": thinking}
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "cache_creation_input_tokens": 30}
    usage |= {"cache_read_input_tokens": 20}
    reply = {"choices": [{"index": 0, "finish_reason": "stop", "message": message}], "usage": usage}
    answer = json.loads(await ask(MESSAGES, OddUpstream(json.dumps(reply).encode()), goal="litellm"))
    assert answer["content"] == [*thinking, {"type": "text", "text": "Hi"}]
    counts = {"input_tokens": 50, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 20, "output_tokens": 5}
    assert answer["usage"] == counts


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "f"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
    ],
)
async def test_a_demanded_tool_that_cannot_be_served_is_refused(choice: object) -> None:
    """Built-in tools of the provider are the only ones of the request."""
    upstream = OddUpstream(b"{}")
    with pytest.raises(InvalidRequest) as refused:
        await ask(RESPONSES, upstream, tools=[{"type": "web_search"}], tool_choice=choice)
    assert refused.value.param == "tool_choice"
    assert upstream.body_sent is None


@BOTH
async def test_the_last_line_of_a_stream_needs_no_end(dialect: MessagesDialect | ResponsesDialect) -> None:
    """Some servers leave it out, and the reason why the answer ended stands there."""
    sent = chunk("stop", content="Hi").rstrip(b"\n")
    body = await ask(dialect, OddUpstream(sent, kind=EVENTS), stream=True)
    assert kinds(body)[-1] in ("message_stop", "response.completed")


async def test_sealed_thinking_behind_a_call_is_not_lost() -> None:
    """Claude wants it back with the next request."""
    sealed = {"type": "redacted_thinking", "data": "c2VhbGVk"}
    between = (chunk(thinking_blocks=[sealed]), chunk(content="\n"), chunk("tool_calls"))
    upstream = OddUpstream(chunk(**call("{}", id="c1", name="first")), *between, kind=EVENTS)
    blocks = json.loads(await ask(MESSAGES, upstream, goal="litellm"))["content"]
    assert [block["type"] for block in blocks] == ["tool_use", "redacted_thinking"]
    assert blocks[1] == sealed


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "web_search"}])
async def test_a_demanded_tool_of_the_provider_is_refused_in_messages(choice: object) -> None:
    """The upstream is not asked."""
    upstream = OddUpstream(b"{}")
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    with pytest.raises(InvalidRequest) as refused:
        await ask(MESSAGES, upstream, tools=tools, tool_choice=choice)
    assert refused.value.param == "tool_choice"
    assert upstream.body_sent is None
