"""Errors on the wire: OpenAI's envelope, and the one place where our errors get a status."""

from __future__ import annotations

import json
import math
from http import HTTPStatus

from proxy.core import errors

STATUS: dict[type[errors.TidemarkError], HTTPStatus] = {
    errors.InvalidRequest: HTTPStatus.BAD_REQUEST,
    errors.ContextLengthExceeded: HTTPStatus.BAD_REQUEST,
    errors.ClientError: HTTPStatus.BAD_REQUEST,
    errors.NotAuthenticated: HTTPStatus.UNAUTHORIZED,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    errors.ModelNotFound: HTTPStatus.NOT_FOUND,
    errors.ConversationNotFound: HTTPStatus.NOT_FOUND,
    errors.ConversationConflict: HTTPStatus.CONFLICT,
    errors.BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.CompactionFailed: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.TokenizerFailed: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.UpstreamTimedOut: HTTPStatus.GATEWAY_TIMEOUT,
    errors.UpstreamError: HTTPStatus.BAD_GATEWAY,
    errors.TidemarkError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""Looked up along the class's own order of ancestors, so a new leaf needs no line here."""


def status_of(error: errors.TidemarkError) -> int:
    """The HTTP status of an error."""
    return int(next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS))


def error_lines(error: errors.TidemarkError) -> list[tuple[bytes, bytes]]:
    """The header lines that an error's own response has beside its type."""
    lines = []
    if error.retry_after:
        lines.append((b"retry-after", b"%d" % math.ceil(error.retry_after)))
    if isinstance(error, errors.NotAuthenticated):
        lines.append((b"www-authenticate", b"Bearer"))  # RFC 9110, section 15.5.2: a 401 names the scheme
    return lines


def envelope(error: errors.TidemarkError) -> bytes:
    """``{"error": {"message", "type", "param", "code"}}``: the OpenAI reference, "Error codes"."""
    param = error.param if isinstance(error, errors.InvalidRequest) else None
    if isinstance(error, errors.ContextLengthExceeded):
        param = "messages"
    elif isinstance(error, errors.ModelNotFound):
        param = "model"
    body = {"message": str(error), "type": _type_of(error), "param": param, "code": error.code}
    return json.dumps({"error": body}, ensure_ascii=False).encode()


def event(body: bytes) -> bytes:
    """A body that can come after the first byte only: one event of the stream.

    It opens with an empty line of its own, so that it stands apart from an event that was cut short.
    """
    return b"\n\ndata: " + b"".join(body.splitlines()) + b"\n\n"


def belated(status: int, body: bytes) -> bytes:
    """An upstream's whole answer as an event, for a response that has begun; a page of HTML says so in our words."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, dict) and (status < HTTPStatus.BAD_REQUEST or told.get("error")):
        return event(body)
    return event(envelope(errors.UpstreamError(f"The upstream answered with status {status}.")))


def _type_of(error: errors.TidemarkError) -> str:
    if isinstance(error, errors.ClientError):
        return "invalid_request_error"
    return "upstream_error" if isinstance(error, errors.UpstreamError) else "server_error"
