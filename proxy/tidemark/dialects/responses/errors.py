"""Writes errors of the Responses API.

They are OpenAI's envelope as a body, and the event ``error`` in a stream that has begun. The endpoint calls it through
the dialect. Source: OpenAI API reference, "Streaming events", ``error``; the fields of the SDK's
``ResponseErrorEvent``.
"""

from __future__ import annotations

import json
import re

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import TidemarkError, UpstreamError
from tidemark.dialects.bodies import encode_json, late_event
from tidemark.dialects.openai_errors import OpenAIErrors
from tidemark.dialects.raw_json import read_json

_NUMBER = re.compile(rb'"sequence_number"[ \t\n\r]*:[ \t\n\r]*(\d{1,15})')


class ResponsesErrors(OpenAIErrors):
    """Writes errors; a request that is too long names ``input``."""

    messages_member = "input"

    def error_event(self, error: TidemarkError, previous: bytes = b"") -> bytes:
        """Write an error as an event of a stream that has begun.

        :param previous: the end of what the stream has sent, for the event's ``sequence_number``
        """
        body = json.loads(self.error(error))["error"]
        return error_event(body, previous)

    def late_reply_event(self, status: int, body: bytes) -> bytes:
        """Write an upstream's whole reply as an event; a page of HTML becomes an error in our words."""
        reply = read_json(body)
        if isinstance(reply, dict) and isinstance(reply.get("error"), dict) and reply.get("object") != "response":
            return error_event(reply["error"])
        if isinstance(reply, dict) and reply.get("object") == "response":
            kind = f"response.{reply.get('status') or 'completed'}"
            return late_event(kind, encode_json({"type": kind, "sequence_number": 0, "response": reply}))
        return self.error_event(UpstreamError(f"The upstream answered with status {status}."))


def error_event(error: dict[str, JsonValue], previous: bytes = b"") -> bytes:
    """Write the members of an error envelope as an event."""
    members = {name: error.get(name) for name in ("code", "message", "param")}
    body = {"type": "error", **members, "sequence_number": next_number(previous)}
    return late_event("error", encode_json(body))


def next_number(previous: bytes) -> int:
    """Return the number after the last ``sequence_number``; 0 where the stream has none."""
    numbers = _NUMBER.findall(previous)
    return int(numbers[-1]) + 1 if numbers else 0
