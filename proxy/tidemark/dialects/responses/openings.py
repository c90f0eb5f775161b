"""Reads how a stream of the Responses API opens: whether a reply begins, or the request is refused.

``pipeline/stream_openings.py`` asks. OpenAI sends ``response.created`` and ``response.in_progress`` before it finds
that the input is too long, and then an event ``error`` and ``response.failed``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.responses.reply import ResponseObject, StreamEvent, read_struct

_PRELUDE = frozenset({"response.created", "response.queued", "response.in_progress"})
_EVENT_END = re.compile(rb"\r?\n\r?\n|\r\r")
_LINE_END = re.compile(rb"\r?\n|\r")


def opening_error(data: bytes) -> bytes | None:
    """Return the error's envelope where a stream begins with one.

    :param data: all that came of the stream
    :returns: empty where the reply has begun, None where the events do not tell yet
    """
    for event in _EVENT_END.split(data)[:-1]:
        payload = b"\n".join([line[5:].strip() for line in _LINE_END.split(event) if line.startswith(b"data:")])
        read = read_struct(payload, StreamEvent) if payload else None
        if read is None or read.type in _PRELUDE:
            continue
        error = _error_of(read)
        return encode_json({"error": error}) if error else b""
    return None


def _error_of(event: StreamEvent) -> Mapping[str, JsonValue]:
    """Return the members of an error event or of a failed response; none for any other event."""
    error: JsonValue = None
    if event.type == "response.failed":
        failed = read_struct(bytes(event.response), ResponseObject)
        error = failed.error if failed is not None else None
    elif event.type == "error" or event.error:
        error = event.error or {"message": event.message, "code": event.code, "param": event.param}
    return {"type": "invalid_request_error", "param": None, **error} if isinstance(error, dict) else {}
