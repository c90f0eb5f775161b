"""One request at the server: what is known of it so far, and the fact that is emitted at its end.

Beside the endpoints of the dialects, which note here what became of a request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proxy.core.conversation.messages import JsonValue, ModelRequest
from proxy.core.errors import TidemarkError
from proxy.core.events import Outcome, RequestServed
from proxy.core.report import NO_USAGE, Report, Usage
from proxy.pipeline.relay import Ending
from proxy.server.asgi import Response
from proxy.server.headers import report_lines

MAX_COUNT = 2**53
"""Of tokens, as an upstream tells them: whole numbers beyond it are not summed exactly, if at all."""


class RequestLog:
    """What is known of one request so far; the fact of its end is made from it."""

    def __init__(self, path: str, response: Response, timer: Callable[[], float]) -> None:
        self.path = path
        self.response = response
        self.request: ModelRequest | None = None
        self.report: Report | None = None
        self.ending: Ending | None = None
        self.outcome: Outcome = "disconnected"
        self.code: str | None = None
        self.cause: str | None = None
        self.first_byte: float | None = None
        self._timer = timer
        self._started = timer()

    def prepared(self, report: Report) -> None:
        """It is known what was done to the request."""
        self.report = report

    def facts(self) -> list[tuple[bytes, bytes]]:
        """The header lines that say what was done to the request (promise 9), as far as it is known."""
        return report_lines(self.report) if self.report else []

    def failed(self, error: TidemarkError) -> None:
        """Remember what went wrong: its code for everybody, its cause for the log."""
        self.code, self.cause = error.code, error.internal or None

    def unstored(self) -> None:
        """The turn is not in the store, whatever was known of the store before."""
        if self.report is not None:
            self.report = replace(self.report, degraded=True)

    def arrived(self) -> None:
        """The first byte is on its way to the client."""
        self.first_byte = self._timer() - self._started

    def served(self) -> RequestServed:
        """The fact that the listeners get."""
        request = self.request
        return RequestServed(
            self.path,
            self.response.status or 499,  # nginx's number for a client that left before the status
            self.outcome,
            self._timer() - self._started,
            self.first_byte,
            request.model if request else "",
            request.stream if request else False,
            self.report,
            _usage(self.ending) if self.ending else NO_USAGE,
            self.code,
            self.cause,
        )


def _usage(ending: Ending) -> Usage:
    """The upstream's own counts of prompt, cached prompt and completion, for monitoring (FR-1.1.5)."""
    usage = ending.reply.usage
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(_count(usage.get("prompt_tokens")), cached, _count(usage.get("completion_tokens")))


def _count(value: JsonValue) -> int | None:
    """A number of tokens, if it can be one: an upstream may send anything in its place."""
    return value if type(value) is int and abs(value) <= MAX_COUNT else None
