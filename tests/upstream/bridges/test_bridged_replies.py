"""A reply of chat completions is written in another dialect, and means there what it meant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.core.ports import Headers, UpstreamReply
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.upstream.bridges.bridge import ChatBridge, ReadReply

pytestmark = pytest.mark.anyio
CHAT, RESPONSES, MESSAGES = ChatDialect(), ResponsesDialect(), MessagesDialect()
OTHERS: Sequence[Dialect] = (RESPONSES, MESSAGES)
EVENTS: dict[str, TypeAdapter[Any]] = {
    "responses": TypeAdapter(ResponseStreamEvent),
    "messages": TypeAdapter(RawMessageStreamEvent),
}
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 5,
    "total_tokens": 25,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
TOOLS = [
    LOOK,
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "files", "description": "Files.", "tools": [{**LOOK, "name": "open_file"}]},
]


def body_of(dialect: Dialect, **members: Any) -> bytes:
    """Return a small request."""
    if dialect is RESPONSES:
        return json.dumps({"model": "m", "input": "Hi.", "tools": TOOLS, **members}).encode()
    return json.dumps(
        {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi."}], **members}
    ).encode()


def chunk(delta: Any = None, reason: str | None = None, **members: Any) -> bytes:
    """Return one event of a stream of chat completions."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    return b"data: " + json.dumps({"id": "c", "choices": choices, **members}).encode() + b"\n\n"


def call(index: int, arguments: str, call_id: str = "", name: str = "") -> dict[str, Any]:
    """Return the delta of a tool call."""
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"tool_calls": [{"index": index, "function": function, **({"id": call_id} if call_id else {})}]}


END = b"data: [DONE]\n\n"
STREAMS: dict[str, list[bytes]] = {
    "a text": [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo."}, "stop"),
    ],
    "reasoning": [
        chunk({"reasoning_content": "Hm, "}),
        chunk({"reasoning_content": "so."}),
        chunk({"content": "Yes."}, "stop"),
    ],
    "a call": [
        chunk({"content": "I look."}),
        chunk(call(0, "", "c1", "look")),
        chunk(call(0, '{"at":')),
        chunk(call(0, "1}"), "tool_calls"),
    ],
    "calls in turns": [
        chunk(call(0, "", "c1", "look")),
        chunk(call(1, "", "c2", "look")),
        chunk(call(0, '{"at": 1}')),
        chunk(call(1, '{"at": 2}')),
        chunk({}, "tool_calls"),
    ],
    "cut by its length": [chunk({"content": "Once"}), chunk({}, "length")],
    "filtered": [chunk({"content": "Once"}), chunk({}, "content_filter")],
}


class ChatUpstream:
    """``UpstreamReply`` with a reply of chat completions."""

    def __init__(self, pieces: Sequence[bytes], kind: bytes = b"text/event-stream", status: int = 200) -> None:
        self.status = status
        self.headers: Headers = [(b"content-type", kind), (b"x-request-id", b"req_1"), (b"content-length", b"3")]
        self.asked: list[Any] = []
        self._pieces = pieces

    async def body(self) -> Any:
        """Yield the pieces."""
        for piece in self._pieces:
            yield piece

    async def close(self) -> None:
        """Do nothing."""

    async def answer(self, body: bytes) -> UpstreamReply:
        """Note a request, and return the reply."""
        self.asked.append(json.loads(body))
        return self


async def bridged(
    dialect: Dialect, upstream: ChatUpstream, *, stream: bool = True, **members: Any
) -> tuple[Any, bytes]:
    """Return the reply of the bridge and its whole body."""
    request: ModelRequest = await dialect.parse(body_of(dialect, stream=stream, **members))
    reply = await ChatBridge(CHAT.write).send(request, upstream.answer)
    return reply, b"".join([piece async for piece in reply.body()])


def events_of(dialect: Dialect, data: bytes) -> list[dict[str, Any]]:
    """Return the events, after the official SDK has read each of them."""
    events = []
    for event in data.decode().strip().split("\n\n"):
        name, _, payload = event.partition("\n")
        value = json.loads(payload.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        EVENTS[dialect.name].validate_python(value, strict=False)
        events.append(value)
    return events


def read_in_chat(pieces: Sequence[bytes]) -> Any:
    """Return what the dialect of chat completions reads of a stream."""
    fold = CHAT.fold_stream()
    fold.feed(b"".join(pieces))
    return fold.reply()


@pytest.mark.parametrize("dialect", OTHERS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_means_the_same_in_every_dialect(dialect: Dialect, name: str) -> None:
    """The SDK reads each event, and the stored message is that of chat completions: text, calls and digest."""
    pieces = [*STREAMS[name], chunk(usage=USAGE), END]
    reply, data = await bridged(dialect, ChatUpstream(pieces))
    assert dict(reply.headers)[b"x-request-id"] == b"req_1"
    assert b"content-length" not in dict(reply.headers)
    events = events_of(dialect, data)
    fold = dialect.fold_stream()
    fold.feed(data)
    assert fold.ended
    read, expected = fold.reply(), read_in_chat(pieces)
    assert read.complete
    assert read.message is not None
    assert read.message.digest == expected.message.digest
    assert read.message.text == expected.message.text
    assert [(call.id, call.name) for call in read.message.calls] == [
        (call.id, call.name) for call in expected.message.calls
    ]
    counts = dialect.usage(read.usage)
    assert (counts.input_tokens, counts.cached_tokens, counts.output_tokens) == (20, 8, 5)
    if dialect is RESPONSES:
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
        done = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
        assert added == list(range(len(added)))
        assert sorted(done) == added
    else:
        started = [event["index"] for event in events if event["type"] == "content_block_start"]
        assert started == [event["index"] for event in events if event["type"] == "content_block_stop"]


@pytest.mark.parametrize("name", STREAMS)
async def test_a_reply_in_one_piece_is_the_last_event_of_its_stream(name: str) -> None:
    """Streamed or whole, the answer is one."""
    pieces = [*STREAMS[name], chunk(usage=USAGE), END]
    message = json.loads(read_in_chat(pieces).message.raw)
    reason = next(r for piece in reversed(pieces[:-2]) if (r := json.loads(piece[6:])["choices"][0]["finish_reason"]))
    whole = json.dumps(
        {"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": USAGE}
    ).encode()
    for dialect, model in ((RESPONSES, Response), (MESSAGES, AnthropicMessage)):
        reply, data = await bridged(dialect, ChatUpstream([whole], b"application/json"), stream=False)
        assert isinstance(reply, ReadReply)
        model.model_validate_json(data)
        read = dialect.fold_body(data)
        assert read.complete
        assert read.message is not None
        assert read.message.digest == read_in_chat(pieces).message.digest
        _, streamed = await bridged(dialect, ChatUpstream([whole], b"application/json"))
        fold = dialect.fold_stream()
        fold.feed(streamed)
        again = fold.reply()
        assert again.complete
        assert again.message is not None
        assert again.message.digest == read.message.digest


@given(cut=st.integers(1, 60), name=st.sampled_from(sorted(STREAMS)))
async def test_a_stream_may_be_cut_anywhere(cut: int, name: str) -> None:
    """The network cuts events in two."""
    data = b"".join([*STREAMS[name], chunk(usage=USAGE), END])
    pieces = [data[at : at + cut] for at in range(0, len(data), cut)]
    for dialect in OTHERS:
        _, whole = await bridged(dialect, ChatUpstream([data]))
        _, cut_up = await bridged(dialect, ChatUpstream(pieces))
        assert len(events_of(dialect, cut_up)) == len(events_of(dialect, whole))


@pytest.mark.parametrize("dialect", OTHERS, ids=lambda dialect: dialect.name)
async def test_an_early_end_is_no_complete_answer(dialect: Dialect) -> None:
    """Without a reason why it ended, no last event is made up."""
    _, data = await bridged(dialect, ChatUpstream([chunk({"content": "Once"})]))
    fold = dialect.fold_stream()
    fold.feed(data)
    assert not fold.ended
    assert not fold.reply().complete


@pytest.mark.parametrize("dialect", OTHERS, ids=lambda dialect: dialect.name)
async def test_an_error_within_the_stream_is_one_of_the_dialect(dialect: Dialect) -> None:
    """The upstream's own message stays."""
    broken = b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
    _, data = await bridged(dialect, ChatUpstream([chunk({"content": "Once"}), broken]))
    assert b"event: error" in data
    assert b"out of memory" in data
    fold = dialect.fold_stream()
    fold.feed(data)
    assert fold.reply().error


async def test_a_refusal_has_the_envelope_of_the_dialect() -> None:
    """Status, message and code are the upstream's."""
    body = b'{"error": {"message": "slow down", "type": "rate_limit", "param": null, "code": "rate_limit_exceeded"}}'
    for stream in (True, False):
        reply, data = await bridged(MESSAGES, ChatUpstream([body], b"application/json", 429), stream=stream)
        assert reply.status == 429
        error = {"type": "rate_limit_error", "message": "slow down", "code": "rate_limit_exceeded"}
        assert json.loads(data) == {"type": "error", "error": error}
        reply, data = await bridged(RESPONSES, ChatUpstream([body], b"application/json", 429), stream=stream)
        assert (reply.status, data) == (429, body)


async def test_custom_tools_and_namespaces_come_back_as_what_they_are() -> None:
    """Chat completions has functions only: one with a single argument stands for a custom tool."""
    pieces = [
        chunk(call(0, '{"input": "*** Begin', "c1", "patch")),
        chunk(call(0, ' Patch"}')),
        chunk(call(1, '{"path": "a"}', "c2", "open_file")),
        chunk({}, "tool_calls"),
        END,
    ]
    upstream = ChatUpstream(pieces)
    _, data = await bridged(RESPONSES, upstream)
    output = events_of(RESPONSES, data)[-1]["response"]["output"]
    assert [(item["type"], item["name"]) for item in output] == [
        ("custom_tool_call", "patch"),
        ("function_call", "open_file"),
    ]
    assert output[0]["input"] == "*** Begin Patch"
    assert output[1]["namespace"] == "files"
    assert [tool["function"]["name"] for tool in upstream.asked[0]["tools"]] == ["look", "patch", "open_file"]


async def test_a_refusal_of_the_model_is_a_refusal() -> None:
    """It is a part of its own in Responses."""
    pieces = [chunk({"refusal": "I can"}), chunk({"refusal": "not."}, "stop"), END]
    _, data = await bridged(RESPONSES, ChatUpstream(pieces))
    part = events_of(RESPONSES, data)[-1]["response"]["output"][0]["content"][0]
    assert part == {"type": "refusal", "refusal": "I cannot."}
