"""Commands, performed: ``/context`` and ``/summarize`` are answered here, and no upstream is asked.

Before the road of a request: what was said by commands earlier is taken out of it, a command is answered, and all else
goes on to the pipeline. ``pipeline/command_text.py`` says which message is a command; the edge writes the answer in the
request's own format.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from proxy.compaction.writer import Clock
from proxy.core.conversation.messages import ModelRequest, digest_of
from proxy.core.conversation.summary import PrefixSummary
from proxy.core.errors import CompactionFailed, ContextLengthExceeded, StoreError
from proxy.core.events import Listener, StoreDegraded
from proxy.core.planning.situation import Mode
from proxy.core.ports import Caller, ConversationStore
from proxy.core.report import OwnAnswer, Report
from proxy.pipeline.command_text import (
    Command,
    ContextFacts,
    command_in,
    context_text,
    exchanges,
    failed_text,
    nothing_text,
    quiet,
    summarized_text,
    without,
    without_exchanges,
)
from proxy.pipeline.fit import BudgetFitter, Compacting
from proxy.pipeline.identify import RequestContext
from proxy.pipeline.pipeline import Announce, Pipeline
from proxy.pipeline.values import Controls, Exchange, Refused


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """Tidemark's own answer to a command. Nothing of it is stored, and nothing was sent upstream."""

    answer: OwnAnswer
    report: Report


class Commands:
    """Stands before the pipeline; holds no state of its own.

    :param mark_for: by a caller's fingerprint, what answers to it are known by: ``mark_of`` the secret
    """

    def __init__(
        self,
        *,
        road: Pipeline,
        fitting: BudgetFitter,
        store: ConversationStore,
        mark_for: Callable[[bytes], str],
        emit: Listener,
        clock: Clock,
    ) -> None:
        self._road = road
        self._fitting = fitting
        self._store = store
        self._mark_for = mark_for
        self._emit = emit
        self._clock = clock

    def run(
        self,
        request: ModelRequest,
        caller: Caller,
        controls: Controls,
        *,
        prepared: Announce = lambda _: None,
        compacting: Compacting = lambda _, __: None,
    ) -> Coroutine[Any, Any, Exchange | Refused | CommandAnswer]:
        """Answer a command, or bring the request to its upstream without those of before.

        :param prepared: told what was done to the request
        :param compacting: told what is summarized while the client waits
        :raises InvalidRequest: there is nothing in the request but commands of before
        """
        if quiet(request, self._mark_for(caller.fingerprint)):
            return self._road.run(request, caller, controls, prepared=prepared, compacting=compacting)
        return self._heard(request, caller, controls, prepared, compacting)

    async def _heard(
        self, request: ModelRequest, caller: Caller, controls: Controls, prepared: Announce, compacting: Compacting
    ) -> Exchange | Refused | CommandAnswer:
        """The same where a message may be a command, or bears our mark."""
        mark = self._mark_for(caller.fingerprint)
        gone, lost = exchanges(request, mark)
        if lost and (await self._road.profile(request, caller)).policy.commands:
            gone |= lost
        request = without_exchanges(request, gone)
        asked = command_in(request.messages)
        if asked is not None:
            command, place = asked
            rest = without(request, {place})
            mode: Mode = "force" if command == "/summarize" else "auto"
            case = await self._road.understand(rest, caller, replace(controls, mode=mode))
            if case.profile.policy.commands:
                answer = await self._answered(command, _on_what_is_stored(case), compacting)
                prepared(answer.report)
                return answer
        return await self._road.run(request, caller, controls, prepared=prepared, compacting=compacting)

    async def _answered(self, command: Command, case: RequestContext, compacting: Compacting) -> CommandAnswer:
        text, report = await (self._summarized(case, compacting) if command == "/summarize" else self._told(case))
        now = self._clock()
        if not len(case.chain):  # nothing was said yet: the conversation gets its id with its first message
            report = replace(report, conversation="")
        made = digest_of(case.chain.tip, command.encode(), repr(now).encode()).hex()
        return CommandAnswer(OwnAnswer(text, f"chatcmpl-tidemark-{made}", now), report)

    async def _told(self, case: RequestContext) -> tuple[str, Report]:
        """``/context``: the state of the conversation, and nothing is done to it (S2-6)."""
        report = (await self._fitting.fit(at_rest(case), lambda _, __: None)).report
        made = await self._summaries(case)
        facts = ContextFacts(
            tokens=report.tokens_before,
            forwarded=report.tokens_after,
            limit=report.limit,
            window=case.measure.budget.window,
            messages=len(case.chain),
            covered=report.summarized,
            summaries=None if made is None else len(made),
            last_summary_at=max((one.created_at for one in made or ()), default=None),
            strategy=case.profile.policy.strategy,
        )
        return context_text(self._mark_for(case.caller.fingerprint), facts), report

    async def _summaries(self, case: RequestContext) -> list[PrefixSummary] | None:
        """Those that stand for a beginning of this very conversation; None where the store does not answer."""
        if case.memory.degraded:
            return None
        chain = case.chain
        try:
            kept = await self._store.summaries(case.conversation)
        except StoreError as error:
            self._emit(StoreDegraded("summaries", error.internal or str(error)))
            return None
        return [one for one in kept if one.covered <= len(chain) and one.prefix == chain.at(one.covered)]

    async def _summarized(self, case: RequestContext, compacting: Compacting) -> tuple[str, Report]:
        """``/summarize``: the same compaction as by ``X-Tidemark-Summarize: force``."""
        done = await self._fitting.fit(case, compacting)
        if isinstance(done, Refused):
            if not isinstance(done.error, CompactionFailed | ContextLengthExceeded):
                raise done.error
            return self._failed(case, done.error, done.report), done.report
        report = done.report
        if report.action == "failed":
            return self._failed(case, None, report), report
        if report.action != "forced":
            mark = self._mark_for(case.caller.fingerprint)
            return nothing_text(mark, covered=report.summarized, reason=report.warning), report
        text = summarized_text(
            self._mark_for(case.caller.fingerprint),
            messages=report.summarized,
            before=report.tokens_before,
            after=report.tokens_after,
            strategy=report.strategy or case.profile.policy.strategy,
            warning=report.warning,
        )
        return text, report

    def _failed(
        self, case: RequestContext, error: CompactionFailed | ContextLengthExceeded | None, report: Report
    ) -> str:
        """What somebody in a chat is told: no header and no status helps there."""
        mark = self._mark_for(case.caller.fingerprint)
        full = report.tokens_before / report.limit if report.limit else None
        if isinstance(error, ContextLengthExceeded):
            return failed_text(mark, "even with a summary, what has to stay is too long for the model", full=full)
        reason = (report.warning or "").partition(": ")[2]  # behind the policy's name
        return failed_text(mark, reason, full=full, retry_seconds=error.retry_after if error else 0.0)


def _on_what_is_stored(case: RequestContext) -> RequestContext:
    """Where the stored conversation goes on after what the client sent, a request begins a fork; a command does not."""
    return replace(case, conversation=case.memory.conversation or case.conversation)


def at_rest(case: RequestContext) -> RequestContext:
    """The same request where nothing is ever due, so that only what is sent as things are is told."""
    budget = replace(case.measure.budget, high_water=sys.maxsize, prepare_mark=sys.maxsize)
    return replace(case, measure=replace(case.measure, budget=budget))
