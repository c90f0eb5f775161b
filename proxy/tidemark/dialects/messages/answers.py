"""Writes whole messages and their events: answers of Tidemark's own, and replies that an upstream did not stream.

The endpoint calls it through the dialect. Source: Anthropic API reference, "Create a Message" (the response) and
"Streaming messages".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.report import OwnAnswer
from tidemark.dialects.bodies import encode_json, event_of

NO_TOKENS: Mapping[str, JsonValue] = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
}
"""The usage of an answer that no model gave, so nothing is billed."""
ID_PREFIX = "msg_tidemark_"
"""Begins the id of each message of Tidemark's own."""
_STREAMED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "text": (("text_delta", "text"),),
    "thinking": (("thinking_delta", "thinking"), ("signature_delta", "signature")),
}
"""The deltas of each type of block, with the member that each fills. All other blocks come whole at their start."""


def own_message_body(request: ModelRequest, answer: OwnAnswer) -> bytes:
    """Write the answer as one object."""
    return encode_json(_own_message(request, answer))


def own_message_events(request: ModelRequest, answer: OwnAnswer) -> bytes:
    """Write the answer as a whole event stream."""
    return events_of(_own_message(request, answer))


def events_of(message: Mapping[str, JsonValue]) -> bytes:
    """Write a whole message as the events of a stream."""
    return b"".join([_event(data) for data in _events(message)])


def _events(message: Mapping[str, JsonValue]) -> Iterator[Mapping[str, JsonValue]]:
    usage = message.get("usage") or NO_TOKENS
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": start}
    content = message.get("content")
    for index, block in enumerate(content if isinstance(content, list) else ()):
        yield from _block_events(index, block if isinstance(block, dict) else {})
    ended = {name: message.get(name) for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_delta", "delta": ended, "usage": usage}
    yield {"type": "message_stop"}


def _block_events(index: int, block: Mapping[str, JsonValue]) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the start, the deltas and the stop of one block."""
    kind = str(block.get("type"))
    deltas = [(name, member, str(block.get(member) or "")) for name, member in _STREAMED.get(kind, ())]
    empty: dict[str, JsonValue] = {member: "" for _, member, _ in deltas}
    if isinstance(block.get("input"), dict):
        empty["input"] = {}
        deltas.append(("input_json_delta", "partial_json", encode_json(block["input"]).decode()))
    yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
    for name, member, text in deltas:
        if text:
            yield {"type": "content_block_delta", "index": index, "delta": {"type": name, member: text}}
    yield {"type": "content_block_stop", "index": index}


def _own_message(request: ModelRequest, answer: OwnAnswer) -> Mapping[str, JsonValue]:
    return {
        "id": ID_PREFIX + answer.id,
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [{"type": "text", "text": answer.text, "citations": None}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": NO_TOKENS,
    }


def _event(data: Mapping[str, JsonValue]) -> bytes:
    return event_of(str(data["type"]), encode_json(data))
