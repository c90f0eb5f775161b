"""Messages, blocks and events of the Messages API for tests, checked against the types of Anthropic's SDK."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from anthropic.types import MessageParam, RawMessageStreamEvent
from pydantic import TypeAdapter

Json = Mapping[str, Any]
PARAMS: TypeAdapter[list[MessageParam]] = TypeAdapter(list[MessageParam])
EVENTS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
CACHED = {"type": "ephemeral"}


def text(words: str, **members: Any) -> Json:
    """A text block."""
    return {"type": "text", "text": words, **members}


def calls(name: str, call: str, **arguments: Any) -> Json:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def result(call: str, content: Any) -> Json:
    """A block with a tool's result."""
    return {"type": "tool_result", "tool_use_id": call, "content": content}


def image(data: str) -> Json:
    """An image in base64."""
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def thinking(thought: str, signature: str = "c2lnbmVk") -> Json:
    """A thinking block."""
    return {"type": "thinking", "thinking": thought, "signature": signature}


def user(*blocks: Json | str) -> dict[str, Any]:
    """A user message: a string, or blocks."""
    first = blocks[0] if blocks else ""
    return {"role": "user", "content": first if isinstance(first, str) else list(blocks)}


def assistant(*blocks: Json | str) -> dict[str, Any]:
    """An assistant message: a string, or blocks."""
    return {**user(*blocks), "role": "assistant"}


def request_body(messages: Sequence[Any], **members: Any) -> bytes:
    """A request's body; its messages are those that the SDK may send."""
    return json.dumps({"model": "claude-x", "max_tokens": 100, "messages": messages, **members}).encode()


def event(kind: str, **members: Any) -> bytes:
    """One event of a stream."""
    data = {"type": kind, **members}
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def delta(index: int, kind: str, **members: Any) -> bytes:
    """A delta of a block."""
    return event("content_block_delta", index=index, delta={"type": kind, **members})


def events_in(stream: bytes) -> list[dict[str, Any]]:
    """The data of every event."""
    lines = [line[6:] for line in stream.splitlines() if line.startswith(b"data: ")]
    return [json.loads(data) for data in lines]


def whole_reply(*blocks: Json, **members: Any) -> bytes:
    """A reply that is not streamed."""
    usage = {"input_tokens": 11, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 5}
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
        **members,
    }
    return json.dumps(body, indent=1).encode()


def streamed_reply(*blocks: Sequence[bytes], reason: str = "end_turn", stops: bool = True) -> list[bytes]:
    """A stream; each block is its start and its deltas."""
    usage = {"input_tokens": 11, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1}
    head = json.loads(whole_reply(stop_reason=None, usage=usage))
    pieces = [event("message_start", message=head), event("ping")]
    for index, block in enumerate(blocks):
        pieces += [*block, event("content_block_stop", index=index)]
    pieces.append(
        event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 5})
    )
    return [*pieces, event("message_stop")] if stops else pieces


def streamed_text(words: str, index: int = 0) -> list[bytes]:
    """The events of one text block, word by word."""
    pieces = [word if place == 0 else " " + word for place, word in enumerate(words.split(" "))]
    start = event("content_block_start", index=index, content_block={"type": "text", "text": ""})
    return [start, *(delta(index, "text_delta", text=word) for word in pieces)]
