"""Asks for the provider's counts of a stream, and takes them out again for a client that did not ask.

The step ``send`` and the relay call it through the dialect if a model is calibrated. Other replies and streams have
their counts by themselves. Source: OpenAI API reference, "Create chat completion", ``stream_options``: with
``include_usage`` a last chunk has the counts and no choices, and every other chunk has a ``usage`` of null.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.bodies import body_of
from tidemark.dialects.raw_edits import without_member
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.dialects.sse import EVENTS

MEMBER = "stream_options"
FLAG = "include_usage"
_ASKED = b'{"include_usage":true}'
_KEY = b'"usage"'
_SPACE = rb"[ \t]*"
_SCALAR = rb'(?:"[^"\\]*"|null|true|false|-?[0-9][0-9.eE+-]*)'
_NULL_NEAR_END = re.compile(
    rb"," + _SPACE + rb'"usage"' + _SPACE + rb":" + _SPACE + rb"null"
    rb"(?=(?:"
    + _SPACE
    + rb","
    + _SPACE
    + rb'(?!"usage")"[^"\\]*"'
    + _SPACE
    + rb":"
    + _SPACE
    + _SCALAR
    + rb")*+"
    + _SPACE
    + rb"\}"
    + _SPACE
    + rb"(?:\r?\n\r?\n|\r\r|\Z))"
)
"""A ``usage`` of null with nothing but plain members between it and the end of its event. The one brace there closes
the chunk itself, so nothing has to be decoded. An unescaped quote begins no text, so no text can match. None of the
members is another ``usage``, so that each byte is read once: an upstream may repeat it a thousand times."""
_DATA = re.compile(rb"(?m)^data:[ ]?([^\r\n]*)")


class ChatStreamCounts:
    """``StreamCounts`` of chat completions; it has no state."""

    def asking(self, request: ModelRequest) -> ModelRequest | None:
        """Return a request that asks for the counts; None if the client's does, or nobody can tell."""
        fields = dict(request.fields)
        if MEMBER not in fields:
            fields[MEMBER] = _ASKED
            body = request.body.rstrip()[:-1] + b',"stream_options":' + _ASKED + b"}"
            return replace(request, fields=fields, body=body)
        options = decode_value(fields[MEMBER], MEMBER)
        if options is not None and (not isinstance(options, dict) or options.get(FLAG) is True):
            return None
        fields[MEMBER] = body_of(read_members(fields[MEMBER]), {FLAG: b"true"}) if options else _ASKED
        return replace(request, fields=fields, body=body_of(fields, {}))

    def leave_out(self, events: bytes) -> bytes:
        """Return whole events without the counts; other events keep their bytes, and are not decoded."""
        if _KEY not in events:
            return events
        events = _NULL_NEAR_END.sub(b"", events)
        if _KEY not in events:
            return events
        return b"".join([_without_counts(event) for event in EVENTS.findall(events)])

    def is_refused(self, body: bytes) -> bool:
        """Return whether a refusal is about the member that asks, by its name."""
        return MEMBER.encode() in body or FLAG.encode() in body


def _without_counts(event: bytes) -> bytes:
    """Return one event without its counts: nothing if it has no choices."""
    lines = list(_DATA.finditer(event))
    if len(lines) != 1 or _KEY not in event:
        return event
    first, last = lines[0].span(1)
    payload = event[first:last]
    try:
        members = read_members(payload)
    except InvalidRequest:
        return event
    usage = members.get("usage")
    if usage == b"null":
        return event[:first] + without_member(payload.decode(), "usage").encode() + event[last:]
    if usage is None or not usage.startswith(b"{") or decode_value(members.get("choices", b"null"), "choices"):
        return event
    return b""
