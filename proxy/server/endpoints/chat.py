"""``POST /v1/chat/completions``: a request comes in, its exchange goes out, and one fact is told at the end.

The edge of the road of a request. Beside the answering somebody listens for the client's leaving (``server/asgi.py``), so
that a client who goes away cancels everything that was done for it, at any step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from proxy.core.conversation.messages import ChatRequest
from proxy.core.errors import ClientError, TidemarkError
from proxy.core.events import Listener, Outcome
from proxy.core.ports import Caller, Headers
from proxy.dialects.chat.completion import completion, event_stream
from proxy.dialects.chat.request import BodyParser
from proxy.pipeline.commands import Answered
from proxy.pipeline.relay import Relay
from proxy.pipeline.stored_history import Road
from proxy.pipeline.values import Controls, Exchange, Refused, Report
from proxy.server.access import ConversationAccess
from proxy.server.asgi import JSON, Attended, ClientGone, Response, read_body
from proxy.server.errors import belated
from proxy.server.headers import controls, returned
from proxy.server.keepalive import EVENT_STREAM, KeepAlive
from proxy.server.request_log import Visit


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """What the edge accepts and how patient it is."""

    max_body_bytes: int
    keepalive_seconds: float
    """Between comments on a stream that is still waiting; 0 for none. The first comes later (``server/keepalive.py``)."""
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
        visit = Visit(scope["path"], Response(send), self._timer)
        try:
            body = await read_body(receive, scope["headers"], self._limits.max_body_bytes)
            with Attended(receive):
                visit.outcome = await self._answered(visit, scope, body)
        except ClientGone:
            pass  # as which every visit counts until it has ended otherwise
        except ClientError as error:
            visit.failed(error)
            await visit.response.error(error)
            visit.outcome = "rejected"
        finally:
            self._emit(visit.served())

    async def _answered(self, visit: Visit, scope: Scope, body: bytes) -> Outcome:
        try:
            return await self._answer(visit, scope, body)
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

    def _caller(self, scope: Scope, asked: Controls) -> Caller:
        """Who asks; what the store adds to a request, the model may be asked to repeat."""
        if asked.history == "stored":
            return self._access.tenant(Request(scope))
        return self._access.auth.caller(scope["headers"])

    async def _answer(self, visit: Visit, scope: Scope, body: bytes) -> Outcome:
        request = visit.request = self._parser.chat(body)
        asked = controls(scope["headers"])
        caller = self._caller(scope, asked)
        if not request.stream:
            brought = await self._pipeline.run(request, caller, asked, prepared=visit.prepared)
            return await self._brought(visit, request, brought, None)
        limits = self._limits
        async with KeepAlive(
            visit.response, limits.keepalive_seconds, visit.facts, notice=limits.notice_seconds
        ) as keepalive:

            def prepared(report: Report) -> None:
                keepalive.compacted()
                visit.prepared(report)

            brought = await self._pipeline.run(
                request, caller, asked, prepared=prepared, compacting=keepalive.compacting
            )
            return await self._brought(visit, request, brought, keepalive)

    async def _brought(
        self, visit: Visit, request: ChatRequest, brought: Exchange | Refused | Answered, keepalive: KeepAlive | None
    ) -> Outcome:
        """Bring to the client what its request has come to; only a stream was kept alive meanwhile."""
        visit.prepared(brought.report)
        if isinstance(brought, Refused):
            raise brought.error
        if isinstance(brought, Answered):
            if keepalive is not None:
                await keepalive.stop()
            return await self._told(visit, request, brought)
        if brought.reply.status < 400 and _is_stream(brought.reply.headers, asked=request.stream):
            return await self._stream(visit, brought, keepalive or KeepAlive(visit.response, 0, visit.facts))
        if keepalive is not None:
            try:
                await keepalive.stop()  # the status is known, and a comment would settle another
            except BaseException:  # the client left over a comment: nobody else has the answer to close it
                await brought.reply.close()
                raise
        return await self._whole(visit, brought)

    async def _stream(self, visit: Visit, exchange: Exchange, keepalive: KeepAlive) -> Outcome:
        """Bring a stream to the client, event by event."""
        reply, response = exchange.reply, visit.response
        lines = returned(reply.headers)
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

    async def _whole(self, visit: Visit, exchange: Exchange) -> Outcome:
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
    async def _told(visit: Visit, request: ChatRequest, answer: Answered) -> Outcome:
        """Bring the client an answer of our own, as it would have got one of the model."""
        response, facts = visit.response, visit.facts()
        visit.arrived()
        # nothing went upstream, so nothing of it counts among what did
        visit.report = replace(answer.report, tokens_before=0, tokens_after=0)
        if not request.stream:
            await response.whole(200, [JSON, *facts], completion(request, answer))
        else:
            if response.status is None:
                await response.start(200, [*EVENT_STREAM, *facts])
            await response.end(event_stream(request, answer))
        return "complete"


def _is_stream(headers: Headers, *, asked: bool) -> bool:
    """Whether an answer is an event stream; where one was asked for, a server may name it oddly or not at all."""
    for name, value in headers:
        if name == b"content-type":
            kind = value.split(b";")[0].strip().lower()
            return kind == b"text/event-stream" or (asked and kind != b"application/json")
    return asked
