"""The road of one request, written once and in order: identity and budget, plan, compact, assemble, upstream.

Between the edge (``http/chat.py``), which brings a parsed request and carries the exchange away, and the
ports, behind which the world stands. Every rule is in ``core/``; this file only walks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from proxy.compactor import Clock, CompactionOrder, Compactor, NotSummarized, Summarized
from proxy.core.assemble import assemble
from proxy.core.budget import budget_for
from proxy.core.conversation import TurnRecord
from proxy.core.delta import Reply
from proxy.core.errors import CompactionFailed, ContextLengthExceeded, UpstreamError
from proxy.core.events import Action, Listener
from proxy.core.messages import ChatRequest, Message, render_body, render_messages
from proxy.core.plan import CannotFit, Compact, CompactionPlan, NoCompaction, ReuseSummary, Situation, plan
from proxy.core.ports import (
    CalibrationStore,
    Caller,
    ConversationStore,
    ModelCatalog,
    Route,
    TokenCounter,
    Upstream,
)
from proxy.core.summary import RunningSummary, render_summary
from proxy.exchange import Controls, Exchange, ReadReply, Refused, Report
from proxy.identity import Identity, Understood
from proxy.relay import Learn, PendingTurn

Announce = Callable[[Report], None]
WARNINGS = {
    "small_gain": "not compacted: it would free too little",
    "below_minimum": "not compacted: the conversation is below the minimum",
    "nothing_to_summarize": "nothing to summarize: no older message can be cut off from the newest",
}
"""``X-Tidemark-Warning`` where a compaction was asked for or due and yet not done."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What will be forwarded."""

    messages: Sequence[Message]
    report: Report
    changed: bool = True


class ChatPipeline:
    """Takes ports only; holds no state of its own."""

    def __init__(
        self,
        *,
        upstream: Upstream,
        catalog: ModelCatalog,
        store: ConversationStore,
        calibrations: CalibrationStore,
        counter: TokenCounter,
        compactor: Compactor,
        emit: Listener,
        clock: Clock,
        timer: Clock,
    ) -> None:
        self._upstream = upstream
        self._catalog = catalog
        self._identity = Identity(
            store=store,
            calibrations=calibrations,
            counter=counter,
            compactor=compactor,
            emit=emit,
            clock=clock,
            timer=timer,
        )
        self._calibrations = calibrations
        self._counter = counter
        self._compactor = compactor
        self._clock = clock
        self._timer = timer

    async def run(
        self, request: ChatRequest, caller: Caller, controls: Controls, *, prepared: Announce = lambda _: None
    ) -> Exchange | Refused:
        """Bring a request to its upstream.

        :param prepared: told what was done to the request, right before the upstream is asked
        :raises ModelNotFound, TokenizerFailed: before anything could be said about the conversation
        """
        route = await self._upstream.resolve(request.model)
        profile = await self._catalog.profile(route, caller)
        case = await self._identity.understand(request, caller, controls, route, profile)
        sent = await self._send(case, prepared)
        if isinstance(sent, Refused) or sent.reply.status < 400 or controls.mode == "off":
            return sent
        return await self._replay(case, sent, prepared)

    async def _send(self, case: Understood, announce: Announce) -> Exchange | Refused:
        """Plan, compact, assemble and forward one understood request."""
        prepared = await self._prepare(case, self._plan(case))
        if isinstance(prepared, Refused):
            return prepared
        announce(prepared.report)
        try:
            reply = await self._upstream.send(
                case.route, self._body(case, prepared), case.caller, stream=case.request.stream
            )
        except UpstreamError as error:
            return Refused(error, prepared.report)
        return Exchange(reply, self._turn(case, prepared.report), prepared.report)

    async def _replay(self, case: Understood, sent: Exchange, announce: Announce) -> Exchange | Refused:
        """An upstream's context overflow before the first byte: learn the window, compact, send again, once."""
        try:
            body = b"".join([chunk async for chunk in sent.reply.body()])
        except UpstreamError as error:
            return Refused(error, sent.report)
        finally:
            await sent.reply.close()
        told = ReadReply(sent.reply.status, sent.reply.headers, body)
        profile = await self._catalog.learn(
            case.route,
            case.caller,
            case.profile,
            status=told.status,
            body=body,
            sent_tokens=sent.report.local_tokens,
            factor=case.measure.factor,
        )
        if profile is None:
            return replace(sent, reply=told)
        budget = budget_for(profile, case.request.max_output_tokens, case.controls.retention)
        measure = replace(case.measure, budget=budget, factor=max(case.measure.factor, profile.density))
        again = replace(case, profile=profile, measure=measure, started=self._timer())
        if isinstance(self._plan(again), NoCompaction | CannotFit):
            return replace(sent, reply=told)
        resent = await self._send(again, announce)
        note = f"the upstream's window is smaller than known; learned {profile.window.window} tokens and sent again"
        return replace(resent, report=replace(resent.report, warning=note))

    def _plan(self, case: Understood) -> CompactionPlan:
        summary = case.memory.summary
        return plan(
            Situation(
                messages=case.request.messages,
                tokens=case.count.messages,
                fixed=case.count.fixed,
                budget=case.budget,
                policy=case.profile.policy,
                mode=case.controls.mode,
                summary=summary,
                summary_tokens=self._summary_tokens(summary, case.route) if summary else 0,
            )
        )

    def _summary_tokens(self, summary: RunningSummary, route: Route) -> int:
        return self._counter.count_message(render_summary(summary), route.upstream_model)

    async def _prepare(self, case: Understood, planned: CompactionPlan) -> _Prepared | Refused:
        """Perform a plan: every outcome of ``core/plan.py`` has its branch here."""
        if isinstance(planned, NoCompaction):
            return self._unchanged(case, planned)
        if isinstance(planned, ReuseSummary):
            return self._reused(case, planned)
        if isinstance(planned, CannotFit):
            error = _does_not_fit(case, planned.tokens)
            return Refused(error, case.report("failed", planned.tokens, self._timer()))
        return await self._compacted(case, planned)

    async def _compacted(self, case: Understood, planned: Compact) -> _Prepared | Refused:
        forced = case.controls.mode == "force"
        began = self._timer()
        result = await self._compactor.compact(
            CompactionOrder(
                plan=planned,
                tenant=case.tenant,
                conversation=case.conversation,
                chain=case.chain,
                profile=case.profile,
                route=case.route,
                caller=case.caller,
                cause="manual" if forced else "automatic",
                degraded=case.memory.degraded,
            )
        )
        case = replace(case, started=case.started + self._timer() - began)
        if isinstance(result, NotSummarized):
            return self._without_summary(case, planned, result)
        return self._with_summary(case, planned, result, "forced" if forced else "compacted")

    def _with_summary(
        self, case: Understood, planned: Compact, result: Summarized, action: Action
    ) -> _Prepared | Refused:
        after = planned.rest_tokens + result.tokens
        summary = result.summary
        report = replace(
            case.report(action, after, self._timer()),
            summarized=summary.covered,
            strategy=summary.made_by,
            warning=result.warning or _low(case, after),
        )
        if after > case.budget.limit:
            return Refused(_does_not_fit(case, after), replace(report, action="failed"))
        return _Prepared(assemble(case.request.messages, summary), report)

    def _without_summary(self, case: Understood, planned: Compact, result: NotSummarized) -> _Prepared | Refused:
        """No summary could be made: the failure policy decides (FR-5.1.1, FR-5.1.2)."""
        policy = case.profile.policy.on_failure
        warning = f"the summary failed ({policy}): {result.reason}"
        accepted = case.controls.acknowledge or policy == "passthrough"
        if not accepted and (policy == "block" or planned.fallback is None):
            error = CompactionFailed(
                "The conversation is due for compaction and its summary failed. Send the request again to retry, or "
                "send it with 'X-Tidemark-Overflow: acknowledge' to forward it as it is.",
                internal=result.reason,
            )
            return Refused(error, replace(case.report("failed", case.count.total, self._timer()), warning=warning))
        if isinstance(planned.fallback, ReuseSummary):
            prepared = self._reused(case, planned.fallback)
        else:
            prepared = self._unchanged(case, NoCompaction("fits", case.count.total))
        return replace(prepared, report=replace(prepared.report, action="failed", warning=warning))

    def _unchanged(self, case: Understood, planned: NoCompaction) -> _Prepared:
        action: Action = "bypassed" if planned.reason == "off" else "none"
        report = replace(case.report(action, planned.tokens, self._timer()), warning=WARNINGS.get(planned.reason))
        return _Prepared(case.request.messages, report, changed=False)

    def _reused(self, case: Understood, planned: ReuseSummary) -> _Prepared:
        summary = planned.summary
        report = replace(
            case.report("reused", planned.tokens, self._timer()),
            summarized=summary.covered,
            strategy=summary.made_by,
            warning=WARNINGS.get(planned.reason),
        )
        return _Prepared(assemble(case.request.messages, summary), report)

    def _body(self, case: Understood, prepared: _Prepared) -> bytes:
        """The bytes to send: the client's own where nothing is to be changed (promise 1)."""
        replaced: dict[str, bytes] = {}
        if prepared.changed:
            replaced["messages"] = render_messages(prepared.messages)
        if case.route.upstream_model != case.request.model:
            replaced["model"] = json.dumps(case.route.upstream_model).encode()
        return render_body(case.request.fields, replaced) if replaced else case.request.body

    def _turn(self, case: Understood, report: Report) -> PendingTurn:
        record = TurnRecord(
            tenant=case.tenant,
            conversation=case.conversation,
            chain=case.chain,
            known=case.memory.known,
            messages=case.request.messages,
            tokens=case.count.messages,
            complete=False,
            model=case.request.model,
            action=report.action,
            tokens_before=report.tokens_before,
            tokens_after=report.tokens_after,
            summarized=report.summarized,
            created_at=self._clock(),
            scheme=case.count.scheme,
        )
        return PendingTurn(record, case.route.upstream_model, self._lesson(case, report.local_tokens))

    def _lesson(self, case: Understood, counted: int) -> Learn | None:
        """What becomes of the upstream's own count; that of images and files says nothing of its tokenizer."""
        key = case.measure.key
        if key is None or any(message.media for message in case.request.messages):
            return None

        async def learn(reply: Reply) -> None:
            told = reply.usage.get("prompt_tokens")
            if isinstance(told, int):
                await self._calibrations.learn(key, counted, told, self._clock())

        return learn


def _low(case: Understood, after: int) -> str | None:
    """FR-5.4.2: a compaction by hand is done where there is little to gain, with a warning."""
    if case.controls.mode != "force":
        return None
    measure = case.measure
    if after > case.count.total:
        return f"the request got longer: its {measure.told(case.count.total)} tokens were too few to summarize"
    if case.count.total < case.budget.min_tokens:
        return f"compacted below the minimum of {measure.budget.min_tokens} tokens"
    return None


def _does_not_fit(case: Understood, least: int) -> ContextLengthExceeded:
    """The refusal, in OpenAI's words and with the numbers (FR-5.3.1)."""
    measure = case.measure
    window, limit = measure.budget.window, measure.budget.limit
    return ContextLengthExceeded(
        f"This model's maximum context length is {window} tokens, of which {limit} are left for the input beside "
        f"the reply and a safety margin. However, your messages resulted in {measure.told(case.count.total)} tokens, "
        f"and at least {measure.told(least)} remain when all that can be summarized is. Please reduce the length of "
        "the newest message, the tools or the reply, or correct the model's window in model_info."
    )
