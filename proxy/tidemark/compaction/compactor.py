"""The compactor: the only place where a summary is made.

A request that waits (``immediate.py``), a preparation (``background.py``), a compaction by hand
(``features/summaries/summarize.py``) and an offline one (``offline.py``) all call ``Compactor.make``. They differ in
their trigger and in what they do around it: they take a lease, wait, or run in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import assert_never

from tidemark.compaction.order import CompactionOrder, CompactionResult, NotSummarized, Summarized, Trigger
from tidemark.compaction.record import masked_record, summary_record
from tidemark.compaction.redacting import OrderRedaction, is_unstored, unstored
from tidemark.compaction.storing import SummaryOutcome, SummaryStorage
from tidemark.compaction.writer import SummaryWriter
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import (
    MaskedResults,
    PrefixSummary,
    SummaryRecipe,
    SummaryText,
    render_summary,
    render_text,
)
from tidemark.core.errors import RedactionFailed, SummaryOutdated, TidemarkError
from tidemark.core.events import (
    CompactionGivenUp,
    CompactionStarted,
    CompactionTrigger,
    ConversationCompacted,
    Listener,
    SummaryPrepared,
)
from tidemark.core.frozen import frozen
from tidemark.core.ports import Lease, Redactor, Summarizer, TokenCounter
from tidemark.core.recall.epoch import question_position
from tidemark.core.recall.tool_subjects import with_results

RESULTS_SHARE, RESULT_TOKENS, MOST_RESULTS = 0.15, 18, 64
"""The share of a summary for the handles of results, the usual tokens of each, and the most of them."""
OVERDUE_WARNING = "the conversation took too long to read; the summary holds its newest lines only"


@frozen
class CompactionRun:
    """A compaction that has begun, and the summarizer that was chosen for it."""

    order: CompactionOrder
    trigger: Trigger
    summarizer: Summarizer
    recipe: SummaryRecipe
    """The recipe that requests look for; another strategy may write the text."""
    started: float
    """Seconds by the writer's timer."""
    begun_at: float
    """Unix time, seconds."""


@frozen
class _Outcome:
    """A text that can stand for the messages, before it is a record."""

    draft: SummaryText
    warning: str | None = None


class Compactor:
    """Makes summaries; holds no state.

    :param storage: stores the summaries; None for a compactor that works offline only
    :param redactor: changes what is read, stored and flushed; None changes nothing
    """

    def __init__(
        self,
        *,
        writer: SummaryWriter,
        counter: TokenCounter,
        emit: Listener,
        clock: Callable[[], float],
        storage: SummaryStorage | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._writer = writer
        self._counter = counter
        self._emit = emit
        self._clock = clock
        self._storage = storage
        self._redaction = OrderRedaction(redactor, emit)

    def begin(self, order: CompactionOrder, trigger: Trigger, *, deterministic: bool = False) -> CompactionRun:
        """Choose the summarizer of an order, and report that its compaction has started.

        :param deterministic: write without a model; requests find the summary under its usual recipe all the same
        """
        usual = self._writer.summarizer_for(order)
        summarizer = self._writer.fallback if deterministic else usual
        plan, strategy = order.plan, summarizer.recipe.strategy
        self._emit(
            CompactionStarted(
                order.conversation,
                order.profile.name,
                strategy,
                plan.covered,
                plan.replaced_tokens,
                order.owner,
                _reported(trigger, order),
            )
        )
        return CompactionRun(order, trigger, summarizer, usual.recipe, self._writer.timer(), self._clock())

    def degrade(self, run: CompactionRun) -> CompactionRun:
        """Return the run for a store that does not answer: the same request always gets the same summary."""
        fallback = self._writer.fallback
        return replace(run, order=replace(run.order, degraded=True), summarizer=fallback, recipe=fallback.recipe)

    async def make(
        self,
        run: CompactionRun,
        *,
        lease: Lease | None = None,
        seconds: float | None = None,
        failure: NotSummarized | None = None,
    ) -> CompactionResult | None:
        """Write a summary, build its record, flush what leaves the context, store the summary, and report it.

        :param lease: the lease under which it is made
        :param seconds: the most time for the summarizer, if that is less than its own timeout
        :param failure: why the summarizer cannot be asked at all; the failure policy applies to it
        :returns: None if another worker has the lease by now, so that its summary counts
        :raises StoreError: a preparation or a compaction by hand could not be stored
        :raises SummaryRejected, UpstreamError: an offline compaction got no usable text
        """
        try:
            result = await self._make(run, lease, seconds, failure)
        except BaseException as error:
            cause = str(error) if isinstance(error, TidemarkError) else type(error).__name__
            self._report_failure(run, cause)
            raise
        finally:
            run.order.reading.clear()
        if isinstance(result, NotSummarized):
            self._report_failure(run, result.reason)
        return result

    async def _make(
        self, run: CompactionRun, lease: Lease | None, seconds: float | None, failure: NotSummarized | None
    ) -> CompactionResult | None:
        run = await self._redacted(run)
        order, results = self._beside_results(run.order)
        outcome = await self._write(replace(run, order=order), seconds, failure)
        if isinstance(outcome, NotSummarized):
            return outcome
        try:
            summary = await self._record(run.order, outcome.draft, run.recipe, results)
        except RedactionFailed:
            if run.trigger is not Trigger.REQUEST:
                raise
            run = replace(run, order=unstored(run.order))
            summary = await self._record(run.order, outcome.draft, run.recipe, results)
        try:
            stored = await self._store(run, summary, lease)
        except SummaryOutdated as error:
            return NotSummarized(str(error))
        warning = outcome.warning or outcome.draft.warning or _shortened_warning(outcome.draft)
        return None if stored is None else self._report(run, stored, warning)

    async def _redacted(self, run: CompactionRun) -> CompactionRun:
        """Return a run that reads redacted messages; one of which nothing is stored, if they cannot be redacted.

        :raises RedactionFailed: no request waits, so nothing is done
        """
        try:
            return replace(run, order=await self._redaction.order(run.order))
        except RedactionFailed:
            if run.trigger is not Trigger.REQUEST:
                raise
            return self.degrade(replace(run, order=unstored(run.order)))

    async def preview(
        self, order: CompactionOrder, summarizer: Summarizer, recipe: SummaryRecipe
    ) -> PrefixSummary | NotSummarized:
        """Write a summary that nothing stores or uses yet, and report no compaction.

        :param summarizer: the one that a person chose
        :param recipe: the recipe that requests look for
        """
        try:
            order = await self._redaction.order(order)
            beside, results = self._beside_results(order)
            draft = await self._writer.write(beside, summarizer)
            if isinstance(draft, NotSummarized):
                return draft
            record = await self._record(order, draft, recipe, results)
        finally:
            order.reading.clear()
        return replace(record, written_with="" if summarizer.recipe == recipe else summarizer.recipe.key)

    async def adopt(self, order: CompactionOrder, summary: PrefixSummary) -> Summarized:
        """Put a prepared summary into use. No client waits, since it is written already.

        It may continue summaries that were prepared before it and never used: its record names the used one.
        """
        in_use = order.in_use.base if order.in_use else None
        previous = in_use.prefix if in_use else None
        summary = replace(summary, previous=previous, first_question=_first_question(order))
        summarizer = self._writer.summarizer_for(order)
        timer, clock = self._writer.timer, self._clock
        run = await self._redacted(
            CompactionRun(order, Trigger.REQUEST, summarizer, summarizer.recipe, timer(), clock())
        )
        stored = await self._store(run, summary, None)
        return self._report(run, stored or SummaryOutcome(summary, stored=True), swap=True)

    async def mask(self, order: CompactionOrder, masked: MaskedResults) -> Summarized:
        """Put lines into use that stand for results of tools. No model is asked, and no message leaves.

        :param masked: with the results that were masked before
        """
        recipe = self._writer.summarizer_for(order).recipe
        try:
            masked = await self._redaction.masked(masked)
        except RedactionFailed:
            order = unstored(order)
        return await self.adopt(order, masked_record(order, masked, recipe, self._clock()))

    def _beside_results(self, order: CompactionOrder) -> tuple[CompactionOrder, tuple[str, ...]]:
        """Return the order for a text beside the handles of results, and these; none if no model can read them."""
        plan, previous = order.plan, order.plan.previous
        if not order.profile.policy.recall_tool or not order.original_messages:
            return order, ()
        first = (previous.covered if previous else 0) - order.left_out
        clients = [message for message in order.original_messages if not message.is_system]
        most = int(RESULTS_SHARE * plan.max_summary_tokens) // RESULT_TOKENS
        newest = clients[first : plan.covered - order.left_out]
        results = with_results(previous.results if previous else (), newest, min(most, MOST_RESULTS))
        if not results:
            return order, ()
        count = self._count_for(order)
        tokens = count(render_text("", plan.covered, results)) - count(render_text("", plan.covered))
        return replace(order, plan=replace(plan, max_summary_tokens=plan.max_summary_tokens - tokens)), results

    async def _record(
        self, order: CompactionOrder, draft: SummaryText, recipe: SummaryRecipe, results: tuple[str, ...] = ()
    ) -> PrefixSummary:
        if not is_unstored(order):
            draft = await self._redaction.draft(draft)
        record = summary_record(
            order.chain,
            draft,
            covered=order.plan.covered,
            absorbed=order.plan.absorbed,
            previous=order.plan.previous,
            recipe=recipe,
            cause=order.cause,
            created_at=self._clock(),
            count=self._count_for(order),
            anew=bool(order.plan.earlier),
            results=results,
        )
        receipt = await self._writer.receipt(order, draft)
        return replace(record, receipt=receipt, first_question=_first_question(order))

    def is_usable(self, order: CompactionOrder, summary: PrefixSummary) -> bool:
        """Return whether an order can use a stored summary.

        It cannot if the summary was made for a larger window, or absorbed other system messages.
        """
        if summary.masked is not None or order.plan.is_mask:
            return summary.masked is not None and order.plan.is_mask
        if summary.native is None and self.tokens(order, summary) > order.plan.max_summary_tokens:
            return False
        return set(summary.absorbed) == set(order.plan.absorbed)

    def tokens(self, order: CompactionOrder, summary: PrefixSummary) -> int:
        """Return the tokens of a summary message, for the order's model; of masked results those of all that stands."""
        if summary.masked is not None:
            return summary.tokens
        if summary.native is not None and summary.native.tokens:
            return summary.native.tokens
        return self._count_for(order)(render_summary(summary))

    def _count_for(self, order: CompactionOrder) -> Callable[[Message], int]:
        return partial(self._counter.count_message, model=order.route.upstream_model)

    async def _write(
        self, run: CompactionRun, seconds: float | None, failure: NotSummarized | None
    ) -> _Outcome | NotSummarized:
        """Ask the summarizer, and act on a failure as the trigger requires."""
        if run.trigger is Trigger.OFFLINE:  # the caller reports the error as it is
            seconds = run.order.profile.policy.summarizer_timeout_seconds
            return _Outcome(await self._writer.text(run.order, run.summarizer, seconds))
        draft = failure or await self._writer.write(run.order, run.summarizer, seconds)
        if isinstance(draft, SummaryText):
            return _Outcome(draft)
        policy = run.order.profile.policy.on_failure
        match run.trigger:
            case Trigger.REQUEST:
                return await self._substitute(run, draft) if policy == "deterministic" else draft
            case Trigger.PREPARATION:
                # Without this, every turn would read the whole conversation in vain.
                return await self._plain(run) if draft.overdue and policy == "deterministic" else draft
            case Trigger.MANUAL:
                return draft
            case _:
                assert_never(run.trigger)

    async def _substitute(self, run: CompactionRun, failure: NotSummarized) -> _Outcome | NotSummarized:
        """Write a deterministic summary in place of one that failed, and a plain one if that is overdue."""
        strategy, fallback = run.summarizer.recipe.strategy, self._writer.fallback
        draft: SummaryText | NotSummarized = failure
        if not failure.overdue and strategy != fallback.recipe.strategy:
            draft = await self._writer.write(run.order, fallback)
        if isinstance(draft, SummaryText):
            return _Outcome(draft, f"the {strategy} summarizer failed; the summary is {draft.made_by}")
        return await self._plain(run) if draft.overdue else draft

    async def _plain(self, run: CompactionRun) -> _Outcome | NotSummarized:
        """Write a summary without reading the whole conversation."""
        draft = await self._writer.write(run.order, self._writer.plain)
        return _Outcome(draft, OVERDUE_WARNING) if isinstance(draft, SummaryText) else draft

    async def _store(self, run: CompactionRun, summary: PrefixSummary, lease: Lease | None) -> SummaryOutcome | None:
        if self._storage is None:
            return SummaryOutcome(summary, stored=False)
        order, is_usable = run.order, partial(self.is_usable, run.order)
        return await self._storage.keep(order, run.trigger, summary, lease, is_usable, begun_at=run.begun_at)

    def _report_failure(self, run: CompactionRun, reason: str) -> None:
        """Emit the event of a compaction that ended without a summary."""
        order, plan = run.order, run.order.plan
        self._emit(
            CompactionGivenUp(
                order.conversation,
                order.profile.name,
                run.summarizer.recipe.strategy,
                plan.covered,
                plan.replaced_tokens,
                reason,
                self._writer.timer() - run.started,
                order.owner,
                _reported(run.trigger, order),
            )
        )

    def _report(
        self, run: CompactionRun, stored: SummaryOutcome, warning: str | None = None, *, swap: bool = False
    ) -> Summarized:
        """Emit the event of a summary that was made or adopted."""
        order, summary = run.order, stored.summary
        tokens = self.tokens(order, summary)
        plan = order.plan
        about = (order.conversation, order.profile.name, summary.made_by, summary.covered)
        before, after = plan.rest_tokens + plan.replaced_tokens, plan.rest_tokens + tokens
        seconds, owner = self._writer.timer() - run.started, order.owner
        match run.trigger:
            case Trigger.PREPARATION:
                self._emit(SummaryPrepared(*about, tokens, seconds, plan.replaced_tokens, before, after, owner))
            case Trigger.REQUEST | Trigger.MANUAL | Trigger.OFFLINE:
                trigger: CompactionTrigger = "swap" if swap else _reported(run.trigger, order)
                trigger = "mask" if summary.masked is not None else trigger
                replaced, receipt = plan.replaced_tokens, summary.receipt
                self._emit(
                    ConversationCompacted(*about, replaced, tokens, seconds, before, after, owner, trigger, receipt)
                )
            case _:
                assert_never(run.trigger)
        return Summarized(summary, tokens, warning, degraded=not (stored.stored or stored.outdated))


def _shortened_warning(draft: SummaryText) -> str | None:
    """Return the warning of a summary that lacks statements of its model's text; None if it has all of them."""
    if not draft.statements_left_out:
        return None
    count = draft.statements - draft.statements_left_out
    return f"the model wrote more than the summary has space for; {count} of {draft.statements} statements are whole"


def _first_question(order: CompactionOrder) -> int:
    """Return the position of the question that is asked with a new summary; by hand, nobody asks one yet."""
    position = question_position(order.original_messages)
    return (position and order.left_out + position) + order.by_hand


def _reported(trigger: Trigger, order: CompactionOrder) -> CompactionTrigger:
    """Return the trigger that events name. A compaction by hand is often made as for a request (FR-2.3.1)."""
    return Trigger.MANUAL.value if order.by_hand else trigger.value
