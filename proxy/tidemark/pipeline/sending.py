"""The step ``send``: sends a request as it was fitted, and makes its turn, which is stored later.

It comes after ``fit`` and before ``replay``. Only streams of calibrated models need counts that nobody asked for; every
other request goes out with the client's own members.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import UpstreamError
from tidemark.core.events import ContextFull, Listener
from tidemark.core.lessons import Lessons
from tidemark.core.ports import CalibrationStore, Clock, Upstream, UpstreamReply
from tidemark.core.report import Report
from tidemark.pipeline.bound_thinking import ThinkingGuard
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.kept_responses import response_keeping
from tidemark.pipeline.marking import with_marks
from tidemark.pipeline.native_compaction import REFUSED_NOTICE, NativeCompaction, without_natives
from tidemark.pipeline.notices import with_base_warning, with_cache_break, with_left_out_warning, with_warning
from tidemark.pipeline.plain_replies import decode_whole
from tidemark.pipeline.refused_items import watched_items
from tidemark.pipeline.replay import SendAgain
from tidemark.pipeline.search_offers import SearchOffers
from tidemark.pipeline.values import (
    Bind,
    BufferedReply,
    Exchange,
    FittedRequest,
    Learn,
    LeaveOut,
    PendingTurn,
    Progress,
    Refused,
    RequestContext,
    Result,
    Watch,
)
from tidemark.pipeline.walk import Walk


class RequestSender:
    """Sends fitted requests. Its state is which upstreams take the question for counts.

    :param timer: seconds, of any origin
    """

    def __init__(self, upstream: Upstream, timer: Clock) -> None:
        self._upstream = upstream
        self._lessons: Lessons[tuple[str, str, str]] = Lessons(timer)
        """By address, model and dialect."""

    async def send(
        self,
        context: RequestContext,
        fitted: FittedRequest,
        *,
        with_counts: bool,
        thinking: Watch | None = None,
    ) -> tuple[UpstreamReply, LeaveOut | None]:
        """Send a request, and return its reply and what takes out of it what the client did not ask for.

        :param with_counts: whether the provider's own counts of the reply are needed
        :param thinking: what watches over the request's thinking, if its upstream may check that
        :raises UpstreamError: there was no answer
        """
        request = context.request
        counts = request.dialect.stream_counts if with_counts and request.stream else None
        if counts is None:
            return await self._send(context, request, fitted, thinking), None
        credential = context.caller.fingerprint
        key = (context.route.base_url, context.route.upstream_model, request.dialect.name)
        asking = None if self._lessons.refuses(credential, key) else counts.asking(request)
        if asking is None:
            return await self._send(context, request, fitted, thinking), None
        reply = await self._send(context, asking, fitted, thinking)
        if reply.status < 400:
            self._lessons.note_taken(credential, key)
        if not 400 <= reply.status < 500:
            return reply, counts.leave_out
        try:
            body = b"".join([chunk async for chunk in reply.body()])
        finally:
            await reply.close()
        if not counts.is_refused(decode_whole(reply.headers, body) or body) or self._lessons.of(credential, key):
            return BufferedReply(reply.status, reply.headers, body), None
        own = await self._send(context, request, fitted, thinking)
        if own.status < 400:  # else the words of the refusal may be the client's
            self._lessons.note_refused(credential, key)
        return own, None

    def marked(self, context: RequestContext, fitted: FittedRequest) -> RequestContext:
        """Return the context of a request that goes out with cache marks, if it needs any."""
        return with_marks(context, fitted, self._upstream)

    def completed(self, report: Report, reply: UpstreamReply, context: RequestContext) -> Report:
        """Return the report of a request that was just sent, with what only its reply tells."""
        if reply.status >= 400:
            return with_base_warning(report, reply, context.route)
        route, dialect = context.route, context.request.dialect.name
        if report.summarized and self._upstream.moves_summaries(route, dialect, context.caller):
            return replace(report, is_summary_moved=True)
        return report

    def _send(
        self, context: RequestContext, request: ModelRequest, fitted: FittedRequest, thinking: Watch | None
    ) -> Awaitable[UpstreamReply]:
        body = _body(context, request, fitted)
        if thinking is not None:
            return thinking.send(self._upstream, request, body, changed=fitted.changed)
        return self._upstream.send(context.route, body, context.caller, dialect=request.dialect, stream=request.stream)


class PendingTurns:
    """Makes turns whose replies are on their way. It has no state of its own."""

    def __init__(self, upstream: Upstream, fitter: BudgetFitter, calibrations: CalibrationStore, clock: Clock) -> None:
        self._upstream = upstream
        self._fitter = fitter
        self._calibrations = calibrations
        self._clock = clock

    def of(
        self,
        context: RequestContext,
        report: Report,
        learn: Learn | None = None,
        leave_out: LeaveOut | None = None,
        bind: Bind | None = None,
    ) -> PendingTurn:
        """Return what the store will get of the request when its reply has ended."""
        original = context.unclipped or context
        request, count = original.request, original.count
        record = TurnRecord(  # in the fields' order: see ``TurnRecord.with_reply``
            context.tenant,
            context.conversation,
            context.chain,
            context.stored.stored_count,
            request.messages,
            count.messages,
            False,  # noqa: FBT003 - not complete
            request.model,
            report.action,
            report.tokens_before,
            report.tokens_after,
            report.covered,
            self._clock(),
            count.scheme,
            {},
            owner_of(context.caller.fingerprint),
            context.controls.conversation or "",
            echo=context.stored.echo,
            max_output_tokens=request.max_output_tokens or 0,
            left_out_count=count.left_out.count,
            left_out_tokens=count.left_out.tokens,
            prompt_record=context.prompt.stored,
            keep=context.keep,
            sender=f"{request.dialect.name} {context.caller.program}",
        )
        prepare = self._fitter.prepare_after(context, report)
        keep_response = response_keeping(context, self._upstream)
        return PendingTurn(
            record,
            context.route.upstream_model,
            request.dialect,
            learn,
            prepare,
            leave_out=leave_out,
            bind=bind,
            keep_response=keep_response,
        )

    def learner(self, context: RequestContext, counted: int) -> Learn | None:
        """Return what learns from the upstream's own count; a count of images and files says nothing of a tokenizer."""
        key, request = context.measure.key, context.request
        if key is None or any(message.media for message in request.messages):
            return None
        if request.left_to_upstream or (request.continuation is not None and request.continuation.upstream_has):
            return None  # the upstream counts what it makes of the messages, or what only it has

        async def learn(reply: Reply) -> None:
            tokens = request.dialect.usage(reply.usage).input_tokens
            if tokens is not None:
                await self._calibrations.learn(key, counted, tokens, self._clock())

        return learn


class Send:
    """Sends requests that are within their budget. It has no state of its own.

    :param again: sends an identified request once more
    """

    def __init__(
        self,
        sender: RequestSender,
        turns: PendingTurns,
        *,
        searches: SearchOffers,
        natives: NativeCompaction,
        thinking: ThinkingGuard,
        emit: Listener,
        again: SendAgain,
    ) -> None:
        self._sender = sender
        self._turns = turns
        self._searches = searches
        self._natives = natives
        self._thinking = thinking
        self._emit = emit
        self._again = again

    async def __call__(self, walk: Walk) -> Walk | Result:
        """Send a request, with its provider's own summary if that stands in it."""
        context, fitted = walk.context, walk.fitted
        send = self._send_fitted if fitted.native is None else self._send_native
        exchange = await send(context, fitted, walk.progress)
        if isinstance(exchange, Refused):
            return exchange
        walk.exchange = exchange
        return walk

    async def _send_native(
        self, context: RequestContext, fitted: FittedRequest, progress: Progress
    ) -> Exchange | Refused:
        """Send a request with its provider's own summary; again with the text if the provider refuses that."""
        exchange = await self._send_fitted(self._natives.carrying(context), fitted, progress)
        if isinstance(exchange, Refused):
            return exchange
        try:
            reply, is_refused = await self._natives.checked(context, exchange.reply)
        except UpstreamError as error:
            return Refused(error, exchange.report)
        if not is_refused:
            return replace(exchange, reply=reply)
        resent = await self._again(without_natives(context), progress)
        if isinstance(resent, Exchange) and resent.reply.status < 400:
            self._natives.note_refused(context, fitted.native)
        return replace(resent, report=with_warning(resent.report, REFUSED_NOTICE))

    async def _send_fitted(
        self, context: RequestContext, fitted: FittedRequest, progress: Progress
    ) -> Exchange | Refused:
        if fitted.summary is not None:
            context = self._sender.marked(context, fitted)
        thinking = self._thinking.of(context, fitted.native) or watched_items(context)
        offer = None if fitted.summary is None else self._searches.offer(context, fitted, thinking)
        if offer is not None:
            fitted = offer.fitted
        if context.prompt.change is not None:
            fitted = replace(fitted, report=with_cache_break(context.request, context.prompt.change, fitted.report))
        report = fitted.report
        if fitted.full:
            self._emit(ContextFull(report.conversation, context.profile.name, report.tokens_after, report.limit))
        progress.on_planned(report)
        learn = (
            self._turns.learner(context, report.local_tokens) if offer is None else None
        )  # its counts are of all rounds
        leave_out: LeaveOut | None = None
        try:
            if offer is not None:
                reply = await self._searches.send(offer)
            else:
                counted = learn is not None
                reply, leave_out = await self._sender.send(context, fitted, with_counts=counted, thinking=thinking)
        except UpstreamError as error:
            return Refused(error, report)
        if left_out := getattr(reply, "left_out", ()):  # as `members_left_out`, for each request
            report = with_left_out_warning(report, left_out)
        report = self._sender.completed(report, reply, context)
        turn = self._turns.of(context, report, learn, leave_out, None if thinking is None else thinking.bindings)
        if thinking is not None:
            report = with_warning(report, thinking.warning)
        return Exchange(reply, turn, report, None if report.degraded or report.not_stored else fitted.summary)


def _body(context: RequestContext, request: ModelRequest, fitted: FittedRequest) -> bytes:
    """Return the bytes to send: the client's own if nothing changes (promise 1)."""
    model = context.route.upstream_model
    if fitted.changed:
        return request.dialect.body_with(request, fitted.messages, model=model)
    continuation = request.continuation
    if continuation is not None and continuation.received is not None:  # the upstream has the earlier messages itself
        request = continuation.received
    return request.body if model == request.model else request.dialect.body_with_model(request, model)
