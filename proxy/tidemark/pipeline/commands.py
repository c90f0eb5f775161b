"""The step ``commands``: answers ``/context`` and ``/summarize``, and removes earlier ones from the request.

It comes after stored history and before identity. ``pipeline/command_text.py`` recognizes commands, the
texts of the answers are for a person in a chat, and the dialect writes an answer in the client's format.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import assert_never

from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.errors import CompactionFailed, ContextLengthExceeded, StoreError
from tidemark.core.events import Listener, StoreDegraded
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import ModelProfile
from tidemark.core.planning.situation import EarlierMessagesNeeded, Mode
from tidemark.core.ports import Caller, Clock, ConversationStore
from tidemark.core.report import OwnAnswer, Report
from tidemark.pipeline.command_text import (
    Command,
    command_in,
    command_places,
    is_free_of_commands,
    without_places,
)
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.identify import Identify
from tidemark.pipeline.values import CommandAnswer, Progress, Refused, RequestContext, Result
from tidemark.pipeline.walk import Walk

FindProfile = Callable[[ModelRequest, Caller], Awaitable[ModelProfile]]
"""Finds window and policy of the model that a request names."""
_NOTE = "Tidemark answers this itself; the model sees neither the command nor this answer."


@frozen
class CommandRequest:
    """A command as the newest message of a request."""

    command: Command
    rest: ModelRequest
    """The request without the command."""

    @property
    def mode(self) -> Mode:
        """The mode in which the rest is planned."""
        return "force" if self.command == "/summarize" else "auto"


class Commands:
    """Recognizes and answers commands. It has no state of its own.

    :param mark_for: gives the mark of answers to a caller, by its fingerprint
    """

    def __init__(
        self,
        *,
        fitter: BudgetFitter,
        store: ConversationStore,
        mark_for: Callable[[bytes], str],
        emit: Listener,
        clock: Clock,
    ) -> None:
        self._fitter = fitter
        self._store = store
        self._mark_for = mark_for
        self._emit = emit
        self._clock = clock

    def is_free_of_commands(self, request: ModelRequest, caller: Caller) -> bool:
        """Return whether nothing in a request is a command or an answer to one, as nearly always."""
        return is_free_of_commands(request, self._mark_for(caller.fingerprint))

    async def taken_out(
        self, request: ModelRequest, caller: Caller, profile: FindProfile
    ) -> tuple[ModelRequest, CommandRequest | None]:
        """Return the request without earlier commands, and the command that its newest message is.

        :raises InvalidRequest: nothing is in the request but commands and their answers
        """
        answered, unanswered = command_places(request, self._mark_for(caller.fingerprint))
        if unanswered and (await profile(request, caller)).policy.answers_commands(request.dialect.name):
            answered |= unanswered
        request = without_places(request, answered)
        newest = command_in(request.messages)
        if newest is None:
            return request, None
        command, place = newest
        return request, CommandRequest(command, request.dialect.without(request, {place}))

    async def answer(self, command: CommandRequest, context: RequestContext, progress: Progress) -> CommandAnswer:
        """Perform a command.

        :param context: that of the request without the command
        """
        # A request that parts from the stored conversation begins a fork; a command does not.
        context = replace(context, conversation=context.stored.conversation or context.conversation)
        name = command.command
        match name:
            case "/summarize":
                text, report = await self._summarize(context, progress)
            case "/context":
                text, report = await self._describe(context)
            case _:
                assert_never(name)
        now = self._clock()
        if not len(context.chain):  # the conversation gets its id with its first message
            report = replace(report, conversation="")
        suffix = digest_of(context.chain.tip, name.encode(), repr(now).encode()).hex()
        progress.on_planned(report)
        return CommandAnswer(OwnAnswer(text, suffix, now), report)

    async def _describe(self, context: RequestContext) -> tuple[str, Report]:
        """Describe the conversation for ``/context``, and change nothing (S2-6)."""
        report = (await self._fitter.fit(at_rest(context))).report
        summaries = await self._summaries(context)
        facts = ContextFacts(
            tokens=report.tokens_before,
            forwarded=report.tokens_after,
            limit=report.limit,
            window=context.measure.budget.window,
            messages=len(context.chain),
            covered=report.summarized,
            summaries=None if summaries is None else len(summaries),
            last_summary_at=max((summary.created_at for summary in summaries or ()), default=None),
            strategy=context.profile.policy.strategy,
        )
        return context_text(self._mark_of(context), facts), report

    async def _summaries(self, context: RequestContext) -> list[PrefixSummary] | None:
        """Return the summaries of prefixes of this conversation; None if the store does not answer."""
        if context.stored.degraded:
            return None
        chain = context.chain
        try:
            summaries = await self._store.summaries(context.conversation)
        except StoreError as error:
            self._emit(StoreDegraded("summaries", error.internal or str(error)))
            return None
        return [
            summary
            for summary in summaries
            if summary.covered <= len(chain) and summary.prefix == chain.at(summary.covered)
        ]

    async def _summarize(self, context: RequestContext, progress: Progress) -> tuple[str, Report]:
        """Make the same compaction as ``X-Tidemark-Summarize: force``, for ``/summarize``."""
        fitted = await self._fitter.fit(context, progress)
        if isinstance(fitted, Refused):
            if not isinstance(fitted.error, CompactionFailed | ContextLengthExceeded):
                raise fitted.error
            return self._failure(context, fitted.error, fitted.report), fitted.report
        report = fitted.report
        if report.action == "failed":
            return self._failure(context, None, report), report
        mark = self._mark_of(context)
        if report.action != "forced":
            return nothing_text(mark, covered=report.summarized, reason=report.warning), report
        text = summarized_text(
            mark,
            messages=report.summarized,
            before=report.tokens_before,
            after=report.tokens_after,
            strategy=report.strategy or context.profile.policy.strategy,
            warning=report.warning,
        )
        return text, report

    def _failure(
        self, context: RequestContext, error: CompactionFailed | ContextLengthExceeded | None, report: Report
    ) -> str:
        """Explain a failed summary in words: a person in a chat sees no header and no status."""
        mark = self._mark_of(context)
        full = report.tokens_before / report.limit if report.limit else None
        if isinstance(error, ContextLengthExceeded):
            return failed_text(mark, "even with a summary, what has to stay is too long for the model", full=full)
        reason = (report.warning or "").partition(": ")[2]  # behind the policy's name
        return failed_text(mark, reason, full=full, retry_seconds=error.retry_after if error else 0.0)

    def _mark_of(self, context: RequestContext) -> str:
        return self._mark_for(context.caller.fingerprint)


def at_rest(context: RequestContext) -> RequestContext:
    """Return the same request with a budget in which nothing is ever due."""
    budget = replace(context.measure.budget, high_water=sys.maxsize, prepare_mark=sys.maxsize, price=None)
    return replace(context, measure=replace(context.measure, budget=budget))


class TakeOutCommands:
    """The step ``take_out_commands``: takes commands out of a request, and answers one that is its newest message."""

    def __init__(self, commands: Commands, identify: Identify) -> None:
        self._commands = commands
        self._identify = identify

    async def __call__(self, walk: Walk) -> Walk | Result:
        """Take the commands out of one request; most have none.

        :raises EarlierMessagesNeeded: its oldest messages were not read
        """
        request, caller = walk.request, walk.caller
        if self._commands.is_free_of_commands(request, caller):
            return walk
        if walk.place is not None and walk.place.left_out.count:
            raise EarlierMessagesNeeded
        rest, command = await self._commands.taken_out(_without_received(request), caller, self._identify.profile)
        if command is not None:
            controls = replace(walk.controls, mode=command.mode)
            context = await self._identify.identify(command.rest, caller, controls)
            if context.profile.policy.answers_commands(rest.dialect.name):
                return await self._commands.answer(command, context, walk.progress)
        if rest.messages is not request.messages:  # without the commands it has another chain
            walk.place = None
        walk.request = rest
        return walk


def _without_received(request: ModelRequest) -> ModelRequest:
    """Return a request that will be changed, and so cannot go out as its client sent it."""
    continuation = request.continuation
    if continuation is None or continuation.received is None:
        return request
    return replace(request, continuation=replace(continuation, received=None))


@frozen
class ContextFacts:
    """The content of the answer to ``/context`` (S2-6), in the tokens of the response headers."""

    tokens: int
    """The whole conversation's."""
    forwarded: int
    """Tokens that the model would get now."""
    limit: int
    window: int
    messages: int
    covered: int
    """How many of the messages a summary stands for."""
    summaries: int | None
    """None if the store does not answer."""
    last_summary_at: float | None
    """Unix time, seconds."""
    strategy: str


def context_text(mark: str, facts: ContextFacts) -> str:
    """Return the answer to ``/context``."""
    share = f"{100 * facts.forwarded / facts.limit:.0f} %" if facts.limit else "all"
    if facts.summaries is None:
        summaries = "unknown, the store does not answer"
    elif facts.last_summary_at is None:
        summaries = f"{facts.summaries:,}"
    else:
        last = datetime.fromtimestamp(facts.last_summary_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        summaries = f"{facts.summaries:,}, the last one of {last}"
    lines = {
        "Total tokens": f"{facts.tokens:,}; the model gets {facts.forwarded:,}",
        "Limit": f"{facts.limit:,} of a window of {facts.window:,}",
        "Used": f"{share} of the limit",
        "Messages": f"{facts.messages:,}, of which a summary stands for {facts.covered:,}",
        "Summaries": summaries,
        "Strategy": facts.strategy,
    }
    return _answer(mark, "Context", lines)


def nothing_text(mark: str, *, covered: int, reason: str | None) -> str:
    """Return the answer to ``/summarize`` if all other messages have to stay.

    :param covered: how many messages a summary stands for already
    """
    return _answer(mark, "Not summarized", {"Messages that a summary stands for": f"{covered:,}"}, reason)


def summarized_text(mark: str, *, messages: int, before: int, after: int, strategy: str, warning: str | None) -> str:
    """Return the answer to ``/summarize`` after a summary was made."""
    lines = {
        "Messages summarized": f"{messages:,}",
        "Tokens": f"{before:,} before, {after:,} after",
        "Strategy": strategy,
    }
    return _answer(mark, "Summarized", lines, warning)


def failed_text(mark: str, reason: str, *, full: float | None = None, retry_seconds: float = 0.0) -> str:
    """Return the answer to ``/summarize`` if no summary could be made (FR-5.1.2).

    :param full: share of the limit that the conversation takes as it is; None if that is unknown
    :param retry_seconds: how long the summarizer is not asked
    """
    when = f" in {math.ceil(retry_seconds)} s" if retry_seconds > 0 else ""
    share = "" if full is None else f" It takes {100 * full:.0f} % of what the model can be sent."
    lines = {
        "Reason": reason,
        "The conversation": f"nothing was changed or lost, and it can go on as it is.{share}",
        "To try again": f"send /summarize once more{when}. Without a summary, a conversation that gets too long for "
        "the model may not be answered any more.",
    }
    return _answer(mark, "Not summarized", lines)


def _answer(mark: str, title: str, lines: dict[str, str], warning: str | None = None) -> str:
    """Write an answer that reads well as plain text and as Markdown."""
    items = [f"- {name}: {text}" for name, text in lines.items()]
    items += [f"- Note: {warning}"] if warning else []
    return "\n".join([f"{mark} {_NOTE}", "", f"{title}:", "", *items])
