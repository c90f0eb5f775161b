"""The marks by price: a conversation is compacted as soon as that makes the rest of it cheaper.

``threshold: price`` asks for it. An agent's bill is mostly input that the provider reads from its cache, turn after
turn, so a shorter prefix saves a little at each turn, and a compaction costs the new prefix once. Between two
compactions the request grows from the low water ``l`` to the high water ``h``, by ``g`` tokens a turn. A turn then
costs on average::

    r * (l + h) / 2  +  k * g / (h - l)

``r`` is the price of reading a token again, and ``k`` is what a compaction costs: what stays is written to the cache
instead of read, and a model may write the summary. The sum is least at ``h = l + sqrt(2 * k * g / r)``. A compaction
must also pay within the turns that are left. Nobody knows them, so as many are expected as the conversation has had
(Lindy's law). docs/cost.md has the formula with an example.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen
from tidemark.core.money import ModelPrice
from tidemark.core.planning.budget import Budget, CompactionPolicy

LEAD_TURNS = 3
"""The next summary is prepared so many turns before the high water, by the conversation's own growth."""
NEAREST_PREPARE, FARTHEST_PREPARE = 0.95, 0.5
"""Shares of the high water between which it is prepared."""
LEAST_FREED = 0.5
"""The least that a compaction frees, as a share of the floor. Else a large head would have one at each turn."""


@frozen
class Growth:
    """How a conversation has grown."""

    turns: int
    """The requests so far."""
    tokens: float
    """That a turn adds, on average."""


@frozen
class Compaction:
    """What a compaction would leave, read and write, in tokens."""

    kept_tokens: int
    """What stays behind the head, with the summary."""
    replaced_tokens: int
    """What a model reads for the summary; 0 if the summary is there already."""


def answer_places(messages: Sequence[Message]) -> list[int]:
    """Return the place of each answer. The parts of one answer, which some formats send apart, are one."""
    roles = ["", *(message.role for message in messages)]
    return [place for place, role in enumerate(roles[1:]) if role == "assistant" != roles[place]]


def priced(budget: Budget, policy: CompactionPolicy, growth: Growth, head_tokens: int, *, is_cold: bool) -> Budget:
    """Return the budget with the marks of one conversation, in tokens; the same one if its model has no price.

    The high water is never below the budget's own, which is the policy's floor, and never above the limit. A client's
    system message and tools stay, so the low water is above them.

    :param head_tokens: of what no compaction removes: system messages, tools
    :param is_cold: whether the provider's cache has lost the prefix, so that the next turn costs the same anyway
    """
    price = budget.price
    if price is None:
        return budget
    floor = budget.high_water
    low_water = min(head_tokens + budget.low_water, budget.limit)
    high_water = float(max(floor, low_water))
    for _ in range(2):  # a model reads up to the high water, which depends on what that costs
        compaction = Compaction(low_water - head_tokens, int(min(high_water, budget.limit)) - head_tokens)
        freed = least_freed(budget, policy, growth, compaction, is_cold=is_cold)
        high_water = max(floor, low_water + freed)
    high_water = int(min(high_water, budget.limit))
    if price.long_rates is not None and floor <= price.long_from and growth.turns:
        high_water = min(high_water, price.long_from)  # above it the whole request costs more
    lead = high_water - LEAD_TURNS * growth.tokens
    prepare_mark = min(max(lead, FARTHEST_PREPARE * high_water), NEAREST_PREPARE * high_water)
    return replace(
        budget,
        high_water=high_water,
        prepare_mark=int(prepare_mark) if policy.prepare < 1 else high_water,
        low_water=min(low_water, high_water),
    )


def least_freed(
    budget: Budget, policy: CompactionPolicy, growth: Growth, compaction: Compaction, *, is_cold: bool
) -> float:
    """Return how many tokens a compaction must free, for the least bill and to pay at all.

    ``budget`` is the policy's, with the floor as its high water. Without a price any number pays.
    """
    price = budget.price
    if price is None:
        return 0.0
    reading, usd = _reading(price), _compaction_usd(price, policy, compaction, budget, is_cold=is_cold)
    if reading <= 0:
        return math.inf  # what is read again costs nothing, so that no compaction pays
    least_bill = math.sqrt(2 * usd * growth.tokens / reading)
    pays = usd / (reading * growth.turns) if growth.turns else math.inf
    return max(least_bill, pays, LEAST_FREED * budget.high_water)


def _compaction_usd(
    price: ModelPrice, policy: CompactionPolicy, compaction: Compaction, budget: Budget, *, is_cold: bool
) -> float:
    """Return what a compaction costs beyond a turn without one.

    A model that writes the summary is priced like the conversation's own; a smaller one only makes it cheaper.
    """
    rates, reading = price.rates, _reading(price)
    writing = rates.cache_write if price.cache_seconds else rates.input
    usd = 0.0 if is_cold else max(writing - reading, 0.0) * max(compaction.kept_tokens, 0)
    if policy.strategy != "extractive" and compaction.replaced_tokens:
        usd += max(compaction.replaced_tokens, 0) * (reading if policy.summarizer_cache_friendly else rates.input)
        usd += budget.summary_for(1) * rates.output
    return usd


def _reading(price: ModelPrice) -> float:
    """Return the USD for each token that was sent before."""
    return price.rates.cache_read if price.cache_seconds else price.rates.input
