"""Compacts a conversation for a client that carries its summary itself.

A client asks by ``POST /v1/responses/compact``, which stores nothing, or by a ``compaction_trigger`` in a request of
``/v1/responses``, which is a turn as any other. A provider that compacts itself is asked; for all others, the model's
own summarizer writes the summary, and it is sealed for the tenant.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from http import HTTPStatus

from tidemark.compaction.compactor import Compactor
from tidemark.compaction.order import CompactionOrder, Summarized, Trigger
from tidemark.compaction.record import sealed_record
from tidemark.compaction.sealing import TenantSeal
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.core.conversation.responses import ResponseFormat, SealedAnswer
from tidemark.core.conversation.summary import (
    PrefixSummary,
    Strategy,
    read_summary,
    render_summary,
)
from tidemark.core.errors import CompactionFailed, InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import ModelProfile, budget_for
from tidemark.core.planning.kinds import work_share
from tidemark.core.planning.situation import Compact
from tidemark.core.ports import Caller, Clock, ModelCatalog, Route, TokenCounter, Upstream, UpstreamReply
from tidemark.core.report import Report
from tidemark.pipeline.continuing import ContinuedRequests
from tidemark.pipeline.identify import tenant_of
from tidemark.pipeline.refused_items import readable_body
from tidemark.pipeline.sending import PendingTurns
from tidemark.pipeline.shared_accounts import SharedAccounts
from tidemark.pipeline.values import BufferedReply, Exchange, Progress, Refused, RequestContext, Result
from tidemark.pipeline.walk import Walk

MAX_NAMED = 5
"""Places that a warning names."""


@frozen
class SealedWindow:
    """What a client sends from now on in place of its conversation."""

    messages: Sequence[bytes]
    """The user's messages, byte for byte."""
    sealed: str
    """The summary of everything else, for this tenant only."""
    input_tokens: int
    output_tokens: int


@frozen
class SealedCompaction:
    """Compacts; it holds no state."""

    dialect: Dialect
    continued: ContinuedRequests
    upstream: Upstream
    catalog: ModelCatalog
    counter: TokenCounter
    compactor: Compactor
    """Stores nothing."""
    seal: TenantSeal
    clock: Clock
    timer: Clock
    accounts: SharedAccounts
    compacts_itself: Callable[[Route, Caller], bool]
    """Returns whether a route leads to a provider that has this endpoint."""

    async def compact(self, body: bytes, caller: Caller, path: str) -> SealedWindow | UpstreamReply:
        """Return the compacted conversation, or the provider's own answer.

        :param path: of the provider's endpoint, below its base URL
        :raises InvalidRequest, ModelNotFound, TokenizerFailed: there is nothing to compact, or no way to
        :raises ObjectNotFound: it names something of another tenant
        :raises StoreUnavailable: nobody knows at present whether it does
        :raises CompactionFailed: no summary could be made
        :raises UpstreamUnreachable, UpstreamTimedOut: the provider gave no answer
        """
        request = await self.continued.resolve(await self.dialect.parse(body), caller)
        route = await self.upstream.resolve(request.model)
        await self.accounts.check_mentioned(route, request, caller)
        if self.compacts_itself(route, caller):
            return await self._forwarded(request, route, caller, path)
        _refuse_unseen(request)
        return await self._compacted(request, route, caller)

    async def _forwarded(self, request: ModelRequest, route: Route, caller: Caller, path: str) -> UpstreamReply:
        if request.continuation is not None and request.continuation.received is not None:
            request = request.continuation.received
        model = route.upstream_model
        body = request.body if model == request.model else self.dialect.body_with_model(request, model)
        reply = await self.upstream.forward(route, "POST", path, body, caller)
        if (responses := self.dialect.responses) is not None:
            reply, again = await readable_body(reply, body, responses)
            if again is not None:
                reply = await self.upstream.forward(route, "POST", path, again, caller)
        return reply

    async def _compacted(self, request: ModelRequest, route: Route, caller: Caller) -> SealedWindow:
        profile = await self.catalog.profile(route, caller)
        count = await self.counter.count(request, route.upstream_model)
        tenant = tenant_of(caller, route)
        plan, chain = _plan(request, profile, count.total), chain_of(tenant, request.messages)
        result = await self._summarized(CompactionOrder(plan, tenant, "", chain, profile, route, caller, "manual"))
        questions = [message for message in request.messages if message.role == "user"]
        output_tokens = result.tokens + sum(
            self.counter.count_message(message, route.upstream_model) for message in questions
        )
        return SealedWindow(
            messages=[message.raw for message in questions],
            sealed=self.seal.seal(tenant, render_summary(result.summary).text),
            input_tokens=count.total,
            output_tokens=output_tokens,
        )

    def answers(self, context: RequestContext) -> bool:
        """Return whether a request that asks for a compaction is answered here: its upstream may not know how to."""
        return not self.compacts_itself(context.route, context.caller)

    async def answer(self, context: RequestContext, progress: Progress) -> tuple[UpstreamReply, Report]:
        """Answer a request that asks for a compaction, in place of an upstream that does not know how to.

        :raises InvalidRequest: there is nothing to compact, or only the upstream has it
        :raises CompactionFailed: no summary could be made
        """
        request, total, now = context.request, context.count.total, self.timer()
        responses = request.dialect.responses
        if responses is None:  # no other dialect has triggers
            raise InvalidRequest("A compaction can be asked for in the Responses API only.")
        _refuse_unseen(request)
        request, warning = await _readable(request, responses)
        progress.on_summarizing(len(request.messages), total)
        result = await self._summarized(
            CompactionOrder(
                plan=_plan(request, context.profile, total),
                tenant=context.tenant,
                conversation=context.conversation,
                chain=chain_of(context.tenant, request.messages),
                profile=context.profile,
                route=context.route,
                caller=context.caller,
                cause="manual",
            )
        )
        answer = SealedAnswer(
            sealed=self.seal.seal(context.tenant, render_summary(result.summary).text),
            id=uuid.uuid4().hex,
            created_at=self.clock(),
            input_tokens=total,
            output_tokens=result.tokens,
            members=dict(context.caller.answered_with),
        )
        data = responses.sealed_answer(context.request.fields, answer, stream=request.stream)
        kind = b"text/event-stream" if request.stream else b"application/json"
        report = context.report(
            "compacted", result.tokens, now, summary=result.summary, warning=warning or result.warning
        )
        return BufferedReply(HTTPStatus.OK, [(b"content-type", kind)], data), report

    async def _summarized(self, order: CompactionOrder) -> Summarized:
        earlier = order.plan.previous
        if earlier is not None and not order.plan.messages:  # nothing was said since
            model = order.route.upstream_model
            return Summarized(earlier, self.counter.count_message(render_summary(earlier), model))
        result = await self.compactor.make(self.compactor.begin(order, Trigger.REQUEST))
        if isinstance(result, Summarized):
            return result
        reason = "" if result is None else f": {result.reason}"
        error = CompactionFailed(f"No summary could be made{reason}.")
        error.retry_after = 0.0 if result is None else result.retry_after
        raise error


def _plan(request: ModelRequest, profile: ModelProfile, total: int) -> Compact:
    """Return the plan of a summary that stands for all messages; system messages at the beginning are none.

    An earlier summary stands for what is before it, whether the client still sends that or not. Codex puts its
    instructions there anew each time, and they are no part of what was said.

    :param total: the request's tokens
    :raises InvalidRequest: there is nothing to summarize
    """
    messages = request.messages
    previous, first = _earlier_summary(messages, profile.policy.strategy)
    if previous is None:
        first = next((place for place, message in enumerate(messages) if not message.is_system), len(messages))
    if previous is None and first == len(messages):
        raise InvalidRequest(
            "There is nothing to compact: the conversation has no message. Send it as 'input'.",
            param=request.dialect.messages_member,
            code="empty_array",
        )
    share = work_share(messages, [len(message.text) // 4 for message in messages])  # shares need no exact counts
    return Compact(
        covered=sum(not message.is_system for message in messages),
        messages=messages[first:],
        previous=previous,
        max_summary_tokens=budget_for(profile, None).summary_for(share),
        absorbed=(),
        replaced_tokens=total,
        rest_tokens=0,
        fallback=None,
    )


def check_triggers(request: ModelRequest) -> None:
    """Make sure that a request asks for a compaction once, and with its last element.

    :raises InvalidRequest: it does not; no answer could be both
    """
    triggers = request.compaction_triggers
    if triggers in ((), (0,)):
        return
    member = request.dialect.messages_member
    many = f"it has {len(triggers)} of them" if len(triggers) > 1 else f"{triggers[0]} more follow it"
    raise InvalidRequest(
        f"A 'compaction_trigger' must be the last item of '{member}', and the only one of its type; {many}. Send the "
        "conversation with one trigger at its end, and what is to be answered in the request after it.",
        param=member,
    )


def _refuse_unseen(request: ModelRequest) -> None:
    if request.continuation is not None and request.continuation.upstream_has:
        raise InvalidRequest(
            "The earlier messages of this conversation are the upstream's alone, so they cannot be compacted here. "
            "Send the whole conversation as 'input'.",
            param="previous_response_id" if request.continues else "conversation",
            code="previous_response_not_found",
        )


async def _readable(request: ModelRequest, responses: ResponseFormat) -> tuple[ModelRequest, str | None]:
    """Return a request without its trigger and what only a provider can read, and the warning of the latter."""
    foreign = responses.sealed_summaries(request.fields)
    if not foreign:
        return replace(request, messages=request.messages[:-1]), None
    member = request.dialect.messages_member
    body = responses.rewritten(request.fields, {reference.place: () for reference in foreign}, None)
    rest = await request.dialect.parse(body, bounded=False)
    places = ", ".join(f"{member}[{reference.place}]" for reference in foreign[:MAX_NAMED])
    more = f" and {len(foreign) - MAX_NAMED} more" if len(foreign) > MAX_NAMED else ""
    warning = f"not in the summary: {places}{more}, which a provider has sealed, so that only it can read them"
    return replace(rest, messages=rest.messages[:-1]), warning


def _earlier_summary(messages: Sequence[Message], strategy: Strategy) -> tuple[PrefixSummary | None, int]:
    """Return the last summary that was opened, and the place behind it."""
    for place in range(len(messages) - 1, -1, -1):
        summary = read_summary(messages[place])
        if summary is not None:
            text, covered = summary
            return sealed_record(text, covered, strategy), place + 1
    return None, 0


class AnswerTrigger:
    """The step ``answer_trigger``: answers a request that asks for a compaction, if its upstream does not know how.

    :param sealed: None if no dialect with such requests is served
    """

    def __init__(self, sealed: SealedCompaction | None, turns: PendingTurns, timer: Clock) -> None:
        self._sealed = sealed
        self._turns = turns
        self._timer = timer

    async def __call__(self, walk: Walk) -> Walk | Result:
        """Answer one request; all others pass."""
        context, sealed = walk.context, self._sealed
        if not context.request.asks_to_compact or sealed is None or not sealed.answers(context):
            return walk
        try:
            reply, report = await sealed.answer(context, walk.progress)
        except CompactionFailed as error:
            return Refused(error, context.report("failed", context.count.total, self._timer()))
        walk.progress.on_planned(report)
        unchanged = context.report("none", context.count.total, self._timer())  # as what is stored stays
        turn = replace(self._turns.of(context, unchanged), answered_here=True, prepare=None)
        return Exchange(reply, turn, report)
