"""Reads how a stream opens: some servers refuse a request in the only event of an answer of status 200.

LM Studio does so for every streamed request. The Responses API has events of its own (``responses/state.py``).
"""

from __future__ import annotations

from tidemark.dialects.bodies import encode_json
from tidemark.dialects.raw_json import decode_or_none
from tidemark.dialects.sse import EVENTS, payload_of

EVENT_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")
ERROR_EVENT = b"event: error"
PRELUDE = frozenset({"message_start", "ping"})
"""Events of the Messages API that say only that an answer was asked for."""


def opening_error(data: bytes) -> bytes | None:
    """Return the error of a stream that begins with one, as the body that a request without a stream gets.

    :param data: all that came of the stream
    :returns: empty if the reply has begun, None if the events do not tell yet
    """
    for event in EVENTS.findall(data):
        if not event.endswith(EVENT_ENDS):
            return None
        if payload := payload_of(event):
            decoded = decode_or_none(payload)
            members = decoded if isinstance(decoded, dict) else {}
            if members.get("type") in PRELUDE:
                continue
            error = members.get("error") or (members if ERROR_EVENT in event else None)
            return encode_json({"error": error if isinstance(error, dict) else {"message": error}}) if error else b""
    return None
