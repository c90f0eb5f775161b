"""Writes what Tidemark answers itself: messages, their events and errors, and replies that an upstream did not stream.

The endpoint calls it through the dialect. Tidemark's own code and the member at fault stand beside the members of an
error in the reference. Source: Anthropic API reference, "Create a Message" (the response), "Errors" and "Streaming
messages".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus

from tidemark.core import errors
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.report import OwnAnswer
from tidemark.dialects.bodies import encode_json, event_of, late_event

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
    errors.RateLimitExceeded: "rate_limit_error",
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


class MessagesErrors:
    """Writes ``{"type": "error", "error": {"type", "message", "code", "param"}}``."""

    def error(self, error: errors.TidemarkError) -> bytes:
        kind = next(KINDS[ancestor] for ancestor in type(error).__mro__ if ancestor in KINDS)
        message, param = str(error), error.param if isinstance(error, errors.InvalidRequest) else None
        if isinstance(error, errors.ContextLengthExceeded):
            message, param = f"{TOO_LONG}: {message}", "messages"
        elif isinstance(error, errors.ModelNotFound):
            param = "model"
        return _body({"type": kind, "message": message, "code": error.code, "param": param})

    def error_event(self, error: errors.TidemarkError, previous: bytes = b"") -> bytes:
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
