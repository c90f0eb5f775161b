"""One situation with its sums, and what each outcome of the plan would come to.

Below ``plan.py``, which chooses among them. Nothing is added up before it is asked for: most requests end earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, product

from proxy.core.conversation.messages import Message
from proxy.core.conversation.summary import PrefixSummary, inner_systems
from proxy.core.planning.budget import MIN_SUMMARY_TOKENS
from proxy.core.planning.cuts import open_cuts
from proxy.core.planning.situation import (
    CannotFit,
    Compact,
    CompactionPlan,
    NoCompaction,
    PlanInput,
    Reason,
    ReuseSummary,
    SwapSummary,
)


class Candidates:
    """One situation with its sums; every method answers one question about it."""

    def __init__(self, situation: PlanInput, cuts: list[bool] | None = None) -> None:
        if cuts is not None:
            self.cuts = cuts
        self.given = situation
        self.budget = situation.budget
        self.places = [place for place, message in enumerate(situation.messages) if not message.is_system]
        self.said = [situation.messages[place] for place in self.places]
        self.total = situation.total
        self.head_end = self.places[0] if self.places else len(situation.messages)
        self.head = situation.fixed + situation.summary_first + sum(situation.tokens[: self.head_end])
        self.summary = self._usable_summary()
        self.start = self.summary.covered if self.summary else 0
        self.told = frozenset(self.summary.absorbed if self.summary else ())

    @cached_property
    def cuts(self) -> list[bool]:
        """Before which of the non-system messages a cut is allowed."""
        return open_cuts(self.said)

    @cached_property
    def before(self) -> list[int]:
        """Tokens before each place: every sum over a stretch of messages is a difference of two of them."""
        return [0, *accumulate(self.given.tokens)]

    @cached_property
    def systems_before(self) -> list[int]:
        """The same for system messages alone, without those that the summary tells already."""
        pairs = zip(self.given.messages, self.given.tokens, strict=True)
        return [0, *accumulate(tokens if self._stays(message) else 0 for message, tokens in pairs)]

    def _stays(self, message: Message) -> bool:
        return message.is_system and message.digest not in self.told

    def _usable_summary(self) -> PrefixSummary | None:
        """The summary, if it leaves the newest message, tears no tool call, and tells only what the request holds."""
        summary = self.given.summary
        if summary is None or not 0 < summary.covered < len(self.said) or not self.cuts[summary.covered]:
            return None
        if summary.absorbed and not summary.holds_for(inner_systems(self.given.messages)):
            return None
        return summary

    def current(self) -> NoCompaction | ReuseSummary:
        """What would be sent without a new summary; a compacted conversation stays compacted (FR-2.4.1)."""
        summary = self.summary
        if summary is None:
            return NoCompaction("fits", self.total)
        kept = self.given.summary_tokens + self.inner(summary.covered) + self.tail(summary.covered)
        return ReuseSummary(summary, self.head + kept)

    def prepared(self) -> Candidates | None:
        """The same with the prepared summary in its place, if that stands for more than the present one."""
        prepared = self.given.prepared
        if prepared is None or prepared.covered <= self.start:
            return None
        swapped = replace(self.given, summary=prepared, summary_tokens=self.given.prepared_tokens, prepared=None)
        case = Candidates(swapped, self.cuts)
        return case if case.summary is not None else None

    def swap(self, current: NoCompaction | ReuseSummary) -> SwapSummary | None:
        """The prepared summary, if it brings the request well under the mark that it is due at."""
        case = self.prepared()
        if case is None or case.summary is None:
            return None
        # Where the budget got smaller meanwhile, it would keep less than a summary that is made for this request.
        kept = self.retained(self.candidates(), self.budget.retention)
        anew = self.fitting(kept, self.budget.max_summary, None)
        if anew is None or case.start > anew.covered:
            return None
        after = case.current().tokens
        freed = current.tokens - after
        if after > self.budget.high_water or freed < self.given.policy.min_gain * current.tokens:
            return None
        return SwapSummary(case.summary, after, freed + self.given.prepared_tokens)

    def ahead(self, candidates: Sequence[int], coming: int) -> Compact | None:
        """The first candidate that leaves the low water once ``coming`` tokens have come, else the last one."""
        bound = self.budget.max_summary
        if not candidates:
            return None
        fitting = (
            covered
            for covered in candidates
            if self.head + bound + self.inner(covered) + self.tail(covered) + coming <= self.budget.low_water
        )
        covered = next(fitting, candidates[-1])
        return self.compact(covered, bound, self.told, None)

    def tail(self, covered: int) -> int:
        """Tokens of all that stands from the first message that is not covered."""
        return self.before[-1] - self.before[self.places[covered]]

    def inner(self, covered: int) -> int:
        """Tokens of the system messages inside the prefix."""
        return self.systems_before[self.places[covered]] - self.systems_before[self.head_end]

    def inner_systems(self, covered: int) -> list[int]:
        """Places of the system messages inside the prefix, oldest first."""
        return [
            place for place in range(self.head_end, self.places[covered]) if self._stays(self.given.messages[place])
        ]

    def candidates(self) -> list[int]:
        """Every number of messages that a new summary could cover, smallest first; the newest message always stays."""
        return [covered for covered in range(self.start + 1, len(self.said)) if self.cuts[covered]]

    def holds_floor(self, covered: int) -> bool:
        """Whether the floor in messages stays (S2): at least so many, since a cut goes around a tool call."""
        return covered <= len(self.said) - max(self.given.policy.keep_last_messages, 1)

    def retained(self, candidates: Sequence[int], retention: int) -> list[int]:
        """The candidates that keep no more than the retention (FR-1.3.3), or than the floor in messages takes."""
        longest = next((covered for covered in reversed(candidates) if self.holds_floor(covered)), 0)
        return [covered for covered in candidates if covered >= longest or self.said_after(covered) <= retention]

    def said_after(self, covered: int) -> int:
        """Tokens of the non-system messages from the first one that is not covered: what a retention is compared to."""
        systems = self.systems_before
        return self.tail(covered) - (systems[-1] - systems[self.places[covered]])

    def due(self, current: NoCompaction | ReuseSummary) -> CompactionPlan:
        """Compaction is due: find the longest tail that may stay, or say why nothing is done."""
        before, budget, policy = current.tokens, self.budget, self.given.policy
        must = before > budget.limit
        if not must and (self.total < budget.min_tokens or len(self.said) < policy.min_messages):
            return _unchanged(current, "below_minimum")
        if (swap := self.swap(current)) is not None:
            return swap
        kept = self.retained(self.candidates(), budget.retention)
        if not must and not any(map(self.holds_floor, kept)):
            return _unchanged(current, "nothing_to_summarize")
        made = self.fitting(kept, budget.max_summary, None if must else current)
        if made is None:
            return self.stuck(current)
        if not must and before - (made.rest_tokens + made.max_summary_tokens) < policy.min_gain * before:
            return _unchanged(current, "small_gain")
        return made

    def forced(self, current: NoCompaction | ReuseSummary) -> CompactionPlan:
        """Plan a compaction by hand: no threshold is asked, and what has to stay stays (FR-2.2.1, S2-C4).

        Only where the request is over its limit do retention and floor give way, as they do when it is due.
        """
        kept = self.retained(self.candidates(), self.budget.retention)
        if current.tokens > self.budget.limit:
            return self.fitting(kept, self.budget.max_summary, None) or self.stuck(current)
        for covered in () if self.all_retained() else filter(self.holds_floor, kept):
            made = self.compact(covered, self.budget.max_summary, self.told, current)
            if made.rest_tokens + made.max_summary_tokens <= self.budget.limit:
                return made
        return _unchanged(current, "retained" if self.candidates() else "nothing_to_summarize")

    def all_retained(self) -> bool:
        """Whether all that no summary stands for is within the retention, so that nothing is left to summarize."""
        return sum(self.given.tokens[place] for place in self.places[self.start :]) <= self.budget.retention

    def stuck(self, current: NoCompaction | ReuseSummary) -> CompactionPlan:
        """No prefix can be cut off: what there is goes out, if it fits."""
        if current.tokens > self.budget.limit:
            return CannotFit(self.least(), self.budget.limit)
        return _unchanged(current, "nothing_to_summarize")

    def fitting(
        self, candidates: Sequence[int], bound: int, fallback: NoCompaction | ReuseSummary | None
    ) -> Compact | None:
        """The first candidate below the low water, else below the high water, else within the limit by any means.

        One that keeps the floor in messages goes before all that do not.
        """
        held = [covered for covered in candidates if self.holds_floor(covered)]
        marks = (self.budget.low_water, self.budget.high_water, self.budget.limit)
        for choice, mark in product((held, candidates), marks):
            for covered in choice:
                if self.head + bound + self.inner(covered) + self.tail(covered) <= mark:
                    return self.compact(covered, bound, self.told, fallback)
        return self.squeezed(candidates[-1], bound, fallback) if candidates else None

    def squeezed(self, covered: int, bound: int, fallback: NoCompaction | ReuseSummary | None) -> Compact | None:
        """Shortest tail: the largest inner system messages go into the summary, then that is shortened (FR-5.3.1)."""
        room = self.budget.limit - self.head - self.tail(covered)
        by_digest: dict[bytes, int] = {}
        for place in self.inner_systems(covered):
            digest = self.given.messages[place].digest
            by_digest[digest] = by_digest.get(digest, 0) + self.given.tokens[place]
        absorbed, inner = set(self.told), self.inner(covered)
        # The largest first: the fewest are told in other words, and a short rule stays as it is.
        for digest, tokens in sorted(by_digest.items(), key=lambda item: -item[1]):
            if inner + bound <= room:
                break
            absorbed.add(digest)
            inner -= tokens
        bound = min(bound, room - inner)
        return self.compact(covered, bound, frozenset(absorbed), fallback) if bound >= MIN_SUMMARY_TOKENS else None

    def compact(
        self, covered: int, bound: int, absorbed: frozenset[bytes], fallback: NoCompaction | ReuseSummary | None
    ) -> Compact:
        """The outcome for one choice of prefix."""
        inner = self.inner_systems(covered)
        taken_in = [place for place in inner if self.given.messages[place].digest in absorbed]
        gone = sorted([*taken_in, *self.places[self.start : covered]])
        replaced = self._sum(gone) + (self.given.summary_tokens if self.summary else 0)
        return Compact(
            covered=covered,
            messages=tuple(self.given.messages[place] for place in gone),
            previous=self.summary,
            max_summary_tokens=min(bound, max(replaced // 2, MIN_SUMMARY_TOKENS)),
            absorbed=tuple(sorted(absorbed)),
            replaced_tokens=replaced,
            rest_tokens=self.head + self.inner(covered) - self._sum(taken_in) + self.tail(covered),
            fallback=fallback,
        )

    def _sum(self, places: Sequence[int]) -> int:
        return sum(self.given.tokens[place] for place in places)

    def least(self) -> int:
        """The least that the request could be brought to."""
        candidates = self.candidates()
        if not candidates:
            return self.current().tokens
        return self.head + MIN_SUMMARY_TOKENS + self.tail(candidates[-1])


def _unchanged(current: NoCompaction | ReuseSummary, reason: Reason) -> NoCompaction | ReuseSummary:
    if isinstance(current, NoCompaction):
        return NoCompaction(reason, current.tokens)
    return ReuseSummary(current.summary, current.tokens, reason)
