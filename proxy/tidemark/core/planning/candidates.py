"""Candidates: the sums over one plan input, and the outcomes that a plan can choose among.

``plan.py`` makes the choice. Sums are computed when they are first needed, because most requests need none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, product
from typing import assert_never

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.native import may_part
from tidemark.core.conversation.summary import PrefixSummary, inner_systems
from tidemark.core.planning.budget import MIN_SUMMARY_TOKENS, SUMMARY_FLOOR_TOKENS, above_head
from tidemark.core.planning.cuts import open_cuts
from tidemark.core.planning.kinds import work_share
from tidemark.core.planning.masks import LINE_TOKENS, maskable
from tidemark.core.planning.price import Compaction, Growth, answer_places, least_freed, priced
from tidemark.core.planning.situation import (
    CannotFit,
    Compact,
    CompactionPlan,
    EarlierMessagesNeeded,
    MaskResults,
    NoCompaction,
    PlanInput,
    Reason,
    ReuseSummary,
    SwapSummary,
)

MOST_EARLIER_TOKENS = 200_000
"""Messages behind a summary are read again up to so many tokens, which takes some 0.3 s of a thread."""


class Candidates:
    """The sums over one plan input, and the outcomes that follow from them."""

    def __init__(self, plan_input: PlanInput, cuts: list[bool] | None = None) -> None:
        if cuts is not None:
            self.cuts = cuts
        self.plan_input = plan_input
        self.places = [place for place, message in enumerate(plan_input.messages) if not message.is_system]
        self.client_messages = [plan_input.messages[place] for place in self.places]
        self.left_out = plan_input.left_out.count
        self.count = self.left_out + len(self.places)
        self.total = plan_input.total
        self.head_end = self.places[0] if self.places else len(plan_input.messages)
        self.head_tokens = (
            plan_input.other_tokens + plan_input.first_summary_tokens + sum(plan_input.tokens[: self.head_end])
        )
        self.budget = plan_input.budget
        if self.budget.price is not None:
            head_tokens, is_cold = self.head_tokens, plan_input.is_cold
            self.budget = priced(self.budget, plan_input.policy, self._growth, head_tokens, is_cold=is_cold)
        else:
            self.budget = above_head(self.budget, plan_input.policy, self.head_tokens)
        self.summary = self._usable_summary()
        self.start = self.summary.covered if self.summary else 0
        self.summarized = self.summary.summarized if self.summary else 0
        """How many messages the summary's text stands for; fewer than ``start`` if results are masked behind them."""
        self.absorbed = frozenset(self.summary.absorbed if self.summary else ())
        if self.left_out and self.summary is None:
            raise EarlierMessagesNeeded

    @cached_property
    def _growth(self) -> Growth:
        """Return how the conversation has grown. Of left-out messages only the tokens are known."""
        client_tokens = self._sum(self.places)
        turns = len(answer_places(self.client_messages))
        tokens = client_tokens / max(turns, 1)
        left_out_turns = self.plan_input.left_out.tokens / tokens if tokens else 0
        return Growth(turns + round(left_out_turns), tokens)

    def pays(self, before: int, after: int, replaced: int) -> bool:
        """Return whether a compaction frees enough for its price; without a price every one does.

        :param before: tokens of the request without it
        :param after: tokens with it
        :param replaced: tokens that a summarizer reads for it; 0 if the summary is there already
        """
        plan_input = self.plan_input
        if plan_input.budget.price is None:
            return True
        compaction, is_cold = Compaction(after - self.head_tokens, replaced), plan_input.is_cold
        freed = least_freed(plan_input.budget, plan_input.policy, self._growth, compaction, is_cold=is_cold)
        return before - after >= freed

    def place(self, covered: int) -> int:
        """Return the place of the first message that is not covered.

        :raises EarlierMessagesNeeded: it was left out
        """
        if covered < self.left_out:
            raise EarlierMessagesNeeded
        return self.places[covered - self.left_out]

    @cached_property
    def max_summary(self) -> int:
        """Return the bound of the summary message, which follows from the kind of the conversation."""
        share = work_share(self.plan_input.messages, self.plan_input.tokens, is_whole=not self.left_out)
        return min(self.budget.summary_for(share), self._most_summary)

    @cached_property
    def _most_summary(self) -> int:
        """Return the bound in a talk: with ``auto``, two thirds of what the head leaves of the low water."""
        if not self.budget.max_work_summary:
            return self.budget.max_summary
        beside_head = (self.budget.low_water - self.head_tokens) * 2 // 3
        return min(self.budget.max_summary, max(beside_head, self.budget.max_work_summary // 2, SUMMARY_FLOOR_TOKENS))

    @cached_property
    def cuts(self) -> list[bool]:
        """Return before which client messages a cut is allowed."""
        return open_cuts(self.client_messages)

    @cached_property
    def tokens_before(self) -> list[int]:
        """Return the tokens before each place; the sum over a range of messages is a difference of two of them."""
        return [0, *accumulate(self.plan_input.tokens)]

    @cached_property
    def system_tokens_before(self) -> list[int]:
        """Return the same for system messages alone, without those that the summary absorbed."""
        pairs = zip(self.plan_input.messages, self.plan_input.tokens, strict=True)
        return [0, *accumulate(tokens if self._stays(message) else 0 for message, tokens in pairs)]

    def _stays(self, message: Message) -> bool:
        return message.is_system and message.digest not in self.absorbed

    def _usable_summary(self) -> PrefixSummary | None:
        """Return the summary if it can be used.

        It must leave the newest message, separate no tool call from its results, and have absorbed only system messages
        of this request.
        """
        summary = self.plan_input.summary
        first = max(self.left_out, 1)
        if summary is None or not first <= summary.covered < self.count or not self.is_open(summary.covered):
            return None
        if summary.absorbed and self.left_out:
            return None
        if summary.absorbed and not summary.holds_for(inner_systems(self.plan_input.messages)):
            return None
        return summary

    def is_open(self, covered: int) -> bool:
        """Return whether a cut is allowed after the first ``covered`` messages."""
        return self.cuts[covered - self.left_out]

    def current(self) -> NoCompaction | ReuseSummary:
        """Return what would be sent without a new summary; a compacted conversation stays compacted (FR-2.4.1)."""
        summary = self.summary
        if summary is None:
            return NoCompaction("fits", self.total)
        return ReuseSummary(summary, self.plan_input.summary_tokens + self.rest_tokens(summary.covered))

    def rest_tokens(self, covered: int) -> int:
        """Return the tokens of a request beside what stands for its first ``covered`` client messages."""
        return self.head_tokens + self.inner_tokens(covered) + self.tail_tokens(covered)

    def prepared(self) -> Candidates | None:
        """Return the candidates with the prepared summary in use, if it stands for more than the present one."""
        prepared = self.plan_input.prepared
        if prepared is None or prepared.covered <= self.start:
            return None
        plan_input = self.plan_input
        swapped = Candidates(
            replace(plan_input, summary=prepared, summary_tokens=plan_input.prepared_tokens, prepared=None), self.cuts
        )
        return swapped if swapped.summary is not None else None

    def swap(self, current: NoCompaction | ReuseSummary) -> SwapSummary | None:
        """Return the swap of the prepared summary, if it brings the request well below the high water."""
        swapped = self.prepared()
        if swapped is None or swapped.summary is None:
            return None
        # If the budget has become smaller, the swap might keep less than a summary that is made for this request.
        choices = self.within_retention(self.candidates(), self.budget.retention)
        # The kind may have changed since the preparation; with both bounds, such a change refuses no swap.
        new_summaries = [self.first_fitting(choices, bound, None) for bound in (self.max_summary, self._most_summary)]
        if all(new_summary is None or swapped.start > new_summary.covered for new_summary in new_summaries):
            return None
        after = swapped.current().tokens
        freed = current.tokens - after
        if after > self.budget.high_water or freed < self.plan_input.policy.min_gain * current.tokens:
            return None
        if current.tokens <= self.budget.limit and not self.pays(current.tokens, after, 0):
            return None
        return SwapSummary(swapped.summary, after, freed + self.plan_input.prepared_tokens)

    def compact_ahead(self, candidates: Sequence[int], coming: int) -> Compact | None:
        """Return the first candidate that stays within the low water after ``coming`` more tokens, else the last."""
        bound = self.max_summary
        if not candidates:
            return None
        fitting = (
            covered for covered in candidates if self.rest_tokens(covered) + bound + coming <= self.budget.low_water
        )
        covered = next(fitting, candidates[-1])
        return self.compact(covered, bound, self.absorbed, None)

    def tail_tokens(self, covered: int) -> int:
        """Return the tokens from the first message on that is not covered."""
        return self.tokens_before[-1] - self.tokens_before[self.place(covered)]

    def inner_tokens(self, covered: int) -> int:
        """Return the tokens of the system messages inside the prefix."""
        return self.system_tokens_before[self.place(covered)] - self.system_tokens_before[self.head_end]

    def inner_places(self, covered: int) -> list[int]:
        """Return the places of the system messages inside the prefix, oldest first."""
        return [
            place for place in range(self.head_end, self.place(covered)) if self._stays(self.plan_input.messages[place])
        ]

    def candidates(self) -> list[int]:
        """Return every number of messages that a new summary could cover, smallest first.

        The newest message always stays.
        """
        # What masked results stand before may be summarized up to the same message.
        first = self.start + (self.summarized == self.start)
        settled = self.plan_input.settled
        end = self.count if settled is None else min(self.count, settled + 1)
        every = [covered for covered in range(first, end) if self.is_open(covered)]
        if not self.plan_input.asks_provider:
            return every
        return [covered for covered in every if self.suits_provider(covered)] or every

    def suits_provider(self, covered: int) -> bool:
        """Return whether the provider may write a summary of so many messages (``may_part``).

        No system message may be among them: it would be told to whoever has equal turns, and moved.
        """
        at = covered - self.left_out
        last = self.client_messages[at - 1] if at else None
        return (last is None or may_part(last, self.client_messages[at])) and not self.inner_places(covered)

    def keeps_last_messages(self, covered: int) -> bool:
        """Return whether ``keep_last_messages`` are left (S2); more may be, since no cut separates a tool call."""
        return covered <= self.count - max(self.plan_input.policy.keep_last_messages, 1)

    def within_retention(self, candidates: Sequence[int], retention: int) -> list[int]:
        """Return the candidates that keep no more than the retention (FR-1.3.3) or ``keep_last_messages`` demand."""
        longest = next((covered for covered in reversed(candidates) if self.keeps_last_messages(covered)), 0)
        return [
            covered for covered in candidates if covered >= longest or self.client_tokens_after(covered) <= retention
        ]

    def client_tokens_after(self, covered: int) -> int:
        """Return the tokens of the client messages that are not covered; a retention is compared with them."""
        systems = self.system_tokens_before
        return self.tail_tokens(covered) - (systems[-1] - systems[self.place(covered)])

    def plan_due(self, current: NoCompaction | ReuseSummary) -> CompactionPlan:
        """Plan a compaction that is due: keep the longest tail that fits, or state why nothing is done."""
        before, budget, policy = current.tokens, self.budget, self.plan_input.policy
        must = before > budget.limit
        if not must and (self.total < budget.min_tokens or self.count < policy.min_messages):
            return _unchanged(current, "below_minimum")
        if (at_hand := self.swap(current) or self.masked(before)) is not None:
            return at_hand
        choices = self.within_retention(self.candidates(), budget.retention)
        if not must and not any(map(self.keeps_last_messages, choices)):
            return _unchanged(current, "nothing_to_summarize")
        planned = self.first_fitting(choices, self.max_summary, None if must else current)
        if planned is None:
            return self.without_cut(current)
        after = planned.rest_tokens + planned.max_summary_tokens
        is_worth_it = before - after >= policy.min_gain * before and self.pays(before, after, planned.replaced_tokens)
        if not must and not is_worth_it:
            return _unchanged(current, "small_gain")
        return planned

    def masked(self, before: int, coming: int = 0) -> MaskResults | None:
        """Return the masks that bring the request to the low water; None if they cannot, or do not pay.

        :param before: tokens of the request as it would be sent without them
        :param coming: tokens that arrive before they come into use
        """
        if not self.plan_input.masks_results or self.left_out:
            return None
        choices = [covered for covered in self.candidates() if self.keeps_last_messages(covered)]
        within = (covered for covered in choices if self.client_tokens_after(covered) <= self.budget.retention - coming)
        end = next(within, choices[-1] if choices else 0)
        if end <= self.start:
            return None
        earlier = self.summary.masked if self.summary else None
        done = frozenset(position for position, _ in earlier.lines) if earlier else frozenset()
        results = maskable(self.client_messages, self._client_tokens(), range(self.summarized, end), done)
        unmasked = before + coming + (0 if self.summary else self.plan_input.first_summary_tokens)
        excess = unmasked - self.budget.low_water
        if coming:  # of what arrives, as much may be masked as of what is there
            share = results.freed[-1] / max(self._sum(self.places[self.summarized : end]), 1) if results.freed else 0.0
            excess -= int(share * max(coming - self.budget.retention, 0))
        positions = results.enough_for(excess)
        if not positions:
            return None
        replaced_tokens = self._sum([self.places[position] for position in positions])
        after = unmasked - replaced_tokens + LINE_TOKENS * len(positions)
        if before + coming - after < self.plan_input.policy.min_gain * before or not self.pays(before, after, 0):
            return None
        return MaskResults(end, positions, after, replaced_tokens, self.summary)

    def plan_forced(self, current: NoCompaction | ReuseSummary) -> CompactionPlan:
        """Plan a compaction by hand: no threshold applies, and the retained messages stay (FR-2.2.1, S2-C4).

        Retention and ``keep_last_messages`` give way only if the request is over its limit, as they do when a
        compaction is due.
        """
        choices = self.within_retention(self.candidates(), self.budget.retention)
        if current.tokens > self.budget.limit:
            return self.first_fitting(choices, self.max_summary, None) or self.without_cut(current)
        for covered in () if self.is_all_retained() else filter(self.keeps_last_messages, choices):
            planned = self.compact(covered, self.max_summary, self.absorbed, current)
            if planned.rest_tokens + planned.max_summary_tokens <= self.budget.limit:
                return planned
        return _unchanged(current, "retained" if self.candidates() else "nothing_to_summarize")

    def is_all_retained(self) -> bool:
        """Return whether all messages without a summary are within the retention, so that none can be summarized."""
        return (
            sum(self.plan_input.tokens[place] for place in self.places[self.summarized - self.left_out :])
            <= self.budget.retention
        )

    def without_cut(self, current: NoCompaction | ReuseSummary) -> CompactionPlan:
        """Plan for a request without an allowed cut: it is sent as it is, if it fits."""
        if current.tokens > self.budget.limit:
            return CannotFit(self.least_tokens(), self.budget.limit)
        return _unchanged(current, "nothing_to_summarize")

    def first_fitting(
        self, candidates: Sequence[int], bound: int, fallback: NoCompaction | ReuseSummary | None
    ) -> Compact | None:
        """Return the first candidate below the low water, else the high water, else the limit.

        Candidates that leave ``keep_last_messages`` come before all others. The last resort is the shortest tail.
        """
        preferred = [covered for covered in candidates if self.keeps_last_messages(covered)]
        marks = (self.budget.low_water, self.budget.high_water, self.budget.limit)
        for choice, mark in product((preferred, candidates), marks):
            for covered in choice:
                if self.rest_tokens(covered) + bound <= mark:
                    return self.compact(covered, bound, self.absorbed, fallback)
        return self.compact_tightly(candidates[-1], bound, fallback) if candidates else None

    def compact_tightly(self, covered: int, bound: int, fallback: NoCompaction | ReuseSummary | None) -> Compact | None:
        """Compact to the shortest tail: absorb the largest system messages, then shorten the summary (FR-5.3.1)."""
        available = self.budget.limit - self.head_tokens - self.tail_tokens(covered)
        by_digest: dict[bytes, int] = {}
        for place in self.inner_places(covered):
            digest = self.plan_input.messages[place].digest
            by_digest[digest] = by_digest.get(digest, 0) + self.plan_input.tokens[place]
        absorbed, inner = set(self.absorbed), self.inner_tokens(covered)
        # The largest come first, so the fewest are reworded and short rules stay as they are.
        for digest, tokens in sorted(by_digest.items(), key=lambda item: -item[1]):
            if inner + bound <= available:
                break
            absorbed.add(digest)
            inner -= tokens
        bound = min(bound, available - inner)
        return self.compact(covered, bound, frozenset(absorbed), fallback) if bound >= MIN_SUMMARY_TOKENS else None

    def compact(
        self, covered: int, bound: int, absorbed: frozenset[bytes], fallback: NoCompaction | ReuseSummary | None
    ) -> Compact:
        """Return the outcome for one choice of prefix."""
        inner = self.inner_places(covered)
        absorbed_places = [place for place in inner if self.plan_input.messages[place].digest in absorbed]
        own_places = self.places[self.summarized - self.left_out : covered - self.left_out]
        replaced_places = sorted([*absorbed_places, *own_places])
        own_tokens = self._sum(replaced_places)
        previous = self.summary.base if self.summary else None
        earlier_tokens = self.plan_input.summary_tokens
        if previous is not self.summary:  # of what masked results stand in, the text alone is a summary
            earlier_tokens = previous.tokens if previous else 0
        return Compact(
            covered=covered,
            messages=tuple(self.plan_input.messages[place] for place in replaced_places),
            previous=previous,
            max_summary_tokens=min(bound, max(earlier_tokens + own_tokens // 2, MIN_SUMMARY_TOKENS)),
            absorbed=tuple(sorted(absorbed)),
            replaced_tokens=own_tokens + earlier_tokens,
            rest_tokens=self.rest_tokens(covered) - self._sum(absorbed_places),
            fallback=fallback,
            earlier=() if self.left_out else earlier_messages(previous, self.client_messages, self._client_tokens()),
        )

    def _client_tokens(self) -> list[int]:
        return [self.plan_input.tokens[place] for place in self.places]

    def _sum(self, places: Sequence[int]) -> int:
        return sum(self.plan_input.tokens[place] for place in places)

    def least_tokens(self) -> int:
        """Return the fewest tokens that a compaction can bring the request to."""
        candidates = self.candidates()
        if not candidates:
            return self.current().tokens
        return self.head_tokens + MIN_SUMMARY_TOKENS + self.tail_tokens(candidates[-1])


def earlier_messages(
    summary: PrefixSummary | None, client_messages: Sequence[Message], tokens: Sequence[int]
) -> tuple[Message, ...]:
    """Return the messages that a summary stands for, if it may be made anew from them.

    A summary of a summary loses what the first one left out for lack of space. What a person, a model or the provider
    wrote is in no message, so such a summary is gone on from, and so is all that was made of it.

    :param client_messages: all of the conversation
    :param tokens: of each of them
    """
    if summary is None or not summary.chosen or summary.edited or summary.absorbed:
        return ()
    count = summary.covered
    return tuple(client_messages[:count]) if sum(tokens[:count]) <= MOST_EARLIER_TOKENS else ()


def _unchanged(current: NoCompaction | ReuseSummary, reason: Reason) -> NoCompaction | ReuseSummary:
    """Return an outcome with the reason why nothing else is done."""
    match current:
        case NoCompaction():
            return NoCompaction(reason, current.tokens)
        case ReuseSummary():
            return ReuseSummary(current.summary, current.tokens, reason)
        case _:
            assert_never(current)
