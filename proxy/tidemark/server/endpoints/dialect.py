"""The endpoint of a dialect: a model request comes in, the pipeline runs it, and its reply goes out.

One instance serves one path, such as ``POST /v1/chat/completions``. A watch beside the work notices when the client
disconnects (``server/asgi.py``), and cancels everything that was started for it, at any step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from starlette.types import Receive, Scope, Send

from tidemark.core.bill import SavingOf
from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.core.errors import ClientError, Overloaded, TidemarkError
from tidemark.core.events import Listener, Outcome
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller
from tidemark.core.report import Report
from tidemark.pipeline.plain_replies import codings_of, is_event_stream, plain_where_needed
from tidemark.pipeline.relay import Relay
from tidemark.pipeline.steps import Pipeline
from tidemark.pipeline.values import CommandAnswer, Ending, Exchange, Refused, Repeated, Result
from tidemark.server.access import ConversationAccess
from tidemark.server.allowed_models import check_body, check_query
from tidemark.server.asgi import JSON, CancelOnDisconnect, ClientGone, Response, read_body
from tidemark.server.encodings import decoded_body, is_encoded
from tidemark.server.headers import read_controls, saved_line
from tidemark.server.keepalive import EVENT_STREAM, KeepAlive
from tidemark.server.permits import LARGE_BYTES, Permits
from tidemark.server.quotas import Quotas
from tidemark.server.request_log import RequestLog


@frozen
class EndpointLimits:
    """How large a body may be, and how long a stream may be silent."""

    max_body_bytes: int
    keepalive_seconds: float
    """Between comments on a stream that is still waiting; 0 for none. The first comment comes later
    (``server/keepalive.py``)."""
    notice_seconds: float = 0.0
    """After how long a stream's comments say that it waits for a summary; 0 for never."""


@frozen
class DialectEndpoint:
    """Serves one path in one dialect, as an ASGI application."""

    dialect: Dialect
    pipeline: Pipeline
    relay: Relay
    access: ConversationAccess
    limits: EndpointLimits
    permits: Permits
    emit: Listener
    timer: Callable[[], float]
    saving_of: SavingOf | None = None
    """Says what a turn saved; None if nobody bills turns."""
    quotas: Quotas | None = None
    """None if nothing is bounded."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        log = RequestLog(scope["path"], Response(send, self.dialect), self.timer, scope["headers"])
        try:
            caller = log.caller = self._caller(scope)  # before its body, which anybody could make long
            if self.quotas is not None and self.quotas.bounds(caller):
                log.count_against(await self.quotas.take(caller, scope["path"]))
            body = await read_body(receive, scope["headers"], self.limits.max_body_bytes)
            if is_encoded(scope["headers"]):
                body = await decoded_body(body, scope["headers"], self.limits.max_body_bytes)
            with CancelOnDisconnect(receive):
                log.outcome = await self._answer_or_fail(log, scope, body, caller)
        except ClientGone:
            pass  # a log's outcome is "disconnected" until another one is known
        except TidemarkError as error:
            log.note_error(error)
            await log.response.send_error(error)
            log.outcome = "rejected" if isinstance(error, ClientError) else "error"
        finally:
            log.end_permit()
            log.end_permission()
            if not log.is_shed:
                self.emit(log.to_event())

    def _caller(self, scope: Scope) -> Caller:
        """Return who sends a request, with its query.

        :raises InvalidApiKey, KeysUnread: it has no key that is accepted (``auth.mode: keys``)
        """
        caller, query = self.access.auth.caller(scope["headers"]), scope.get("query_string")  # ASGI may leave it out
        if not query:
            return caller
        check_query(query.decode("latin-1"), caller)
        return replace(caller, query="?" + query.decode("latin-1"))

    async def _answer_or_fail(self, log: RequestLog, scope: Scope, body: bytes, caller: Caller) -> Outcome:
        """Answer a request whose body is there; every error becomes an answer in the client's dialect."""
        try:
            return await self._answer(log, scope, body, caller)
        except Overloaded as error:  # it has an event of its own, which does not fill the log
            log.is_shed = True
            await log.response.send_error(error)
            return "rejected"
        except TidemarkError as error:
            log.note_error(error)
            await log.response.send_error(error, log.facts())
            return "rejected" if isinstance(error, ClientError) else "error"
        except OSError:
            return "disconnected"
        except Exception:
            # The boundary of the process: the client gets an error in its dialect, and the server logs the cause.
            log.outcome, log.code = "error", TidemarkError.code
            await log.response.send_error(TidemarkError("Tidemark failed to serve this request; its log says why."))
            raise

    async def _answer(self, log: RequestLog, scope: Scope, body: bytes, caller: Caller) -> Outcome:
        """Parse the request, run the pipeline and send the result."""
        if len(body) > LARGE_BYTES:
            log.permit = await self.permits.take(caller.fingerprint, len(body))
        request = log.request = await self.dialect.parse(body)
        if caller.grant is not None:
            check_body(body, caller, request.fields)
        controls = read_controls(scope["headers"])
        if not request.stream:
            result = await self.pipeline.run(request, caller, controls, log)
            return await self._send(log, request, result, None)
        limits = self.limits
        async with KeepAlive(
            log.response, limits.keepalive_seconds, log.facts, notice=limits.notice_seconds
        ) as keepalive:
            result = await self.pipeline.run(request, caller, controls, _StreamProgress(log, keepalive))
            return await self._send(log, request, result, keepalive)

    async def _send(
        self, log: RequestLog, request: ModelRequest, result: Result, keepalive: KeepAlive | None
    ) -> Outcome:
        """Send the result of a request.

        :param keepalive: present for a stream
        """
        log.report = result.report
        log.end_permit()
        match result:
            case Refused():
                raise result.error
            case CommandAnswer():
                if keepalive is not None:
                    await keepalive.stop()
                return await self._send_own(log, request, result)
            case Repeated():
                return await self._send_repeated(log, request, result, keepalive)
            case Exchange():
                return await self._send_reply(log, request, result, keepalive)
            case _:
                assert_never(result)

    async def _send_reply(
        self, log: RequestLog, request: ModelRequest, exchange: Exchange, keepalive: KeepAlive | None
    ) -> Outcome:
        """Send an upstream's reply, as the stream or the body that it is."""
        reply = exchange.reply
        log.answered_here = exchange.turn.answered_here
        is_stream = reply.status < 400 and is_event_stream(reply.headers, is_requested=request.stream)
        if codings_of(reply.headers):
            exchange = await _in_order(exchange, log.response, keepalive, is_stream=is_stream)
        if is_stream:
            return await self._send_stream(log, exchange, keepalive or KeepAlive(log.response, 0, log.facts))
        if keepalive is not None:
            try:
                await keepalive.stop()  # the status is known, and a comment would send another one
            except BaseException:  # the client disconnected during a comment, and nothing else closes the reply
                await reply.close()
                raise
        return await self._send_whole(log, exchange)

    async def _send_repeated(
        self, log: RequestLog, request: ModelRequest, result: Repeated, keepalive: KeepAlive | None
    ) -> Outcome:
        """Send the answer of an earlier try of the same request, in its own bytes."""
        if keepalive is not None:
            await keepalive.stop()
        reply, response = result.reply, log.response
        log.answered_here = True  # no upstream was asked, so there is nothing to bill
        log.note_first_byte()
        if response.status is None:
            await response.send_whole(reply.status, [*log.returned(reply.headers), *log.facts()], result.data)
        elif is_event_stream(reply.headers, is_requested=request.stream):
            await response.end(result.data)
        else:
            await response.end(self.dialect.late_reply_event(reply.status, result.data))
        return "complete"

    async def _send_stream(self, log: RequestLog, exchange: Exchange, keepalive: KeepAlive) -> Outcome:
        reply, response = exchange.reply, log.response
        lines = log.returned(reply.headers)
        keepalive.status, keepalive.lines = reply.status, lines

        async def deliver(chunk: bytes) -> None:
            if log.first_byte is None:
                await keepalive.stop()
                log.note_first_byte()
                if response.status is None:
                    await response.start(reply.status, [*lines, *log.facts()])
            await response.send_piece(chunk)

        ending = log.ending = await self.relay.stream(reply, exchange.turn, deliver)
        if not ending.stored:
            log.note_unstored()
        await keepalive.stop()
        if ending.error is not None:
            log.note_error(ending.error)
            if response.status is None or not codings_of(lines):  # else the connection ends: nobody could read an event
                await response.send_error(ending.error, log.facts())
            return ending.outcome
        if response.status is None:
            await response.start(reply.status, [*lines, *log.facts()])
        await response.end()
        return ending.outcome

    async def _send_whole(self, log: RequestLog, exchange: Exchange) -> Outcome:
        reply, response = exchange.reply, log.response
        data, ending = await self.relay.whole(reply, exchange.turn)
        log.ending = ending
        if not ending.stored:
            log.note_unstored()
        if ending.error is not None:
            log.note_error(ending.error)
            await response.send_error(ending.error, log.facts())
            return ending.outcome
        log.note_first_byte()
        if response.status is None:
            lines = [*log.returned(reply.headers), *log.facts(), *await self._saved(log, ending)]
            await response.send_whole(reply.status, lines, data)
        else:  # comments were sent already, so the reply can only be an event
            await response.end(self.dialect.late_reply_event(reply.status, data))
        return ending.outcome

    async def _saved(self, log: RequestLog, ending: Ending) -> list[tuple[bytes, bytes]]:
        """Return the header line that says what a turn saved. A stream's head leaves before its provider counts."""
        report, request = log.report, log.request
        if self.saving_of is None or request is None or report is None or log.answered_here or report.action == "none":
            return []
        saved = await self.saving_of(request.model, report, request.dialect.usage(ending.reply.usage))
        return [saved_line(saved)] if saved else []

    async def _send_own(self, log: RequestLog, request: ModelRequest, answer: CommandAnswer) -> Outcome:
        """Send an answer of our own, in the form of a model's reply."""
        response, facts = log.response, log.facts()
        log.answered_here = True  # so no tokens count as forwarded
        log.note_first_byte()
        if not request.stream:
            await response.send_whole(200, [JSON, *facts], self.dialect.answer(request, answer.answer))
        else:
            if response.status is None:
                await response.start(200, [*EVENT_STREAM, *facts])
            await response.end(self.dialect.answer_events(request, answer.answer))
        return "complete"


class _StreamProgress:
    """``Progress`` of a stream: its log notes the report, and its comments say what it waits for."""

    def __init__(self, log: RequestLog, keepalive: KeepAlive) -> None:
        self._log = log
        self._keepalive = keepalive

    def on_summarizing(self, messages: int, tokens: int) -> None:
        self._log.on_summarizing(messages, tokens)
        self._keepalive.on_summarizing(messages, tokens)

    def on_planned(self, report: Report) -> None:
        """Note the report; no summary is waited for any more."""
        self._keepalive.on_summarized()
        self._log.on_planned(report)


async def _in_order(
    exchange: Exchange, response: Response, keepalive: KeepAlive | None, *, is_stream: bool
) -> Exchange:
    """Return an exchange whose reply has a coding, such that no byte of ours comes between its bytes."""
    if keepalive is not None:
        try:
            await keepalive.stop()
        except BaseException:  # the client disconnected during a comment, and nothing else closes the reply
            await exchange.reply.close()
            raise
    return plain_where_needed(exchange, is_begun=response.status is not None, is_stream=is_stream)
