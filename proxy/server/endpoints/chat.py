"""``POST /v1/chat/completions``: a request comes in, its exchange goes out, and one fact is told at the end.

The edge of the road of a request. Beside the answering somebody listens for the client's leaving (``server/asgi.py``),
so that a client who goes away cancels everything that was done for it, at any step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.types import Receive, Scope, Send

from proxy.core.conversation.messages import ModelRequest
from proxy.core.errors import ClientError, TidemarkError
from proxy.core.events import Listener, Outcome
from proxy.core.ports import Headers
from proxy.core.report import Report
from proxy.dialects.chat.completion import completion, event_stream
from proxy.dialects.chat.request import LIGHT_BYTES, RequestParser
from proxy.pipeline.commands import CommandAnswer
from proxy.pipeline.relay import Relay
from proxy.pipeline.stored_history import Road
from proxy.pipeline.values import Exchange, Refused
from proxy.server.access import ConversationAccess
from proxy.server.asgi import JSON, CancelOnDisconnect, ClientGone, Response, read_body
from proxy.server.encodings import decoded_body, is_encoded
from proxy.server.errors import belated
from proxy.server.headers import read_controls, returned_lines
from proxy.server.keepalive import EVENT_STREAM, KeepAlive
from proxy.server.request_log import RequestLog


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """What the edge accepts and how patient it is."""

    max_body_bytes: int
    keepalive_seconds: float
    """Between comments on a stream that is still waiting; 0 for none. The first comes later
    (``server/keepalive.py``)."""
    notice_seconds: float = 0.0
    """After so long a stream is told that it waits for a summary; 0 for never."""


class ChatEndpoint:
    """An ASGI application of one route."""

    def __init__(
        self,
        *,
        pipeline: Road,
        relay: Relay,
        parser: RequestParser,
        access: ConversationAccess,
        limits: EdgeLimits,
        emit: Listener,
        timer: Callable[[], float],
    ) -> None:
        self._pipeline = pipeline
        self._relay = relay
        self._parser = parser
        self._access = access
        self._limits = limits
        self._emit = emit
        self._timer = timer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        log = RequestLog(scope["path"], Response(send), self._timer)
        try:
            body = await read_body(receive, scope["headers"], self._limits.max_body_bytes)
            if is_encoded(scope["headers"]):
                body = await decoded_body(body, scope["headers"], self._limits.max_body_bytes)
            with CancelOnDisconnect(receive):
                log.outcome = await self._answered(log, scope, body)
        except ClientGone:
            pass  # as which every log counts until it has ended otherwise
        except ClientError as error:
            log.note_error(error)
            await log.response.error(error)
            log.outcome = "rejected"
        finally:
            self._emit(log.to_event())

    async def _answered(self, log: RequestLog, scope: Scope, body: bytes) -> Outcome:
        try:
            return await self._answer(log, scope, body)
        except TidemarkError as error:
            log.note_error(error)
            await log.response.error(error, log.facts())
            return "rejected" if isinstance(error, ClientError) else "error"
        except OSError:
            return "disconnected"
        except Exception:
            # The boundary of the process: whatever went wrong, the client gets OpenAI's envelope; the server logs it.
            log.outcome, log.code = "error", TidemarkError.code
            await log.response.error(TidemarkError("Tidemark failed to serve this request; its log says why."))
            raise

    async def _answer(self, log: RequestLog, scope: Scope, body: bytes) -> Outcome:
        light = len(body) <= LIGHT_BYTES
        request = log.request = self._parser.chat(body) if light else await self._parser.read(body)
        asked = read_controls(scope["headers"])
        caller = self._access.auth.caller(scope["headers"])
        if not request.stream:
            brought = await self._pipeline.run(request, caller, asked, prepared=log.note_report)
            return await self._brought(log, request, brought, None)
        limits = self._limits
        async with KeepAlive(
            log.response, limits.keepalive_seconds, log.facts, notice=limits.notice_seconds
        ) as keepalive:

            def prepared(report: Report) -> None:
                keepalive.end_announcement()
                log.note_report(report)

            brought = await self._pipeline.run(
                request, caller, asked, prepared=prepared, compacting=keepalive.announce_summary
            )
            return await self._brought(log, request, brought, keepalive)

    async def _brought(
        self,
        log: RequestLog,
        request: ModelRequest,
        brought: Exchange | Refused | CommandAnswer,
        keepalive: KeepAlive | None,
    ) -> Outcome:
        """Bring to the client what its request has come to; only a stream was kept alive meanwhile."""
        log.note_report(brought.report)
        if isinstance(brought, Refused):
            raise brought.error
        if isinstance(brought, CommandAnswer):
            if keepalive is not None:
                await keepalive.stop()
            return await self._told(log, request, brought)
        if brought.reply.status < 400 and _is_stream(brought.reply.headers, asked=request.stream):
            return await self._stream(log, brought, keepalive or KeepAlive(log.response, 0, log.facts))
        if keepalive is not None:
            try:
                await keepalive.stop()  # the status is known, and a comment would settle another
            except BaseException:  # the client left over a comment: nobody else has the answer to close it
                await brought.reply.close()
                raise
        return await self._whole(log, brought)

    async def _stream(self, log: RequestLog, exchange: Exchange, keepalive: KeepAlive) -> Outcome:
        """Bring a stream to the client, event by event."""
        reply, response = exchange.reply, log.response
        lines = returned_lines(reply.headers)
        keepalive.status, keepalive.lines = reply.status, lines

        async def deliver(chunk: bytes) -> None:
            if log.first_byte is None:
                await keepalive.stop()
                log.note_first_byte()
                if response.status is None:
                    await response.start(reply.status, [*lines, *log.facts()])
            await response.piece(chunk)

        ending = log.ending = await self._relay.stream(reply, exchange.turn, deliver)
        if not ending.stored:
            log.note_unstored()
        await keepalive.stop()
        if ending.error is not None:
            log.note_error(ending.error)
            await response.error(ending.error, log.facts())
            return ending.outcome
        if response.status is None:
            await response.start(reply.status, [*lines, *log.facts()])
        await response.end()
        return ending.outcome

    async def _whole(self, log: RequestLog, exchange: Exchange) -> Outcome:
        """Bring an answer to the client that is no stream."""
        reply, response = exchange.reply, log.response
        data, ending = await self._relay.whole(reply, exchange.turn)
        log.ending = ending
        if not ending.stored:
            log.note_unstored()
        if ending.error is not None:
            log.note_error(ending.error)
            await response.error(ending.error, log.facts())
            return ending.outcome
        log.note_first_byte()
        if response.status is None:
            await response.whole(reply.status, [*returned_lines(reply.headers), *log.facts()], data)
        else:  # comments have gone out already, so the answer can only be an event
            await response.end(belated(reply.status, data))
        return ending.outcome

    @staticmethod
    async def _told(log: RequestLog, request: ModelRequest, answer: CommandAnswer) -> Outcome:
        """Bring the client an answer of our own, as it would have got one of the model."""
        response, facts = log.response, log.facts()
        log.note_first_byte()
        # nothing went upstream, so nothing of it counts among what did
        log.report = replace(answer.report, tokens_before=0, tokens_after=0)
        if not request.stream:
            await response.whole(200, [JSON, *facts], completion(request, answer.answer))
        else:
            if response.status is None:
                await response.start(200, [*EVENT_STREAM, *facts])
            await response.end(event_stream(request, answer.answer))
        return "complete"


def _is_stream(headers: Headers, *, asked: bool) -> bool:
    """Whether an answer is an event stream; where one was asked for, a server may name it oddly or not at all."""
    for name, value in headers:
        if name == b"content-type":
            kind = value.split(b";")[0].strip().lower()
            return kind == b"text/event-stream" or (asked and kind != b"application/json")
    return asked
