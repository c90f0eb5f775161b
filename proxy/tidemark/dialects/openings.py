"""Reads how an answer opens: some servers refuse a request in an answer of status 200.

LM Studio does so in the only event of a stream, OpenRouter in a body that has an error and nothing else. The Responses
API has events of its own (``responses/state.py``).
"""

from __future__ import annotations

from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.raw_json import decode_or_none
from tidemark.dialects.sse import EVENTS, payload_of

EVENT_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")
ERROR_EVENT = b"event: error"
PRELUDE = frozenset({"message_start", "ping"})
"""Events of the Messages API that say only that an answer was asked for."""


def opening_error(data: bytes) -> bytes | None:
    """Return the error of an answer that begins with one, as the body that a request without a stream gets.

    :param data: all that came of the answer, in events or not
    :returns: empty if the reply has begun, None if the bytes do not tell yet
    """
    if (body := data.lstrip()).startswith(b"{"):
        return _whole_error(body)
    for event in EVENTS.findall(data):
        if not event.endswith(EVENT_ENDS):
            return None
        if payload := payload_of(event):
            decoded = decode_or_none(payload)
            members = decoded if isinstance(decoded, dict) else {}
            if members.get("type") in PRELUDE:
                continue
            error = members.get("error") or (members if ERROR_EVENT in event else None)
            return _envelope(error)
    return None


def _whole_error(body: bytes) -> bytes | None:
    """Return the error of a body that is no stream and has no reply beside it."""
    if b'"choices"' in body or b'"content"' in body:
        return b""
    decoded = decode_or_none(body)
    return _envelope(decoded.get("error")) if isinstance(decoded, dict) else None


def _envelope(error: JsonValue) -> bytes:
    return encode_json({"error": error if isinstance(error, dict) else {"message": error}}) if error else b""
