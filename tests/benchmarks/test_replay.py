"""The replay's figures: the policies of others come out as they were simulated once, and Tidemark's holds its aims."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from benchmarks.replay import Bill, policies
from benchmarks.shapes import Shape, agent, chat, documents


@cache
def replayed(make: Callable[[], Shape]) -> dict[str, Bill]:
    """Every policy's bill, of a shape that each call makes anew and alike."""
    shape = make()
    return {policy.name: policy.replay(shape) for policy in policies()}


@pytest.fixture(scope="module")
def bills() -> dict[str, Bill]:
    """Of the chat of 400 turns in a window of 32,768."""
    return replayed(chat)


@pytest.mark.parametrize(
    ("policy", "hit", "cost_millions", "summaries"),
    [
        ("never compact", 0.995, 6.05, 0),
        ("compact to just fit", 0.16, 10.83, 332),
        ("low water 50 %", 0.94, 1.67, 16),
        ("append-only segments, 50 %", 0.95, 1.63, 19),
    ],
)
def test_the_policies_of_others_come_out_as_they_were_simulated(
    bills: dict[str, Bill], policy: str, hit: float, cost_millions: float, summaries: int
) -> None:
    """So that the figures of Tidemark's policy can be held against theirs."""
    bill = bills[policy]
    assert bill.hit == pytest.approx(hit, abs=0.01)
    assert bill.cost / 1e6 == pytest.approx(cost_millions, rel=0.05)
    assert abs(bill.summaries - summaries) <= 4


@pytest.mark.parametrize("policy", ["Tidemark, made on demand", "Tidemark, prepared (the default)"])
def test_tidemarks_own_policy_holds_its_aims(bills: dict[str, Bill], policy: str) -> None:
    """At least 94 % of the input from the cache, and no more than 1.7 million."""
    assert bills[policy].hit >= 0.94
    assert bills[policy].cost <= 1.7e6
    assert bills[policy].cost < bills["low water 50 %"].cost


def test_a_prepared_summary_is_never_waited_for(bills: dict[str, Bill]) -> None:
    """Promise 7, in a conversation that grows evenly; on demand every one is."""
    assert bills["Tidemark, prepared (the default)"].waits == 0
    assert bills["Tidemark, made on demand"].waits == bills["Tidemark, made on demand"].summaries


@pytest.mark.parametrize("make", [agent, documents])
def test_it_holds_for_other_conversations_too(make: Callable[[], Shape]) -> None:
    """Agents and documents: the hit stays, nobody waits, nothing is over the limit, no other policy is cheaper."""
    found, shape = replayed(make), make()
    own = found["Tidemark, prepared (the default)"]
    assert own.hit >= 0.94
    assert own.waits == 0
    assert own.largest <= shape.window.window - shape.reply_tokens
    assert own.cost < min(bill.cost for name, bill in found.items() if not name.startswith("Tidemark"))


@pytest.mark.parametrize("make", [chat, agent, documents])
def test_recalled_messages_stay_in_the_cache(make: Callable[[], Shape]) -> None:
    """However often a question recalls, hit and cost are nearly those without recall; nobody waits, and all fits."""
    found, shape = replayed(make), make()
    own = found["Tidemark, prepared (the default)"]
    for bill in [bill for name, bill in found.items() if "recalled" in name]:
        assert bill.recalled > 0
        assert bill.hit >= own.hit - 0.002
        assert bill.cost <= 1.05 * own.cost
        assert bill.waits == 0
        assert bill.largest <= shape.window.window - shape.reply_tokens
