"""OpenAI's error envelope, as a body and as an event. Dialects of OpenAI and Tidemark's own endpoints answer with it.

Source: OpenAI API reference, "Error codes".
"""

from __future__ import annotations

import json
from http import HTTPStatus

from tidemark.core import errors
from tidemark.dialects.raw_json import read_json


class OpenAIErrors:
    """Writes ``{"error": {"message", "type", "param", "code"}}``."""

    messages_member = "messages"
    """The member that an error names when a request is too long."""

    def error(self, error: errors.TidemarkError) -> bytes:
        param = error.param if isinstance(error, errors.InvalidRequest) else None
        if isinstance(error, errors.ContextLengthExceeded):
            param = error.param or self.messages_member
        elif isinstance(error, errors.ModelNotFound | errors.ModelNotAllowed):
            param = "model"
        body = {"message": str(error), "type": _type_of(error), "param": param, "code": error.code}
        return json.dumps({"error": body}, ensure_ascii=False).encode()

    def error_event(self, error: errors.TidemarkError, previous: bytes = b"") -> bytes:
        """Write an error as an event of a stream that has begun; its events have no numbers."""
        del previous
        return event(self.error(error))

    def late_reply_event(self, status: int, body: bytes) -> bytes:
        """Write an upstream's whole reply as an event; a page of HTML becomes an error in our words."""
        reply = read_json(body)
        if isinstance(reply, dict) and (status < HTTPStatus.BAD_REQUEST or reply.get("error")):
            return event(body)
        return self.error_event(errors.UpstreamError(f"The upstream answered with status {status}."))


OPENAI_ERRORS = OpenAIErrors()
"""For endpoints that belong to no dialect."""


def event(body: bytes) -> bytes:
    """Write a body as one event of a stream.

    The event opens with an empty line of its own, so that it stands apart from an event that was cut short.
    """
    return b"\n\ndata: " + b"".join(body.splitlines()) + b"\n\n"


def _type_of(error: errors.TidemarkError) -> str:
    if isinstance(error, errors.RateLimitExceeded):
        return error.kind
    if isinstance(error, errors.ClientError):
        return "invalid_request_error"
    return "upstream_error" if isinstance(error, errors.UpstreamError) else "server_error"
