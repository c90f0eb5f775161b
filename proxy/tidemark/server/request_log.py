"""Collects what happened to one request, and makes the event that is emitted at its end.

The endpoints of the dialects note each fact here as soon as they know it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import TidemarkError
from tidemark.core.events import Outcome, RequestServed
from tidemark.core.http_headers import USER_AGENT
from tidemark.core.ports import Caller, Headers
from tidemark.core.report import NO_USAGE, Report, Usage
from tidemark.pipeline.values import Ending
from tidemark.server.asgi import CLIENT_GONE, Response
from tidemark.server.headers import report_lines, returned_lines
from tidemark.server.permits import Permit
from tidemark.server.quotas import Permission, tokens_of, without_quotas


class RequestLog:
    """Holds what is known of one request; until something else is noted, the client has disconnected."""

    def __init__(self, path: str, response: Response, timer: Callable[[], float], headers: Headers = ()) -> None:
        self.path = path
        self.headers = headers
        """The request's header lines."""
        self.caller: Caller | None = None
        """Whose request it is, once that is known."""
        self.response = response
        self.request: ModelRequest | None = None
        self.model = ""
        """The model's name, if the request is none that Tidemark understands."""
        self.endpoint = ""
        """The label of the endpoint of such a request."""
        self.permit: Permit | None = None
        """The permit of a large request, which may have ended."""
        self.permission: Permission | None = None
        """What the request counts against; None if nothing bounds its caller."""
        self.is_shed = False
        """Whether the request was refused beyond the limits."""
        self.report: Report | None = None
        self.ending: Ending | None = None
        self.answered_here = False
        """Whether the reply is Tidemark's own: nothing was forwarded, and its counts are no provider's."""
        self.outcome: Outcome = "disconnected"
        self.code: str | None = None
        self.cause: str | None = None
        self.first_byte: float | None = None
        self._asked_at: float | None = None
        self._timer = timer
        self._started = timer()

    def on_planned(self, report: Report) -> None:
        self.report = report
        self._asked_at = self._timer()
        self.end_permit()

    def note_asked(self) -> None:
        """Note that the upstream is asked now."""
        self._asked_at = self._timer()

    def end_permit(self) -> None:
        """End the permit of a large request: what follows is a wait for others."""
        if self.permit is not None:
            self.permit.end()

    def on_summarizing(self, messages: int, tokens: int) -> None:  # noqa: ARG002 - Progress has them
        """End the permit; a client that waits for a whole answer sees no progress."""
        self.end_permit()

    def count_against(self, permission: Permission | None) -> None:
        """Note what the request counts against. Its place is free before the client has the end of its answer."""
        self.permission = permission
        if permission is not None:
            self.response.before_end = self._give_back

    async def _give_back(self) -> None:
        self.end_permission()
        if self.permission is not None:
            await self.permission.given_back()

    def end_permission(self) -> None:
        """End what the request counts against, with the tokens that it took."""
        if self.permission is None:
            return
        if self.permission.counts_tokens and self.ending is not None and not self.answered_here:
            answer = self.ending.reply.message
            tokens = self.report.tokens_after if self.report else 0
            self.permission.tokens = tokens_of(self._usage(), tokens, len(answer.raw) if answer else 0)
        self.permission.end()

    def facts(self) -> list[tuple[bytes, bytes]]:
        """Return the header lines that report what was done to the request (promise 9); none before it is known."""
        lines = report_lines(self.report) if self.report else []
        return lines if self.permission is None else [*lines, *self.permission.lines]

    def returned(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Return the upstream's header lines that reach the client: its own quotas do not, if the caller has others."""
        lines = returned_lines(headers)
        return lines if self.permission is None else without_quotas(lines)

    def _usage(self) -> Usage:
        return self.request.dialect.usage(self.ending.reply.usage) if self.request and self.ending else NO_USAGE

    def note_error(self, error: TidemarkError) -> None:
        """Note an error: its code for log and metrics, its cause for the log."""
        self.code, self.cause = error.code, error.internal or None

    def note_unstored(self) -> None:
        """Note that the turn is not in the store, so the store counts as degraded for this request."""
        if self.report is not None:
            self.report = replace(self.report, degraded=True)

    def note_first_byte(self) -> None:
        self.first_byte = self._timer() - self._started

    def to_event(self) -> RequestServed:
        request, report, usage = self.request, self.report, NO_USAGE
        first_byte, upstream_seconds = self.first_byte, None
        if self.answered_here:
            report = report and replace(report, tokens_before=0, tokens_after=0)
        else:
            if request and self.ending:
                usage = self._usage()
            if first_byte is not None and self._asked_at is not None:
                upstream_seconds = self._started + first_byte - self._asked_at
        caller = self.caller
        return RequestServed(
            self.path,
            self.response.status or CLIENT_GONE,
            self.outcome,
            self._timer() - self._started,
            first_byte,
            request.model if request else self.model,
            request.stream if request else False,
            report,
            usage,
            self.code,
            self.cause,
            self.endpoint,
            caller.trace_id if caller else "",
            owner_of(caller.fingerprint) if caller else "",
            caller.grant.tenant if caller and caller.grant else "",
            _program(self.headers),
            upstream_seconds,
        )


def _program(headers: Headers) -> bytes:
    """Return the program that a client says it is."""
    for name, value in headers:
        if name == USER_AGENT:
            return value
    return b""
