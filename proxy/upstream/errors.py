"""Makes the errors that both lanes raise about an upstream, each with its text for the client.

``internal`` of each error is for the log only.
"""

from __future__ import annotations

from proxy.core.errors import UpstreamBroken, UpstreamError, UpstreamStalled, UpstreamTimedOut, UpstreamUnreachable
from proxy.core.ports import Route
from proxy.upstream.answers import MAX_MESSAGE_CHARACTERS, error_fields

TIMEOUT_REMEDY = "raise litellm_params.timeout of the model"
"""How to give an upstream more time to begin its answer."""


def refused(route: Route, status: int, body: bytes) -> UpstreamError:
    """Return the error for an answer of another status than 200, with the provider's own message."""
    message = error_fields(body.decode("utf-8", "replace")).get("message")
    detail = f": {message}" if isinstance(message, str) else "."
    return UpstreamError(
        f"The upstream of {route.name!r} answered with status {status}{detail}"[:MAX_MESSAGE_CHARACTERS],
        internal=f"{route!r}: {body[:MAX_MESSAGE_CHARACTERS]!r}",
    )


def timed_out(route: Route, seconds: float, remedy: str = "") -> UpstreamTimedOut:
    """Return the error for an upstream that did not begin its answer in time.

    :param remedy: how to give it more time, where that can be configured
    """
    alternative = f", or {remedy}" if remedy else ""
    return UpstreamTimedOut(
        f"The upstream of {route.name!r} did not answer within {seconds:g} seconds; send the request again"
        f"{alternative}.",
        internal=repr(route),
    )


def unreachable(route: Route, error: BaseException) -> UpstreamUnreachable:
    """Return the error for an upstream that no connection can be made to."""
    return UpstreamUnreachable(
        f"The upstream of {route.name!r} cannot be reached; check that it runs, and api_base of the model "
        "or TIDEMARK_UPSTREAM.",
        internal=f"{route!r}: {error!r}",
    )


def broken(route: Route, error: BaseException | None, detail: str = "") -> UpstreamBroken:
    """Return the error for an answer that ended before its end.

    :param detail: what the provider said about it
    """
    reason = f": {detail}" if detail else ""
    return UpstreamBroken(
        f"The upstream of {route.name!r} stopped in the middle of its answer{reason}; send the request again.",
        internal=f"{route!r}: {error!r}",
    )


def endless(route: Route, what: str, most_bytes: float, key: str) -> UpstreamBroken:
    """Return the error for an upstream whose answer is longer than its bound.

    :param what: what is too long
    :param key: the configuration key of the bound
    """
    return UpstreamBroken(
        f"The upstream of {route.name!r} answered with {what} of more than {most_bytes:,.0f} bytes; check api_base of "
        f"the model or TIDEMARK_UPSTREAM, or raise {key}.",
        internal=repr(route),
    )


def stalled(route: Route) -> UpstreamStalled:
    """Return the error for an upstream that began its answer and then fell silent."""
    return UpstreamStalled(
        f"The upstream of {route.name!r} began its answer and then sent nothing for {route.silence_seconds:g} seconds; "
        "send the request again, or raise litellm_params.stream_timeout of the model.",
        internal=repr(route),
    )
