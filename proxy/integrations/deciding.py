"""What becomes of a graph's messages: LangMem's three numbers as a budget of the core, and the core's plan for them.

Below ``langgraph.py``, which asks the model for what is decided here. There is no second planner: the cut, the pairs of
calls and results, and what fits are ``core/planning/plan.py``'s; what is forwarded is ``core/planning/assemble.py``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from langchain_core.messages import BaseMessage

from proxy.core.conversation.messages import Message, digest_of
from proxy.core.conversation.summary import PrefixSummary as CoreSummary
from proxy.core.conversation.summary import SummaryRecipe, inner_systems
from proxy.core.planning.assemble import assemble
from proxy.core.planning.budget import Budget, CompactionPolicy
from proxy.core.planning.cuts import open_cuts
from proxy.core.planning.plan import plan
from proxy.core.planning.situation import CannotFit, Compact, NoCompaction, PlanInput, ReuseSummary
from proxy.integrations.conversion import core_message

TokenCounter = Callable[[Iterable[BaseMessage]], int]
"""Counts the tokens of messages, as LangMem's ``token_counter`` does."""
RECIPE = SummaryRecipe("llm", "langgraph", 1)
_GONE = Message(raw=b"{}", role="user", text="", digest=digest_of(b"told by the summary and gone"))
"""Stands where a graph removed all that its summary tells; it counts nothing and is never shown."""
_MOST = 2**62
"""Tokens; more than any graph holds."""
_POLICY = CompactionPolicy(strategy="llm", min_gain=-inf, min_tokens=0)
"""The graph's own numbers say when; nothing else holds a compaction back."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers of a LangMem user, in the tokens of ``count``."""

    max_tokens: int
    before_summary: int
    """From so many tokens that no summary tells, one is due."""
    max_summary: int
    count: TokenCounter


@dataclass(frozen=True, slots=True)
class Told:
    """A running summary, as far as the plan needs it."""

    text: str
    ids: frozenset[str]
    last: str | None
    tokens: int
    """Of the rendered summary."""


class GraphPlan:
    """A graph's messages and what is known of them; every member answers one question about it.

    :param messages: of the graph, in order, without the rendered summary
    :raises ValueError: a message that follows the last summarized one has been summarized already
    """

    def __init__(self, messages: Sequence[BaseMessage], limits: Limits, told: Told | None) -> None:
        self.limits = limits
        self.told = told
        self.given = [(core_message(message), message) for message in messages]
        self.said = [(core, message) for core, message in self.given if not core.is_system]
        ends = [place for place, message in enumerate(messages) if told and told.last and message.id == told.last]
        upto = self.given[: ends[-1] + 1] if ends else []  # LangMem's may end with a system message
        self.covered = sum(not core.is_system for core, _ in upto)
        for _, message in self.said[self.covered :]:
            if told and message.id in told.ids:
                error = f"Message with ID {message.id} has already been summarized."
                raise ValueError(error)

    @cached_property
    def gone(self) -> bool:
        """Whether the graph removed what its summary tells; then one message of no tokens stands for all that."""
        return self.told is not None and not self.covered

    @cached_property
    def messages(self) -> list[Message]:
        """What is planned over."""
        cores = [core for core, _ in self.given]
        if not self.gone:
            return cores
        head = next((place for place, core in enumerate(cores) if not core.is_system), len(cores))
        return [*cores[:head], _GONE, *cores[head:]]

    @cached_property
    def summary(self) -> CoreSummary | None:
        """The running summary in the core's words; None where it tells the newest message or tears a pair."""
        if self.told is None or not self.said:
            return None
        if not self.gone:
            cuts = open_cuts([core for core, _ in self.said])
            if self.covered == len(self.said) or not cuts[self.covered]:
                return None
        covered, systems = self.covered or 1, inner_systems(self.messages)
        told = [core.digest for core, message in self.given if core.is_system and message.id in self.told.ids]
        absorbed = [digest for digest in told if systems.get(digest, covered + 1) <= covered]  # else it is sent anyway
        return _summary(self.told.text, covered, absorbed)

    def decide(self) -> NoCompaction | ReuseSummary | Compact:
        """The core's plan. What cannot be brought within ``max_tokens`` comes as near as its newest turn allows."""
        situation = self._situation()
        planned = plan(situation)
        kept = planned.previous if isinstance(planned, Compact) else getattr(planned, "summary", None)
        # Where nothing fits, the core would leave the summary out and make one of everything: that may be gone.
        if isinstance(planned, CannotFit) or kept is not self.summary:
            relaxed = replace(situation.budget, limit=_MOST, retention=0)
            planned = plan(replace(situation, budget=relaxed))
        if not isinstance(planned, NoCompaction | ReuseSummary | Compact):  # nothing is over such a limit
            raise TypeError(planned)
        return planned

    def adopted(self, covered: int, absorbed: Sequence[bytes]) -> tuple[frozenset[str], str | None] | None:
        """Ids of what a shared summary tells, and of the last; None where it tells no more than the present one.

        Nor is one adopted that tells a system message which is not this graph's.
        """
        holds = _summary("", covered, absorbed).holds_for(inner_systems(self.messages))
        if not self.covered < covered < len(self.said) or not holds:
            return None
        return self._told(covered, absorbed)

    def leaving(self, covered: int, absorbed: Sequence[bytes]) -> list[BaseMessage]:
        """The messages that leave the context for a summary, oldest first; what an earlier one tells has left before.

        :param covered: of ``messages``
        :param absorbed: digests of the system messages that the summary takes in
        """
        originals, before, position = self._originals(), self.told.ids if self.told else frozenset(), 0
        gone: list[BaseMessage] = []
        for core in self.messages:
            position += not core.is_system
            if position > covered:
                break
            message = originals.get(id(core))
            told = not core.is_system or core.digest in absorbed
            if told and message is not None and message.id not in before:
                gone.append(message)
        return gone

    def room(self, planned: Compact) -> int:
        """Tokens that the rendered summary may take, so that ``max_tokens`` holds."""
        left = self.limits.max_tokens - planned.rest_tokens
        return min(self.limits.max_summary, left) if left > 0 else self.limits.max_summary

    def portions(self, planned: Compact) -> list[list[BaseMessage]]:
        """What is new to the summary, as much at a time as the model is asked to read; no pair is parted."""
        size = max(self.limits.max_tokens, self.limits.before_summary)
        cuts = open_cuts(planned.messages)
        originals = self._originals()
        portions: list[list[BaseMessage]] = []
        tokens = size
        for place, core in enumerate(planned.messages):
            if tokens >= size and cuts[place]:
                portions.append([])
                tokens = 0
            message = originals[id(core)]
            portions[-1].append(message)
            tokens += self.limits.count([message])
        return portions

    def told_by(self, planned: Compact) -> tuple[frozenset[str], str | None]:
        """Ids of all that the new summary tells, and of the last one."""
        return self._told(planned.covered - self.gone, planned.absorbed)

    def around(self, covered: int, absorbed: Sequence[bytes]) -> tuple[list[BaseMessage], list[BaseMessage]]:
        """What stands before and after a summary of the first ``covered`` of ``messages``."""
        originals = self._originals()
        kept = [originals.get(id(core)) for core in assemble(self.messages, _summary("", covered, absorbed))]
        place = kept.index(None)
        return [one for one in kept[:place] if one], [one for one in kept[place:] if one]

    def around_all(self) -> tuple[list[BaseMessage], list[BaseMessage]]:
        """What stands before and after a summary of all that was said: the system messages, and nothing."""
        return [message for _, message in self.given], []

    def _told(self, covered: int, absorbed: Sequence[bytes]) -> tuple[frozenset[str], str | None]:
        left = {message.id for _, message in self.said[covered:]}
        ids = {message.id for _, message in self.said[:covered]}
        ids |= {message.id for core, message in self.given if core.is_system and core.digest in absorbed}
        ids |= (self.told.ids if self.told else frozenset()) - left
        return frozenset(one for one in ids if one), self.said[covered - 1][1].id

    def _situation(self) -> PlanInput:
        limits, summary = self.limits, self.summary
        skipped = {id(core) for core, _ in self.said[: self.covered]} if summary else set()
        skipped.add(id(_GONE))
        originals = self._originals()
        tokens = [0 if id(core) in skipped else limits.count([originals[id(core)]]) for core in self.messages]
        summary_tokens = self.told.tokens if self.told and summary else 0
        first = self.said[self.covered if summary else 0][0] if self.said else None
        start = next((n for n, core in enumerate(self.messages) if core is first), len(self.messages))
        told_of = {*summary.absorbed} if summary else set()
        before = sum(t for t, core in zip(tokens[:start], self.messages, strict=False) if core.digest not in told_of)
        fresh = sum(tokens[start:])
        mark = before + summary_tokens + limits.before_summary - 1
        over = before + summary_tokens + fresh > mark
        orphans = self._orphans()
        torn = sum(limits.count([message]) for _, message in self.said[:orphans])
        budget = Budget(
            window=limits.max_tokens,
            limit=limits.max_tokens,
            high_water=min(mark, limits.max_tokens) if over else mark,
            prepare_mark=mark,
            low_water=limits.max_tokens,
            retention=max(fresh - (torn or limits.before_summary), 0),
            max_summary=limits.max_summary,
            min_tokens=0,
        )
        return PlanInput(
            self.messages,
            tokens,
            0,
            budget,
            _POLICY,
            mode="force" if orphans else "auto",
            summary=summary,
            summary_tokens=summary_tokens,
        )

    def _orphans(self) -> int:
        """How many results stand right after a summary although their calls are gone: a cut of LangMem's."""
        if not self.gone:
            return 0
        calls = {call.id for core, _ in self.said for call in core.calls}
        places = enumerate(core for core, _ in self.said)
        return next((n for n, core in places if core.role != "tool" or core.answers in calls), 0)

    def _originals(self) -> dict[int, BaseMessage]:
        return {id(core): message for core, message in self.given}


def _summary(text: str, covered: int, absorbed: Sequence[bytes]) -> CoreSummary:
    return CoreSummary(b"", covered, text, RECIPE, "llm", "automatic", 0.0, absorbed=tuple(absorbed))
