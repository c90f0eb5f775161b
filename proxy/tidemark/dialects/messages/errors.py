"""Writes errors in Anthropic's envelope, as a body and as an event.

The endpoint calls it through the dialect. Tidemark's own code and the member at fault stand beside the members of the
reference. Source: Anthropic API reference, "Errors" and "Streaming messages", "Error events".
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from tidemark.core import errors
from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects.bodies import encode_json, late_event

TOO_LONG = "prompt is too long"
"""Anthropic's words for an overflow. Claude Code looks for them and compacts its own history then."""
KINDS: Mapping[type[errors.TidemarkError], str] = {
    errors.ClientError: "invalid_request_error",
    errors.NotAuthenticated: "authentication_error",
    errors.Forbidden: "permission_error",
    errors.ModelNotFound: "not_found_error",
    errors.NoUpstream: "not_found_error",
    errors.ConversationNotFound: "not_found_error",
    errors.BodyTooLarge: "request_too_large",
    errors.ImportLimit: "rate_limit_error",
    errors.ServerBusy: "overloaded_error",
    errors.UpstreamTimedOut: "timeout_error",
    errors.UpstreamStalled: "timeout_error",
    errors.TidemarkError: "api_error",
}
"""The type of each error class; the nearest ancestor counts."""
KINDS_BY_STATUS: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.PAYMENT_REQUIRED: "billing_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
    529: "overloaded_error",
}


class MessagesErrors:
    """Writes ``{"type": "error", "error": {"type", "message", "code", "param"}}``."""

    def error(self, error: errors.TidemarkError) -> bytes:
        """Write an error as a body."""
        kind = next(KINDS[ancestor] for ancestor in type(error).__mro__ if ancestor in KINDS)
        message, param = str(error), error.param if isinstance(error, errors.InvalidRequest) else None
        if isinstance(error, errors.ContextLengthExceeded):
            message, param = f"{TOO_LONG}: {message}", "messages"
        elif isinstance(error, errors.ModelNotFound):
            param = "model"
        return _body({"type": kind, "message": message, "code": error.code, "param": param})

    def error_event(self, error: errors.TidemarkError, previous: bytes = b"") -> bytes:
        """Write an error as an event of a stream that has begun."""
        del previous
        return late_event("error", self.error(error))

    def upstream_error_event(self, status: int, reply: JsonValue) -> bytes:
        """Write an upstream's error of any dialect as an event; a page of HTML becomes an error in our words."""
        if isinstance(reply, dict) and reply.get("type") == "error":
            return late_event("error", encode_json(reply))
        error = reply.get("error") if isinstance(reply, dict) else None
        if not error:
            return self.error_event(errors.UpstreamError(f"The upstream answered with status {status}."))
        fallback = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
        members = error if isinstance(error, dict) else {"message": str(error)}
        return late_event("error", _body({**members, "type": KINDS_BY_STATUS.get(status, fallback)}))


def _body(error: Mapping[str, JsonValue]) -> bytes:
    return encode_json({"type": "error", "error": error})
