"""The pipeline: the steps of one request, in order. Start reading here.

An endpoint (``server/endpoints/dialect.py``) parses a request, runs the pipeline and relays the reply
(``pipeline/relay.py``). Every rule is in ``core/``; this package performs the rules through ports.
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.responses import CONVERSATION, EARLIER_RESPONSE
from tidemark.core.errors import CompactionFailed, InvalidRequest, UpstreamError
from tidemark.core.events import ContextFull, Listener
from tidemark.core.planning.budget import ModelProfile, budget_for
from tidemark.core.planning.situation import EarlierMessagesNeeded
from tidemark.core.ports import CalibrationStore, Caller, Clock, ModelCatalog, Upstream
from tidemark.core.report import Report
from tidemark.pipeline.bound_thinking import ThinkingGuard
from tidemark.pipeline.commands import Commands
from tidemark.pipeline.continuing import ContinuedRequests
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.identify import Identifier
from tidemark.pipeline.kept_responses import response_keeping
from tidemark.pipeline.native_compaction import REFUSED_NOTICE, NativeCompaction, without_natives
from tidemark.pipeline.notices import (
    replay_warning,
    with_base_warning,
    with_cache_break,
    with_left_out_warning,
    with_warning,
)
from tidemark.pipeline.plain_replies import decode_whole
from tidemark.pipeline.refused_items import watched_items
from tidemark.pipeline.repeated_turns import RepeatedTurns
from tidemark.pipeline.sealed_compaction import SealedCompaction, check_triggers
from tidemark.pipeline.search_offers import SearchOffers
from tidemark.pipeline.sending import RequestSender
from tidemark.pipeline.shared_accounts import SharedAccounts
from tidemark.pipeline.stored_history import StoredHistory
from tidemark.pipeline.stream_openings import look_at_opening
from tidemark.pipeline.values import (
    NO_PROGRESS,
    BufferedReply,
    Controls,
    Exchange,
    FittedRequest,
    Learn,
    LeaveOut,
    PendingTurn,
    Progress,
    Refused,
    RequestContext,
    Result,
    StoredPlace,
)


class Pipeline:
    """Runs requests. It takes ports and steps; its state is the turns that may be sent again."""

    def __init__(
        self,
        *,
        history: StoredHistory,
        continued: ContinuedRequests,
        commands: Commands,
        catalog: ModelCatalog,
        identifier: Identifier,
        fitter: BudgetFitter,
        upstream: Upstream,
        searches: SearchOffers,
        calibrations: CalibrationStore,
        accounts: SharedAccounts,
        repeats: RepeatedTurns,
        natives: NativeCompaction,
        thinking: ThinkingGuard,
        sealed: SealedCompaction | None = None,
        emit: Listener = lambda _: None,
        clock: Clock,
        timer: Clock,
    ) -> None:
        self._history = history
        self._continued = continued
        self._accounts = accounts
        self._commands = commands
        self._sealed = sealed
        self._catalog = catalog
        self._identifier = identifier
        self._fitter = fitter
        self._upstream = upstream
        self._sender = RequestSender(upstream, timer)
        self._searches = searches
        self._natives = natives
        self._thinking = thinking
        self._calibrations = calibrations
        self._emit = emit
        self._clock = clock
        self._timer = timer
        self._repeats = repeats

    def run(
        self, request: ModelRequest, caller: Caller, controls: Controls, progress: Progress = NO_PROGRESS
    ) -> Coroutine[Any, Any, Result]:
        """Bring a request to its upstream, or answer it.

        :raises ModelNotFound, TokenizerFailed: before anything is known of the conversation
        :raises ConversationNotFound, ConversationConflict, StoreFull, StoreUnavailable: stored history cannot go on
        :raises InvalidRequest: nothing is in the request but commands and their answers, or it goes on from a response
            that nobody knows
        """
        if request.dialect.responses is not None:
            if request.compaction_triggers:
                return self._run_triggered(request, caller, controls, progress)
            return self._run_continued(request, caller, controls, progress)
        return self._run_from_history(request, caller, controls, progress)

    async def _run_continued(
        self, request: ModelRequest, caller: Caller, controls: Controls, progress: Progress
    ) -> Result:
        """Run a request that may go on from an earlier response."""
        short = await self._continued.resolve_tail(request, caller, controls)
        if short is not None:
            asking = replace(caller, answered_with=_resolved_members(short[0]))
            with suppress(EarlierMessagesNeeded):
                return await self._run(short[0], asking, controls, progress, short[1])
        return await self._run_whole(request, caller, controls, progress)

    async def _run_whole(self, request: ModelRequest, caller: Caller, controls: Controls, progress: Progress) -> Result:
        """Run a request with all that led to it."""
        whole = await self._continued.resolve(request, caller)
        if members := _resolved_members(whole):
            caller = replace(caller, answered_with=members)
        result = await self._run_from_history(whole, caller, controls, progress)
        if whole.continuation is None:
            return result
        checked = await self._continued.answers.checked(whole, result, caller)
        if isinstance(checked, ModelRequest):
            return await self._run_from_history(checked, caller, controls, progress)
        return checked

    async def _run_triggered(
        self, request: ModelRequest, caller: Caller, controls: Controls, progress: Progress
    ) -> Result:
        """Run a request that asks for a compaction in place of an answer.

        :raises InvalidRequest: it asks twice, or with another element than the last one; or its history is stored
        """
        check_triggers(request)
        route = await self._upstream.resolve(request.model)
        if self._sealed is None or self._sealed.compacts_itself(route, caller):
            return await self._run_continued(request, caller, controls, progress)
        if controls.history == "stored":
            raise InvalidRequest(
                "A 'compaction_trigger' is for a client that keeps its conversation itself, and this one's history is "
                "stored here. Leave the trigger out: Tidemark compacts the history by itself, and at once where "
                "X-Tidemark-Summarize is 'force'.",
                param=request.dialect.messages_member,
            )
        return await self._run_whole(request, caller, controls, progress)

    def _run_from_history(
        self, request: ModelRequest, caller: Caller, controls: Controls, progress: Progress
    ) -> Coroutine[Any, Any, Result]:
        """Run a request whose earlier messages the client sends, or the store has under the conversation's name."""
        if controls.history == "stored" and controls.conversation is not None:
            return self._repeats.run(
                request,
                caller,
                controls,
                partial(self._run_stored, request, caller, controls, progress),
                seconds=self._history.wait_seconds,
            )
        return self._run(request, caller, controls, progress)

    async def _run_stored(
        self, request: ModelRequest, caller: Caller, controls: Controls, progress: Progress
    ) -> Result:
        """Run a request that has its new messages only, as one turn of a stored conversation."""
        turn = await self._history.start_turn(request, caller, controls)
        try:
            answer = await self._repeats.kept_answer(turn, request, caller, controls)
            if answer is not None:
                await turn.abandon()
                return answer
            try:
                result = await self._run(turn.request, caller, turn.controls, turn.reporting_to(progress), turn.place)
            except EarlierMessagesNeeded:  # nothing was answered
                await self._history.complete(turn, request, controls)
                result = await self._run(turn.request, caller, turn.controls, turn.reporting_to(progress), turn.place)
        except BaseException:  # also a client that leaves: the turn is free at once
            await turn.abandon()
            raise
        return await turn.attach_to(result)

    async def _run(
        self,
        request: ModelRequest,
        caller: Caller,
        controls: Controls,
        progress: Progress,
        place: StoredPlace | None = None,
    ) -> Result:
        """Walk the steps of a request that has all its messages."""
        messages = request.messages
        if not self._commands.is_free_of_commands(request, caller):
            if place is not None and place.left_out.count:
                raise EarlierMessagesNeeded
            request, command = await self._commands.taken_out(_without_received(request), caller, self.profile)
            if command is not None:
                context = await self.identify(command.rest, caller, replace(controls, mode=command.mode))
                if context.profile.policy.answers_commands(request.dialect.name):
                    return await self._commands.answer(command, context, progress)
        if request.messages is not messages:  # without the commands it has another chain
            place = None
        context = await self.identify(request, caller, controls, place=place)
        await self._accounts.check_mentioned(context.route, request, caller)
        result = await self._send(context, progress)
        if isinstance(result, Refused) or controls.mode == "off" or result.turn.answered_here:
            return result
        if result.reply.status < 400:
            return await self._replay_stream(context, result, progress)
        return await self._replay(context, result, progress)

    async def _answer_here(
        self, context: RequestContext, sealed: SealedCompaction, progress: Progress
    ) -> Exchange | Refused:
        """Answer a request that asks for a compaction, for an upstream that would not understand it."""
        try:
            reply, report = await sealed.answer(context, progress)
        except CompactionFailed as error:
            return Refused(error, context.report("failed", context.count.total, self._timer()))
        progress.on_planned(report)
        unchanged = context.report("none", context.count.total, self._timer())  # as what is stored stays
        turn = replace(self._turn(context, unchanged, None, None), answered_here=True, prepare=None)
        return Exchange(reply, turn, report)

    async def _replay_stream(self, context: RequestContext, exchange: Exchange, progress: Progress) -> Result:
        """Send a request once more where the reply is a stream that only says that it was too long."""
        exchange, refused = await look_at_opening(context, exchange)
        if refused is None:
            return exchange
        try:
            resent = await self._replay(context, refused, progress)
        except BaseException:  # cancelled, too: no other code has the upstream's reply
            await exchange.reply.close()
            raise
        if isinstance(resent, Exchange) and resent.turn is refused.turn:  # nothing could be made smaller
            return exchange
        await exchange.reply.close()
        return resent

    async def identify(
        self, request: ModelRequest, caller: Caller, controls: Controls, *, place: StoredPlace | None = None
    ) -> RequestContext:
        """Find the model, what is stored of the conversation, and the request's size.

        :param place: where the request's messages were read from, where no client sent them
        """
        route = await self._upstream.resolve(request.model)
        profile = await self._catalog.profile(route, caller)
        return await self._identifier.identify(request, caller, controls, route, profile, place=place)

    async def profile(self, request: ModelRequest, caller: Caller) -> ModelProfile:
        """Return window and policy of the model that a request names.

        :raises ModelNotFound: nobody serves it
        """
        return await self._catalog.profile(await self._upstream.resolve(request.model), caller)

    async def _send(self, context: RequestContext, progress: Progress) -> Exchange | Refused:
        """Bring a request within its budget, and send it; or answer it in its upstream's place."""
        if context.request.asks_to_compact and self._sealed is not None and self._sealed.answers(context):
            return await self._answer_here(context, self._sealed, progress)
        fitted = await self._fitter.fit(context, progress)
        if isinstance(fitted, Refused):
            return fitted
        if fitted.native is not None:
            return await self._send_native(context, fitted, progress)
        return await self._send_fitted(context, fitted, progress)

    async def _send_native(
        self, context: RequestContext, fitted: FittedRequest, progress: Progress
    ) -> Exchange | Refused:
        """Send a request with its provider's own summary; again with the text where the provider refuses that."""
        exchange = await self._send_fitted(self._natives.carrying(context), fitted, progress)
        if isinstance(exchange, Refused):
            return exchange
        try:
            reply, is_refused = await self._natives.checked(context, exchange.reply)
        except UpstreamError as error:
            return Refused(error, exchange.report)
        if not is_refused:
            return replace(exchange, reply=reply)
        resent = await self._send(without_natives(context), progress)
        if isinstance(resent, Exchange) and resent.reply.status < 400:
            self._natives.note_refused(context, fitted.native)
        return replace(resent, report=with_warning(resent.report, REFUSED_NOTICE))

    async def _send_fitted(
        self, context: RequestContext, fitted: FittedRequest, progress: Progress
    ) -> Exchange | Refused:
        """Send a request that is within its budget."""
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
        learn = self._learner(context, report.local_tokens) if offer is None else None  # its counts are of all rounds
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
        if reply.status >= 400:
            report = with_base_warning(report, reply, context.route)
        turn = self._turn(context, report, learn, leave_out)
        if thinking is not None:
            report = with_warning(report, thinking.warning)
            turn = replace(turn, bind=thinking.bindings)
        return Exchange(reply, turn, report, None if report.degraded else fitted.summary)

    async def _replay(self, context: RequestContext, refused: Exchange, progress: Progress) -> Exchange | Refused:
        """Send a request once more, smaller, after the upstream refused it as too long.

        :param refused: the exchange with an error as its reply, of whatever kind
        """
        try:
            body = b"".join([chunk async for chunk in refused.reply.body()])
        except UpstreamError as error:
            return Refused(error, refused.report)
        finally:
            await refused.reply.close()
        answer = replace(refused, reply=BufferedReply(refused.reply.status, refused.reply.headers, body))
        profile = await self._catalog.learn(
            context.route,
            context.caller,
            context.profile,
            status=refused.reply.status,
            body=decode_whole(refused.reply.headers, body) or body,
            sent_tokens=refused.report.local_tokens,
            factor=context.measure.factor,
            asked_tokens=context.request.max_output_tokens,
        )
        if profile is None:
            return answer
        budget = budget_for(profile, context.request.max_output_tokens, context.controls.retention)
        measure = replace(context.measure, budget=budget, factor=max(context.measure.factor, profile.density))
        request = replace(context.request, left_to_upstream="")  # the upstream had its turn
        smaller = replace(context, request=request, profile=profile, measure=measure, put_in_use=refused.summary)
        smaller = replace(smaller, started=self._timer())
        if not self._fitter.could_shrink(smaller):
            return answer
        resent = await self._send(smaller, progress)
        warning = replay_warning(context.profile, profile, resent.report.warning)
        return replace(resent, report=replace(resent.report, warning=warning))

    def _turn(
        self, context: RequestContext, report: Report, learn: Learn | None, leave_out: LeaveOut | None
    ) -> PendingTurn:
        """Return what the store will get of the request when its reply has ended."""
        request, count = context.request, context.count
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
            report.summarized,
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
            keep_response=keep_response,
        )

    def _learner(self, context: RequestContext, counted: int) -> Learn | None:
        """Return what learns from the upstream's own count; that of images and files tells nothing of a tokenizer."""
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


def _resolved_members(request: ModelRequest) -> tuple[tuple[str, JsonValue], ...]:
    """Return what the client's request names and the upstream's does not any more, as a response names it."""
    continuation = request.continuation
    if continuation is None:
        return ()
    if continuation.kept_turn is not None:
        return ((CONVERSATION, {"id": continuation.kept_turn.conversation.id}),)
    return ((EARLIER_RESPONSE, continuation.resolved),) if continuation.resolved else ()


def _without_received(request: ModelRequest) -> ModelRequest:
    """Return a request that will be changed, and so cannot go out as its client sent it."""
    continuation = request.continuation
    if continuation is None or continuation.received is None:
        return request
    return replace(request, continuation=replace(continuation, received=None))
