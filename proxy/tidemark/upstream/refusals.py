"""Turns litellm's exceptions back into the provider's own refusals, in OpenAI's error envelope.

The translate lane calls it when there is no answer. litellm gives 529 the status 500 and a full context the code "400",
and puts the provider's JSON into a sentence. Status, code, message and type are read from the exceptions beneath.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tidemark.core.errors import UpstreamError, UpstreamTimedOut
from tidemark.core.frozen import frozen
from tidemark.core.ports import Headers, Route
from tidemark.upstream.answers import MAX_MESSAGE_CHARACTERS, error_envelope, error_fields
from tidemark.upstream.errors import unreachable
from tidemark.upstream.headers import returned_headers
from tidemark.upstream.overflow import parse_overflow
from tidemark.upstream.reaching import failure_of

CONTEXT_ERROR = "ContextWindowExceededError"
"""litellm's class, by name, because this file does not import litellm."""
MAX_CAUSES = 10
"""Exceptions of a chain that are looked at; litellm's own chains have four."""
CODES: Mapping[int, str] = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
"""OpenAI's codes, for providers that send none; source: "Error codes" guide."""
KINDS: Mapping[int, str] = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
TIMEOUTS = frozenset({"Timeout", "APITimeoutError", "TimeoutException"})
"""Timeout classes of litellm, the OpenAI SDK and httpx, by name."""
SERVER_ERROR = 500
_WRAPPING = re.compile(r"^(?:litellm\.\w+: |\w+Error: |\w+(?:Exception|Error) - )+")
"""What litellm writes before a message: "litellm.InternalServerError: AnthropicError - Overloaded"."""


@frozen
class Refusal:
    """The answer that a client gets instead of a completion."""

    status: int
    headers: Headers
    body: bytes


def refusal_of(error: Exception, route: Route) -> Refusal:
    """Return the provider's refusal behind an exception of litellm.

    :raises UpstreamUnreachable, UpstreamTimedOut, UpstreamError: the provider did not answer
    """
    chain = list(_chain(error))
    names = {base.__name__ for link in chain for base in type(link).__mro__}
    answer = next((link for link in chain[1:] if _holds_answer(link)), None)
    status = _status(answer) or _status(error)
    if answer is None:
        if names & TIMEOUTS:
            raise UpstreamTimedOut(
                f"The upstream of {route.name!r} did not answer in time.", internal=repr(error)
            ) from error
        if names & {"TransportError", "ClientConnectorError"}:
            failure = failure_of(error, route.base_url)
            raise unreachable(route, error, replace(failure, url=failure.url or route.provider)) from error
        if status is None or type(error).__name__ == "APIConnectionError":  # litellm's class for its own failures
            raise UpstreamError(
                f"litellm could not send the request for {route.name!r}: {provider_message(error)}",
                internal=repr(error),
            ) from error
    fields = next((fields for link in chain if (fields := _error_object(link))), {})
    message, kind = provider_message(error), fields.get("type") or fields.get("status")
    code = fields.get("code") if isinstance(fields.get("code"), str) else CODES.get(status or SERVER_ERROR)
    if fields.get("code", "") is None:  # an error in OpenAI's format without a code
        code = None
    param = fields.get("param")
    body = error_envelope(
        message,
        kind=kind if isinstance(kind, str) and kind != "error" else _kind(status or SERVER_ERROR),
        code=code if isinstance(code, str) else None,
        param=param if isinstance(param, str) else None,
    )
    if CONTEXT_ERROR in names or parse_overflow(status or SERVER_ERROR, body) is not None:
        body = error_envelope(message, kind="invalid_request_error", code="context_length_exceeded", param="messages")
    return Refusal(status or SERVER_ERROR, _headers(chain), body)


def is_timeout(error: BaseException) -> bool:
    """Tell whether an exception of litellm reports a timeout."""
    return any(base.__name__ in TIMEOUTS for link in _chain(error) for base in type(link).__mro__)


def provider_message(error: BaseException) -> str:
    """Return the provider's own message, without what litellm puts around it."""
    for link in _chain(error):
        message = _error_object(link).get("message")
        if isinstance(message, str) and message:
            return message[:MAX_MESSAGE_CHARACTERS]
    text = _text(error).partition("Traceback (most recent call last)")[0].strip()
    return _WRAPPING.sub("", text)[:MAX_MESSAGE_CHARACTERS]


def _kind(status: int) -> str:
    return KINDS.get(status, "invalid_request_error" if status < SERVER_ERROR else "server_error")


def _error_object(link: BaseException) -> Mapping[str, Any]:
    """Return the provider's error object, from the openai SDK's attribute or from the exception's text."""
    body = getattr(link, "body", None)
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return body
    return error_fields(_text(link))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(MAX_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _holds_answer(link: BaseException) -> bool:
    """Tell whether an exception holds an answer of the provider: litellm's, openai's or httpx's own."""
    return _status(link) is not None and bool(_raw_headers(link))


def _status(link: BaseException | None) -> int | None:
    status = getattr(link, "status_code", None)
    if not isinstance(status, int) or status < 400:
        return None
    return status if status < 600 else SERVER_ERROR  # higher numbers are no statuses (RFC 9110, section 15)


def _text(link: BaseException) -> str:
    message = getattr(link, "message", None)
    if isinstance(message, bytes):
        return message.decode("utf-8", "replace")
    return message if isinstance(message, str) and message else str(link)


def _raw_headers(link: BaseException) -> Mapping[str, Any]:
    for owner in (link, getattr(link, "response", None)):
        headers = getattr(owner, "headers", None) or getattr(owner, "litellm_response_headers", None)
        if headers:
            return {str(name): value for name, value in headers.items()}
    return {}


def _headers(chain: list[BaseException]) -> Headers:
    return next((returned_headers(headers) for link in chain if (headers := _raw_headers(link))), ())
