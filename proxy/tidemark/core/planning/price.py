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


@frozen
class Growth:
    """How a conversation has grown."""

    turns: int
    """The requests so far."""
    tokens: float
    """That a turn adds, on average."""


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
    spared = _compaction_usd(price, policy, low_water - head_tokens, max(floor, low_water), budget)
    interval = 0.0 if is_cold else _interval(price, growth, max(spared, 0.0))
    high_water = int(min(max(floor, low_water + interval), budget.limit))
    if price.long_rates is not None and floor <= price.long_from:
        high_water = min(high_water, price.long_from)  # above it the whole request costs more
    lead = high_water - LEAD_TURNS * growth.tokens
    prepare_mark = min(max(lead, FARTHEST_PREPARE * high_water), NEAREST_PREPARE * high_water)
    return replace(
        budget,
        high_water=high_water,
        prepare_mark=int(prepare_mark) if policy.prepare < 1 else high_water,
        low_water=min(low_water, high_water),
    )


def _interval(price: ModelPrice, growth: Growth, compaction_usd: float) -> float:
    """Return the tokens between the low and the high water: of the least bill, and such that a compaction pays."""
    reading = _reading(price)
    if reading <= 0:
        return math.inf  # what is read again costs nothing, so that no compaction pays
    least_bill = math.sqrt(2 * compaction_usd * growth.tokens / reading)
    pays = compaction_usd / (reading * growth.turns) if growth.turns else math.inf
    return max(least_bill, pays)


def _compaction_usd(
    price: ModelPrice, policy: CompactionPolicy, kept_tokens: int, replaced_tokens: int, budget: Budget
) -> float:
    """Return what a compaction costs beyond a turn without one.

    A model that writes the summary is priced like the conversation's own; a smaller one only makes it cheaper.
    """
    rates, reading = price.rates, _reading(price)
    writing = rates.cache_write if price.cache_seconds else rates.input
    usd = (writing - reading) * kept_tokens
    if policy.strategy != "extractive":
        usd += replaced_tokens * (reading if policy.summarizer_cache_friendly else rates.input)
        usd += budget.summary_for(1) * rates.output
    return usd


def _reading(price: ModelPrice) -> float:
    """Return the USD for each token that was sent before."""
    return price.rates.cache_read if price.cache_seconds else price.rates.input
