"""``POST /v1/chat/completions``: a request comes in, its exchange goes out, and one fact is told at the end.

The edge of the road of a request. Beside the answering somebody listens for the client's leaving (``http/asgi.py``), so
that a client who goes away cancels everything that was done for it, at any step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.types import Receive, Scope, Send

from proxy.commands import Answered
from proxy.core.errors import ClientError, TidemarkError
from proxy.core.events import Action, Listener, Outcome, RequestServed
from proxy.core.messages import ChatRequest, JsonValue
from proxy.core.ports import Headers
from proxy.exchange import Exchange, Refused, Report
from proxy.history import Road
from proxy.http.asgi import JSON, Attended, ClientGone, Response, read_body
from proxy.http.auth import PassthroughAuth
from proxy.http.body import BodyParser
from proxy.http.completion import completion, event_stream
from proxy.http.errors import belated
from proxy.http.headers import controls, report_lines, returned
from proxy.http.sse import EVENT_STREAM, KeepAlive
from proxy.relay import Ending, Relay

MAX_COUNT = 2**53
"""Of tokens, as an upstream tells them: whole numbers beyond it are not summed exactly, if at all."""

_Reported = tuple[
    str, str, Action | None, int | None, int | None, int | None, int | None, str | None, str | None, str | None
]
_Usage = tuple[int | None, int | None, int | None]
_NOT_REPORTED: _Reported = ("", "", None, None, None, None, None, None, None, None)
_NO_USAGE: _Usage = (None, None, None)


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """What the edge accepts and how patient it is."""

    max_body_bytes: int
    keepalive_seconds: float
    """Between comments on a stream that is still waiting; 0 for none. The first comes later (``http/sse.py``)."""
    notice_seconds: float = 0.0
    """After so long a stream is told that it waits for a summary; 0 for never."""


class ChatEndpoint:
    """An ASGI application of one route."""

    def __init__(
        self,
        *,
        pipeline: Road,
        relay: Relay,
        parser: BodyParser,
        auth: PassthroughAuth,
        limits: EdgeLimits,
        emit: Listener,
        timer: Callable[[], float],
    ) -> None:
        self._pipeline = pipeline
        self._relay = relay
        self._parser = parser
        self._auth = auth
        self._limits = limits
        self._emit = emit
        self._timer = timer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        visit = _Visit(scope["path"], Response(send), self._timer)
        try:
            body = await read_body(receive, scope["headers"], self._limits.max_body_bytes)
        except ClientGone:
            self._emit(visit.served("disconnected"))
            return
        except ClientError as error:
            visit.failed(error)
            await visit.response.error(error)
            self._emit(visit.served("rejected"))
            return
        await self._attended(visit, scope["headers"], body, receive)

    async def _attended(self, visit: _Visit, headers: Headers, body: bytes, receive: Receive) -> None:
        """Answer as long as the client is there."""
        try:
            async with Attended(receive):
                visit.outcome = await self._answered(visit, headers, body)
        finally:
            self._emit(visit.served(visit.outcome))

    async def _answered(self, visit: _Visit, headers: Headers, body: bytes) -> Outcome:
        try:
            return await self._answer(visit, headers, body)
        except TidemarkError as error:
            visit.failed(error)
            await visit.response.error(error, visit.facts())
            return "rejected" if isinstance(error, ClientError) else "error"
        except OSError:
            return "disconnected"
        except Exception:
            # The boundary of the process: whatever went wrong, the client gets OpenAI's envelope; the server logs it.
            visit.outcome, visit.code = "error", TidemarkError.code
            await visit.response.error(TidemarkError("Tidemark failed to serve this request; its log says why."))
            raise

    async def _answer(self, visit: _Visit, headers: Headers, body: bytes) -> Outcome:
        request = visit.request = self._parser.chat(body)
        asked = controls(headers)
        caller = self._auth.caller(headers)
        patience = self._limits.keepalive_seconds if request.stream else 0
        notice = self._limits.notice_seconds
        async with KeepAlive(visit.response, patience, visit.facts, notice=notice) as keepalive:

            def prepared(report: Report) -> None:
                keepalive.compacted()
                visit.prepared(report)

            exchange = await self._pipeline.run(
                request, caller, asked, prepared=prepared, compacting=keepalive.compacting
            )
            visit.prepared(exchange.report)
            if isinstance(exchange, Refused):
                raise exchange.error
            if isinstance(exchange, Answered):
                await keepalive.stop()
                return await self._told(visit, request, exchange)
            if exchange.reply.status < 400 and _is_stream(exchange.reply.headers, asked=request.stream):
                return await self._stream(visit, exchange, keepalive)
            try:
                await keepalive.stop()  # the status is known, and a comment would settle another
            except BaseException:  # the client left over a comment: nobody else has the answer to close it
                await exchange.reply.close()
                raise
            return await self._whole(visit, exchange)

    async def _stream(self, visit: _Visit, exchange: Exchange, keepalive: KeepAlive) -> Outcome:
        """Bring a stream to the client, event by event."""
        reply, response = exchange.reply, visit.response
        # an event of ours may follow, so the upstream's length may not be the body's
        lines = [line for line in returned(reply.headers) if line[0] != b"content-length"]
        keepalive.status, keepalive.lines = reply.status, lines

        async def deliver(chunk: bytes) -> None:
            if visit.first_byte is None:
                await keepalive.stop()
                visit.arrived()
                if response.status is None:
                    await response.start(reply.status, [*lines, *visit.facts()])
            await response.piece(chunk)

        ending = visit.ending = await self._relay.stream(reply, exchange.turn, deliver)
        await keepalive.stop()
        if ending.error is not None:
            visit.failed(ending.error)
            await response.error(ending.error, visit.facts())
            return ending.outcome
        if response.status is None:
            await response.start(reply.status, [*lines, *visit.facts()])
        await response.end()
        return ending.outcome

    async def _whole(self, visit: _Visit, exchange: Exchange) -> Outcome:
        """Bring an answer to the client that is no stream."""
        reply, response = exchange.reply, visit.response
        data, visit.ending = await self._relay.whole(reply, exchange.turn)
        visit.arrived()
        if response.status is None:
            await response.whole(reply.status, [*returned(reply.headers), *visit.facts()], data)
        else:  # comments have gone out already, so the answer can only be an event
            await response.end(belated(reply.status, data))
        return visit.ending.outcome

    @staticmethod
    async def _told(visit: _Visit, request: ChatRequest, answer: Answered) -> Outcome:
        """Bring the client an answer of our own, as it would have got one of the model."""
        response = visit.response
        visit.arrived()
        if not request.stream:
            await response.whole(200, [JSON, *visit.facts()], completion(request, answer))
        else:
            if response.status is None:
                await response.start(200, [*EVENT_STREAM, *visit.facts()])
            await response.end(event_stream(request, answer))
        # nothing went upstream, so nothing of it counts among what did
        visit.report = replace(answer.report, tokens_before=0, tokens_after=0)
        return "complete"


class _Visit:
    """What is known of one request so far; the fact of its end is made from it."""

    def __init__(self, path: str, response: Response, timer: Callable[[], float]) -> None:
        self.path = path
        self.response = response
        self.request: ChatRequest | None = None
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

    def arrived(self) -> None:
        """The first byte is on its way to the client."""
        self.first_byte = self._timer() - self._started

    def served(self, outcome: Outcome) -> RequestServed:
        """The fact that the listeners get. Its fields are in their order: by name it takes three times as long."""
        request, report = self.request, self.report
        return RequestServed(
            self.path,
            self.response.status or 499,  # nginx's number for a client that left before the status
            outcome,
            self._timer() - self._started,
            self.first_byte,
            report.overhead_seconds if report else None,
            request.model if request else "",
            request.stream if request else False,
            *(_reported(report) if report else _NOT_REPORTED),
            self.code,
            self.cause,
            *(_usage(self.ending) if self.ending else _NO_USAGE),
        )


def _reported(report: Report) -> _Reported:
    """What was done to the request: the fields of the fact from ``conversation`` to ``store``."""
    return (
        report.conversation,
        report.tenant,
        report.action,
        report.tokens_before,
        report.tokens_after,
        report.limit,
        report.summarized,
        report.strategy,
        report.warning,
        "degraded" if report.degraded else "ok",
    )


def _usage(ending: Ending) -> _Usage:
    """The upstream's own counts of prompt, cached prompt and completion, for monitoring (FR-1.1.5)."""
    usage = ending.reply.usage
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return _count(usage.get("prompt_tokens")), cached, _count(usage.get("completion_tokens"))


def _count(value: JsonValue) -> int | None:
    """A number of tokens, if it can be one: an upstream may send anything in its place."""
    return value if type(value) is int and abs(value) <= MAX_COUNT else None


def _is_stream(headers: Headers, *, asked: bool) -> bool:
    """Whether an answer is an event stream; where one was asked for, a server may name it oddly or not at all."""
    named = next((value for name, value in headers if name == b"content-type"), b"")
    kind = named.split(b";")[0].strip().lower()
    return kind == b"text/event-stream" or (asked and kind != b"application/json")
