"""Summarize a stored conversation by hand: no client sends it, so the archive reads it from the store.

``server/endpoints/summarize.py`` calls this. The pipeline plans and compacts as for a request that asks for a
compaction (FR-2.3.1). Two things that no request can ask for are done here: making the newest summary again, and
summarizing without a credential.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.archive.access import ArchiveAccess
from proxy.compaction.compactor import Compactor
from proxy.compaction.values import NotSummarized, Summarized, Trigger
from proxy.core.conversation.records import StoredConversation
from proxy.core.conversation.request import Dialect
from proxy.core.conversation.stored_format import StoredFormat
from proxy.core.conversation.summary import PrefixSummary, inner_systems
from proxy.core.errors import CompactionFailed, ModelNotFound, StoreUnavailable
from proxy.core.planning.budget import MIN_SUMMARY_TOKENS
from proxy.core.planning.situation import Compact
from proxy.core.ports import NO_CREDENTIAL, Caller, ConversationStore, RequestHeads, Route, Upstream
from proxy.core.report import Report
from proxy.pipeline.fit import BudgetFitter
from proxy.pipeline.notices import by_hand_warning
from proxy.pipeline.orders import order_of
from proxy.pipeline.pipeline import Pipeline
from proxy.pipeline.stored_conversation import StoredConversationReader, chain_of_stored
from proxy.pipeline.values import Controls, Refused, RequestContext, StoredPlace


@dataclass(frozen=True, slots=True)
class SummarizeRequest:
    """The options of a compaction by hand."""

    conversation: str
    retention: int | None = None
    regenerate: bool = False
    """Whether to make the newest summary again, of the same messages."""
    model: str | None = None
    """The model whose window, tokenizer and summarizer are used; None for the conversation's last one."""


@dataclass(frozen=True, slots=True)
class ManualSummary:
    """The result of a compaction by hand."""

    report: Report
    summary: PrefixSummary | None
    """The summary that is in use now; None where there is nothing to summarize."""


class ManualCompaction:
    """Summarizes stored conversations; holds no state of its own."""

    def __init__(
        self,
        *,
        access: ArchiveAccess,
        pipeline: Pipeline,
        fitter: BudgetFitter,
        compactor: Compactor,
        upstream: Upstream,
        store: ConversationStore,
        heads: RequestHeads,
        dialect: Dialect,
        formats: StoredFormat,
    ) -> None:
        self._access = access
        self._pipeline = pipeline
        self._fitter = fitter
        self._compactor = compactor
        self._upstream = upstream
        self._store = store
        self._heads = heads
        self._dialect = dialect
        self._reader = StoredConversationReader(store, formats)

    async def summarize(self, options: SummarizeRequest, caller: Caller | None) -> ManualSummary:
        """Compact a conversation now; its next request uses the summary.

        :param caller: None for the operator, who reaches every conversation and has no credential of an upstream
        :raises ConversationNotFound: there is none of that id, or it is another tenant's
        :raises ModelNotFound: the model that was asked for is not served
        :raises CompactionFailed, ContextLengthExceeded: there is no new summary, and the one in use stays
        """
        record, route = await self._access.record_for_summary(options.conversation, caller, options.model)
        context = await self._context(record, route, options, caller or NO_CREDENTIAL)
        deterministic = not (caller or await self._has_key(context))
        newest = context.stored.summary
        if options.regenerate and newest is not None:
            planned = _regeneration(context, newest, await self._store.summaries(record.id))
            return await self._make(context, planned, deterministic=deterministic)
        if deterministic and isinstance(planned_now := self._fitter.plan(context), Compact):
            return await self._make(context, planned_now, deterministic=True)
        fitted = await self._fitter.fit(context)
        if isinstance(fitted, Refused):
            raise fitted.error
        if fitted.report.action == "failed":
            raise CompactionFailed(f"No summary could be made: {fitted.report.warning}.")
        return ManualSummary(fitted.report, fitted.summary)

    async def _context(
        self, record: StoredConversation, route: Route, options: SummarizeRequest, caller: Caller
    ) -> RequestContext:
        """Return the stored conversation as a request that asks for a compaction."""
        messages = await self._reader.messages(record)
        heads = await self._heads.leading_system_messages(record.id)
        request = await self._reader.request(self._dialect, route.name, heads, messages)
        chain = chain_of_stored(record.id, messages)
        controls = Controls(mode="force", retention=options.retention)
        context = await self._pipeline.identify(request, caller, controls, place=StoredPlace(record.tenant, chain))
        if context.stored.degraded:
            raise StoreUnavailable("The conversation store does not answer.")
        return replace(context, conversation=record.id)

    async def _has_key(self, context: RequestContext) -> bool:
        """Return whether the configuration has a key for the summarizer's model, so that the operator can ask it."""
        route, summarizer_model = context.route, context.profile.policy.summarizer_model
        if summarizer_model not in ("", "auto"):
            try:
                route = await self._upstream.resolve(summarizer_model, by_operator=True)
            except ModelNotFound:
                return False
        return route.api_key is not None or bool((route.params or {}).get("api_key"))

    async def _make(self, context: RequestContext, planned: Compact, *, deterministic: bool) -> ManualSummary:
        """Make a summary that replaces what is stored for its prefix.

        Unlike in a compaction that a request waits for, a failure changes nothing: the summary in use is better than
        a worse one.

        :param deterministic: write it without a model; requests find the summary all the same
        """
        run = self._compactor.begin(order_of(context, planned), Trigger.MANUAL, deterministic=deterministic)
        result = await self._compactor.make(run)
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


def _regeneration(context: RequestContext, newest: PrefixSummary, stored: Sequence[PrefixSummary]) -> Compact:
    """Plan the newest summary again: the same messages, upon the same earlier summary where that is still stored.

    System messages that it absorbed are not absorbed again: the next plan keeps them as they are, or absorbs them.
    """
    systems = inner_systems(context.request.messages)
    earlier = [
        summary
        for summary in stored
        if summary.prefix == newest.previous and summary.recipe == newest.recipe and summary.holds_for(systems)
    ]
    previous = earlier[-1] if earlier and newest.previous is not None else None
    pairs = zip(context.request.messages, context.count.messages, strict=True)
    covered = [(message, tokens) for message, tokens in pairs if not message.is_system][: newest.covered]
    new = covered[previous.covered if previous else 0 :]
    replaced = sum(tokens for _, tokens in new) + (previous.tokens if previous else 0)
    return Compact(
        covered=newest.covered,
        messages=tuple(message for message, _ in new),
        previous=previous,
        max_summary_tokens=min(context.budget.max_summary, max(replaced // 2, MIN_SUMMARY_TOKENS)),
        absorbed=previous.absorbed if previous else (),
        replaced_tokens=replaced,
        rest_tokens=context.count.total - sum(tokens for _, tokens in covered),
        fallback=None,
    )
