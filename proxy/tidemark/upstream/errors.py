"""Makes the errors that both lanes raise about an upstream, each with its text for the client.

``internal`` of each error is for the log only.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.errors import UpstreamBroken, UpstreamError, UpstreamStalled, UpstreamTimedOut, UpstreamUnreachable
from tidemark.core.ports import Route, shown_url
from tidemark.upstream.answers import MAX_MESSAGE_CHARACTERS, error_fields
from tidemark.upstream.reaching import Cause, ReachFailure

TIMEOUT_REMEDY = "raise litellm_params.timeout of the model"
"""How to give an upstream more time to begin its answer."""
ANY_MODEL = "*"
"""The model's name in the route of requests that name none."""
_BASE = "api_base of the model or TIDEMARK_UPSTREAM"
_WORDS: Mapping[Cause, tuple[str, str]] = {
    "refused": ("nothing listens at {url}", f"start the server there, or correct {_BASE}"),
    "unknown_host": ("{url}: no address is known of the host {host!r}", f"correct the name in {_BASE}, or look at DNS"),
    "no_tls": ("the server at {url} does not speak TLS", f"write http:// in {_BASE}"),
    "tls_only": ("the server at {url} speaks TLS only", f"write https:// in {_BASE}"),
    "untrusted": (
        "the certificate of {url} is not trusted ({detail})",
        "name the file of its authority by SSL_CERT_FILE, or give the server a certificate for this name and day",
    ),
    "tls_failed": ("the TLS handshake with {url} failed ({detail})", f"look at the server's TLS, or correct {_BASE}"),
    "control_character": (
        "the request to {url} cannot be written: its key or another header has a line break or control character",
        "remove it from api_key or extra_headers of the model",
    ),
    "no_url": (
        "{url} is no address that can be asked, or has a password although the request has a key",
        f"correct {_BASE}",
    ),
    "silent": ("{url} gave no connection in time", f"look whether a firewall stands between, and at {_BASE}"),
    "closed": ("{url} closed the connection before it answered", "look at the server's log"),
    "other": ("{url} gave no connection ({detail})", f"look whether the server runs, and at {_BASE}"),
}
"""For each cause what is wrong, and what to do about it."""
_OF_PROXIES: Mapping[Cause, str] = {
    "refused": "refuses connections",
    "unknown_host": "is unknown by name",
    "silent": "does not answer",
}
"""What a proxy does that fails."""


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

    :param remedy: how to give it more time, if that can be configured
    """
    alternative = f", or {remedy}" if remedy else ""
    return UpstreamTimedOut(
        f"The upstream of {route.name!r} did not answer within {seconds:g} seconds; send the request again"
        f"{alternative}.",
        internal=repr(route),
    )


def unreachable(route: Route, error: BaseException, failure: ReachFailure) -> UpstreamUnreachable:
    """Return the error for an upstream that no connection can be made to."""
    fault, mend = words_of(failure)
    whose = "The upstream" if route.name == ANY_MODEL else f"The upstream of {route.name!r}"
    return UpstreamUnreachable(
        f"{whose} cannot be reached: {fault}; {mend}.",
        internal=f"{route!r}: {failure.cause}: {error!r}",
        mend=mend,
    )


def words_of(failure: ReachFailure) -> tuple[str, str]:
    """Return what is wrong if an upstream cannot be reached, and what to do about it."""
    url = failure.url or "an empty URL"
    if failure.fails_at_proxy and failure.proxy is not None:
        way = f"{url} is asked through the proxy {shown_url(failure.proxy.url)}"
        fault = f"{way}, which {_OF_PROXIES.get(failure.cause, 'gave no connection')}"
        return fault, f"correct {failure.proxy.variable} of the environment, or name {failure.host} in NO_PROXY"
    fault, mend = _WORDS[failure.cause]
    return fault.format(url=url, host=failure.host, detail=failure.detail.rstrip(".")), mend


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
