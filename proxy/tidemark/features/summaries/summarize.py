"""Summarize a stored conversation by hand: no client sends it, so this feature reads it from the store.

``features/summaries/feature.py`` calls this. The pipeline plans and compacts as for a request that asks for a
compaction (FR-2.3.1). Two things that no request can ask for are done here: making the newest summary again, and
summarizing without a credential.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemark.compaction.compactor import Compactor
from tidemark.compaction.order import NotSummarized, Summarized, Trigger
from tidemark.core.conversation.summary import PrefixSummary, inner_systems
from tidemark.core.errors import CompactionFailed, ContextLengthExceeded
from tidemark.core.events import Listener, ManualCompactionEnded
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import MIN_SUMMARY_TOKENS
from tidemark.core.planning.candidates import earlier_messages
from tidemark.core.planning.kinds import work_share
from tidemark.core.planning.situation import Compact
from tidemark.core.ports import Caller, ConversationStore
from tidemark.core.report import Report
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.summaries.compaction_requests import CompactionRequests
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.notices import by_hand_warning
from tidemark.pipeline.orders import order_of
from tidemark.pipeline.values import Refused, RequestContext
from tidemark.server.quotas import Quotas


@frozen
class SummarizeRequest:
    """The options of a compaction by hand."""

    conversation: str
    retention: int | None = None
    regenerate: bool = False
    """Whether to make the newest summary again, of the same messages."""
    model: str | None = None
    """The model whose window, tokenizer and summarizer are used; None for the conversation's last one."""


@frozen
class ManualSummary:
    """The result of a compaction by hand."""

    report: Report
    summary: PrefixSummary | None
    """The summary that is in use now; None if there is nothing to summarize."""


@frozen(kw_only=True)
class ManualCompaction:
    """Summarizes stored conversations; holds no state of its own."""

    access: ArchiveAccess
    requests: CompactionRequests
    fitter: BudgetFitter
    compactor: Compactor
    store: ConversationStore
    emit: Listener
    quotas: Quotas

    async def summarize(self, options: SummarizeRequest, caller: Caller | None) -> ManualSummary:
        """Compact a conversation now; its next request uses the summary.

        :param caller: None for the operator, who reaches every conversation and has no credential of an upstream
        :raises ConversationNotFound: there is none of that id, or it is another tenant's
        :raises ModelNotFound: the model that was asked for is not served
        :raises CompactionFailed, ContextLengthExceeded: there is no new summary, and the one in use stays
        :raises RateLimitExceeded: the caller's quota is used up
        """
        async with self.quotas.counted(caller):
            return await self._summarize_counted(options, caller)

    async def _summarize_counted(self, options: SummarizeRequest, caller: Caller | None) -> ManualSummary:
        record, route = await self.access.record_for_summary(options.conversation, caller, options.model)
        context = await self.requests.context(record, route, caller, options.retention)
        try:
            result = await self._summarize(options, context, caller)
        except (CompactionFailed, ContextLengthExceeded):
            self.emit(ManualCompactionEnded(context.conversation, route.name, "failed", context.owner))
            raise
        self.emit(ManualCompactionEnded(context.conversation, route.name, result.report.action, context.owner))
        return result

    async def _summarize(
        self, options: SummarizeRequest, context: RequestContext, caller: Caller | None
    ) -> ManualSummary:
        deterministic = not await self.requests.can_ask(context, caller)
        newest = context.stored.summary
        if options.regenerate and newest is not None:
            planned = regeneration(context, newest, await self.store.summaries(context.conversation))
            return await self._make(context, planned, deterministic=deterministic)
        if deterministic and isinstance(planned_now := self.fitter.plan(context), Compact):
            return await self._make(context, planned_now, deterministic=True)
        fitted = await self.fitter.fit(context)
        if isinstance(fitted, Refused):
            raise fitted.error
        if fitted.report.action == "failed":
            raise CompactionFailed(f"No summary could be made: {fitted.report.warning}.")
        return ManualSummary(fitted.report, fitted.summary)

    async def _make(self, context: RequestContext, planned: Compact, *, deterministic: bool) -> ManualSummary:
        """Make a summary that replaces what is stored for its prefix.

        Unlike in a compaction that a request waits for, a failure changes nothing: the summary in use is better than
        a worse one.

        :param deterministic: write it without a model; requests find the summary all the same
        """
        run = self.compactor.begin(order_of(context, planned), Trigger.MANUAL, deterministic=deterministic)
        result = await self.compactor.make(run)
        if not isinstance(result, Summarized):
            failure = result or NotSummarized("another worker made one")
            message = f"No summary could be made, and nothing was changed: {failure.reason}"
            raise CompactionFailed(message, retry_after=failure.retry_after)
        summary = result.summary
        tokens_after = planned.rest_tokens + result.tokens
        report = context.report("forced", tokens_after, run.started)
        warning = by_hand_warning(context, tokens_after)
        report = replace(report, summarized=summary.covered, strategy=summary.made_by, warning=warning)
        return ManualSummary(report, summary)


def regeneration(context: RequestContext, newest: PrefixSummary, stored: Sequence[PrefixSummary]) -> Compact:
    """Plan the newest summary again: the same messages, upon the same earlier summary if that is still stored.

    System messages that it absorbed are not absorbed again: the next plan keeps them as they are, or absorbs them.
    """
    systems = inner_systems(context.request.messages)
    earlier = [
        summary
        for summary in stored
        if summary.masked is None
        and summary.prefix == newest.previous
        and summary.recipe == newest.recipe
        and summary.holds_for(systems)
    ]
    previous = earlier[-1] if earlier and newest.previous is not None else None
    pairs = zip(context.request.messages, context.count.messages, strict=True)
    covered = [(message, tokens) for message, tokens in pairs if not message.is_system][: newest.covered]
    new = covered[previous.covered if previous else 0 :]
    earlier_tokens, new_tokens = previous.tokens if previous else 0, sum(tokens for _, tokens in new)
    bound = context.budget.summary_for(work_share(context.request.messages, context.count.messages))
    return Compact(
        covered=newest.covered,
        messages=tuple(message for message, _ in new),
        previous=previous,
        max_summary_tokens=min(bound, max(earlier_tokens + new_tokens // 2, MIN_SUMMARY_TOKENS)),
        absorbed=previous.absorbed if previous else (),
        replaced_tokens=earlier_tokens + new_tokens,
        rest_tokens=context.count.total - sum(tokens for _, tokens in covered),
        fallback=None,
        earlier=earlier_messages(previous, [message for message, _ in covered], [tokens for _, tokens in covered]),
    )
