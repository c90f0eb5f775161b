"""Writes a stored response as the stream of events that its client could have seen: ``GET ...?stream=true``.

The endpoints of stored responses call it (``endpoints.py``). Only the finished response is stored, so each
text comes as one delta. Source: OpenAI API reference, "Streaming events"; types of the official SDK.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.responses import OUTPUT
from tidemark.features.responses.response_json import response_object

AT_END = ("usage", "incomplete_details", "completed_at")
"""Members of a response that are null until it ends."""
_ARGUMENTS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "mcp_call": ("response.mcp_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}
"""The name of the events, and the member that they bring, by the type of the item."""
_TEXTS = {
    "output_text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
    "reasoning_text": ("response.reasoning_text", "text"),
}
"""The same by the type of a content part."""
Event = tuple[str, Mapping[str, JsonValue]]


def response_stream(members: Mapping[str, bytes], after: int | None = None) -> bytes:
    """Write a finished response as its events, numbered from 0.

    The stream that the client saw may have had more deltas, and so larger numbers. Therefore the last event, which has
    the whole response, comes after whatever number the client names.

    :param members: the raw members of the response object
    :param after: the number of the last event that the client has; None for all events
    """
    opening_members = {**members, **{name: b"null" for name in AT_END if name in members}}
    opening_members.update({"status": b'"in_progress"', OUTPUT: b"[]"})
    opening = [_response_event(kind, opening_members) for kind in ("response.created", "response.in_progress")]
    middle = [
        (kind, _encoded({"type": kind, **event}))
        for place, item in enumerate(json.loads(members[OUTPUT]))
        for kind, event in _item_events(place, item)
    ]
    status = json.loads(members.get("status", b"null"))
    final = "response.incomplete" if status == "incomplete" else "response.completed"
    first = 0 if after is None else after + 1
    events = list(enumerate([*opening, *middle]))
    last = max(len(events), first)
    return b"".join(
        _framed(number, *event) for number, event in [*events[first:], (last, _response_event(final, members))]
    )


def _response_event(kind: str, members: Mapping[str, bytes]) -> tuple[str, bytes]:
    return kind, _encoded({"type": kind})[:-1] + b',"response":' + response_object(members) + b"}"


def _framed(number: int, kind: str, body: bytes) -> bytes:
    """Write an event as lines, with its number as the last member."""
    data = body[:-1] + b',"sequence_number":' + str(number).encode() + b"}"
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _item_events(place: int, item: dict[str, Any]) -> Iterator[Event]:
    """Yield the events of one item, from the empty one to the whole one."""
    kind = item.get("type")
    where: dict[str, JsonValue] = {"item_id": item.get("id") or "", "output_index": place}
    empty = {**item, "status": "in_progress"} if "status" in item else dict(item)
    empty.update({listed: [] for listed in ("content", "summary") if isinstance(item.get(listed), list)})
    name, member = _ARGUMENTS.get(str(kind), ("", ""))
    text = item.get(member) if member else None
    if isinstance(text, str):
        empty[member] = ""
    yield "response.output_item.added", {"output_index": place, "item": empty}
    for index, part in enumerate(_parts(item, "summary")):
        yield from _summary_events({**where, "summary_index": index}, part)
    for index, part in enumerate(_parts(item, "content")):
        yield from _part_events({**where, "content_index": index}, part)
    if isinstance(text, str):
        yield f"{name}.delta", {**where, "delta": text}
        more = {"name": item.get("name") or ""} if kind == "function_call" else {}
        yield f"{name}.done", {**where, member: text, **more}
    yield "response.output_item.done", {"output_index": place, "item": item}


def _parts(item: dict[str, Any], member: str) -> list[dict[str, Any]]:
    parts = item.get(member)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _summary_events(where: Mapping[str, JsonValue], part: dict[str, Any]) -> Iterator[Event]:
    """Yield the events of one part of the summary of reasoning."""
    text = part.get("text") or ""
    yield "response.reasoning_summary_part.added", {**where, "part": {**part, "text": ""}}
    yield "response.reasoning_summary_text.delta", {**where, "delta": text}
    yield "response.reasoning_summary_text.done", {**where, "text": text}
    yield "response.reasoning_summary_part.done", {**where, "part": part}


def _part_events(where: Mapping[str, JsonValue], part: dict[str, Any]) -> Iterator[Event]:
    """Yield the events of one part of a content; a part without a text has no deltas."""
    name, member = _TEXTS.get(str(part.get("type")), ("", ""))
    text = part.get(member) if member else None
    if not isinstance(text, str):
        yield "response.content_part.added", {**where, "part": part}
        yield "response.content_part.done", {**where, "part": part}
        return
    more: dict[str, JsonValue] = {"logprobs": part.get("logprobs") or []} if part["type"] == "output_text" else {}
    empty = {**part, member: ""}
    empty.update({listed: [] for listed in ("annotations", "logprobs") if isinstance(part.get(listed), list)})
    yield "response.content_part.added", {**where, "part": empty}
    yield f"{name}.delta", {**where, "delta": text, **more}
    for index, annotation in enumerate(part.get("annotations") or ()):
        yield f"{name}.annotation.added", {**where, "annotation_index": index, "annotation": annotation}
    yield f"{name}.done", {**where, member: text, **more}
    yield "response.content_part.done", {**where, "part": part}


def _encoded(value: Mapping[str, JsonValue]) -> bytes:
    """Write compact JSON; an unpaired surrogate becomes an escape."""
    return json.dumps(value, separators=(",", ":")).encode()
