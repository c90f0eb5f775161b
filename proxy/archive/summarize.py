"""Compaction by hand of a stored conversation: no client sends it, so it is read back and walks the same road.

Beside ``pipeline/commands.py`` and above the pipeline, which plans and compacts as for a request that asks for it
(FR-2.3.1). What no request can ask for is done here: making the newest summary anew, and summarizing without a
credential.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from proxy.compaction.writer import NotSummarized, SummaryWriter, flush_of
from proxy.core.conversation.records import StoredConversation
from proxy.core.conversation.summary import PrefixSummary, inner_systems
from proxy.core.errors import CompactionFailed, ModelNotFound, StoreUnavailable
from proxy.core.events import CompactionStarted, ConversationCompacted, Listener
from proxy.core.planning.budget import MIN_SUMMARY_TOKENS
from proxy.core.planning.situation import Compact
from proxy.core.ports import Caller, ConversationStore, MemoryFlush, Route, Summarizer, Upstream
from proxy.core.report import Report
from proxy.dialects.chat.echo import as_sent
from proxy.pipeline.fit import BudgetFitter, order_of
from proxy.pipeline.identify import Place, RequestContext, tenant_of
from proxy.pipeline.notices import by_hand_warning
from proxy.pipeline.pipeline import Pipeline
from proxy.pipeline.stored_conversation import Read, StoredConversationReader, chain_of_stored, missing, request_read
from proxy.pipeline.values import Controls, Refused

NOBODY = Caller(b"", ())
"""In whose name the operator asks: the admin token goes to no upstream."""


class SummaryReplacement(Protocol):
    """What this needs of the store beside ``ConversationStore``; both raise ``StoreUnavailable``."""

    async def head(self, conversation: str) -> Sequence[bytes]:
        """The system messages that began the conversation's last request, in the client's bytes."""
        ...

    async def replace(self, tenant: str, conversation: str, summary: PrefixSummary) -> None:
        """Store a summary of a prefix of ``conversation``, whatever was stored for that prefix before."""
        ...


@dataclass(frozen=True, slots=True)
class SummarizeRequest:
    """What is asked for."""

    conversation: str
    retention: int | None = None
    regenerate: bool = False
    """Make the newest summary anew, over the same messages."""
    model: str | None = None
    """Whose window, tokenizer and summarizer are used; None for the conversation's last one."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of it."""

    report: Report
    summary: PrefixSummary | None
    """The one that is in use now; None where there is nothing to summarize."""


class ManualCompaction:
    """Summarizes stored conversations; holds no state of its own."""

    def __init__(
        self,
        *,
        road: Pipeline,
        fitting: BudgetFitter,
        writer: SummaryWriter,
        upstream: Upstream,
        store: ConversationStore,
        kept: SummaryReplacement,
        read: Read,
        emit: Listener,
        flush: MemoryFlush | None = None,
    ) -> None:
        self._flush = flush
        self._road = road
        self._fitting = fitting
        self._writer = writer
        self._upstream = upstream
        self._store = store
        self._kept = kept
        self._read = read
        self._emit = emit

    async def summarize(self, wish: SummarizeRequest, caller: Caller | None) -> Done:
        """Compact a conversation now; its next request uses the summary.

        :param caller: None for the operator, who reaches every conversation and has no credential of an upstream's
        :raises ConversationNotFound: there is none of that id, or it is another tenant's
        :raises ModelNotFound: the model that was asked for is not served
        :raises CompactionFailed, ContextLengthExceeded: there is no summary, and what was in use stays
        """
        record, route = await self._found(wish, caller)
        case = await self._understood(record, route, wish, caller or NOBODY)
        summarizer = None if caller or await self._has_key(case) else self._writer.fallback
        newest = case.memory.summary
        if wish.regenerate and newest is not None:
            planned = _anew(case, newest, await self._store.summaries(record.id))
            return await self._written(case, planned, summarizer)
        if summarizer is not None and isinstance(planned_now := self._fitting.plan(case), Compact):
            return await self._written(case, planned_now, summarizer)
        prepared = await self._fitting.fit(case, lambda _, __: None)
        if isinstance(prepared, Refused):
            raise prepared.error
        if prepared.report.action == "failed":
            raise CompactionFailed(f"No summary could be made: {prepared.report.warning}.")
        return Done(prepared.report, prepared.summary)

    async def _found(self, wish: SummarizeRequest, caller: Caller | None) -> tuple[StoredConversation, Route]:
        """The record, if the caller may see it. Whether there is one of somebody else's cannot be told (promise 8)."""
        route = None if wish.model is None else await self._upstream.resolve(wish.model)
        record = await self._store.conversation(wish.conversation)
        if record is None or not record.message_count:
            raise missing(wish.conversation)
        if route is None:
            try:
                route = await self._upstream.resolve(record.model)
            except ModelNotFound as error:
                raise missing(wish.conversation) from error
        if caller is not None and tenant_of(caller, route) != record.tenant:
            raise missing(wish.conversation)
        return record, route

    async def _understood(
        self, record: StoredConversation, route: Route, wish: SummarizeRequest, caller: Caller
    ) -> RequestContext:
        """The stored conversation as a request that asks for a compaction."""
        kept = await StoredConversationReader(self._store, self._upstream).messages(record)
        raws = [*await self._kept.head(record.id), *(as_sent(one.raw) for one in kept)]
        request = await request_read(self._read, route.name, raws)
        chain = chain_of_stored(record.id, kept)
        controls = Controls(mode="force", retention=wish.retention)
        case = await self._road.understand(request, caller, controls, stored=Place(record.tenant, chain))
        if case.memory.degraded:
            raise StoreUnavailable("The conversation store does not answer.")
        return replace(case, conversation=record.id)

    async def _has_key(self, case: RequestContext) -> bool:
        """Whether the summarizer's model has a key of the configuration, so that it can be asked in nobody's name."""
        route, named = case.route, case.profile.policy.summarizer_model
        if named not in ("", "auto"):
            try:
                route = await self._upstream.resolve(named, by_operator=True)
            except ModelNotFound:
                return False
        return route.api_key is not None or bool((route.params or {}).get("api_key"))

    async def _written(self, case: RequestContext, planned: Compact, instead: Summarizer | None) -> Done:
        """Write a summary that takes the place of what is stored for its prefix.

        Unlike a compaction that a request waits for, a failure changes nothing: a summary that was in use is better
        than a worse one.

        :param instead: of the model's own summarizer; requests find the summary all the same
        """
        order, model = order_of(case, planned), case.profile.name
        usual = self._writer.summarizer_for(order)
        used, began = instead or usual, self._writer.timer()
        strategy = used.recipe.strategy
        self._emit(CompactionStarted(case.conversation, model, strategy, planned.covered, planned.replaced_tokens))
        text = await self._writer.write(order, used)
        if isinstance(text, NotSummarized):
            message = f"No summary could be made, and nothing was changed: {text.reason}"
            raise CompactionFailed(message, retry_after=text.retry_after)
        summary = self._writer.summary_of(order, usual.recipe, text, strategy)
        if self._flush is not None:
            await self._flush.intend(flush_of(order, summary))
        await self._kept.replace(case.tenant, case.conversation, summary)
        if self._flush is not None:
            self._flush.put(flush_of(order, summary))
        seconds = self._writer.timer() - began
        covered, replaced = summary.covered, planned.replaced_tokens
        self._emit(
            ConversationCompacted(case.conversation, model, strategy, covered, replaced, summary.tokens, seconds)
        )
        after = planned.rest_tokens + summary.tokens
        report = case.report("forced", after, self._writer.timer() - seconds)
        warning = by_hand_warning(case, after)
        return Done(replace(report, summarized=covered, strategy=strategy, warning=warning), summary)


def _anew(case: RequestContext, newest: PrefixSummary, stored: Sequence[PrefixSummary]) -> Compact:
    """The newest summary once more: of the same messages, upon the same earlier summary where that is still there.

    System messages that it told are not told again: the next plan keeps them as they are, or has them told anew.
    """
    systems = inner_systems(case.request.messages)
    earlier = [
        one
        for one in stored
        if one.prefix == newest.previous and one.recipe == newest.recipe and one.holds_for(systems)
    ]
    previous = earlier[-1] if earlier and newest.previous is not None else None
    pairs = zip(case.request.messages, case.count.messages, strict=True)
    said = [(message, tokens) for message, tokens in pairs if not message.is_system][: newest.covered]
    new = said[previous.covered if previous else 0 :]
    replaced = sum(tokens for _, tokens in new) + (previous.tokens if previous else 0)
    return Compact(
        covered=newest.covered,
        messages=tuple(message for message, _ in new),
        previous=previous,
        max_summary_tokens=min(case.budget.max_summary, max(replaced // 2, MIN_SUMMARY_TOKENS)),
        absorbed=previous.absorbed if previous else (),
        replaced_tokens=replaced,
        rest_tokens=case.count.total - sum(tokens for _, tokens in said),
        fallback=None,
    )
