"""The marks by price: what the bill of the rest depends on moves them in the right direction."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.pages import ROOT
from tidemark.core.conversation.messages import Message, Role
from tidemark.core.conversation.summary import Strategy
from tidemark.core.money import ModelPrice, Rates
from tidemark.core.planning.budget import Budget, CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.core.planning.forecast import Forecast, forecast
from tidemark.core.planning.price import Compaction, Growth, answer_places, least_freed, priced
from tidemark.core.planning.situation import PlanInput

HAIKU = ModelPrice(Rates(input=1e-6, output=5e-6, cache_read=1e-7, cache_write=1.25e-6))
POLICY = CompactionPolicy(by_price=True, strategy="extractive")
GROWTH = Growth(turns=100, tokens=1500)
HEAD = 12_000
STRATEGIES: tuple[tuple[Strategy, bool], ...] = (("extractive", False), ("hybrid", True), ("hybrid", False))
"""Each with whether the summarizer reads the cached prefix."""

growths = st.builds(Growth, st.integers(0, 2000), st.floats(0, 50_000))
heads = st.integers(0, 300_000)
idle = st.sampled_from([0.0, 3600.0])
amounts = st.floats(1e-9, 1e-3)
prices = st.builds(ModelPrice, st.builds(Rates, amounts, amounts, amounts, amounts))
policies = st.builds(
    CompactionPolicy,
    by_price=st.just(value=True),
    strategy=st.sampled_from(["extractive", "hybrid"]),
    summarizer_cache_friendly=st.booleans(),
)


def budget(price: ModelPrice | None = HAIKU, policy: CompactionPolicy = POLICY, window: int = 1_000_000) -> Budget:
    """The budget of a model with a large window."""
    return budget_for(ModelProfile("m", ModelWindow(window, 32_000), policy, price=price), None)


def marks(
    price: ModelPrice = HAIKU,
    growth: Growth = GROWTH,
    head: int = HEAD,
    policy: CompactionPolicy = POLICY,
    *,
    cold: bool = False,
) -> Budget:
    """The budget of one conversation."""
    return priced(budget(price, policy), policy, growth, head, is_cold=cold)


def test_the_high_water_is_where_the_bill_of_the_rest_is_least() -> None:
    """Checked by trying all of them: the mean cost of a turn between two compactions, as the module states it."""

    def cost_of_a_turn(high: int) -> float:
        low = HEAD + 10_000
        compaction = (1.25e-6 - 1e-7) * 10_000
        return 1e-7 * (low + high) / 2 + compaction * 5000 / (high - low)

    best = min(range(HEAD + 11_000, 400_000, 250), key=cost_of_a_turn)
    assert marks(growth=Growth(100, 5000)).high_water == pytest.approx(best, abs=500)
    assert best > 50_000


def test_a_conversation_is_not_compacted_below_the_floor_however_dear_reading_is() -> None:
    """Each compaction loses something."""
    dear = ModelPrice(Rates(1e-3, 1e-3, 1e-3, 1e-3))
    assert marks(dear, head=0).high_water == 40_000
    assert marks(dear, head=0, policy=replace(POLICY, price_floor=70_000)).high_water == 70_000


@given(prices, growths, heads, policies, idle)
def test_the_marks_are_in_order_and_within_the_limit(
    price: ModelPrice, growth: Growth, head: int, policy: CompactionPolicy, idle_seconds: float
) -> None:
    """Whatever a model costs, and however a conversation grows."""
    made = marks(price, growth, head, policy, cold=idle_seconds > price.cache_seconds)
    assert 0 < made.low_water <= made.high_water <= made.limit
    assert 0 < made.prepare_mark <= made.high_water
    assert made.high_water >= min(policy.price_floor, made.limit)


@given(prices, growths, heads, policies, st.floats(1, 50))
def test_dearer_reads_never_raise_the_mark(
    price: ModelPrice, growth: Growth, head: int, policy: CompactionPolicy, factor: float
) -> None:
    """What is read again and again is what a compaction saves."""
    dearer = replace(price, rates=replace(price.rates, cache_read=price.rates.cache_read * factor))
    assert marks(dearer, growth, head, policy).high_water <= marks(price, growth, head, policy).high_water + 1


@given(prices, growths, heads, policies, st.floats(1, 50))
def test_dearer_writes_never_lower_the_mark(
    price: ModelPrice, growth: Growth, head: int, policy: CompactionPolicy, factor: float
) -> None:
    """A compaction writes the new prefix to the cache."""
    dearer = replace(price, rates=replace(price.rates, cache_write=price.rates.cache_write * factor))
    assert marks(dearer, growth, head, policy).high_water >= marks(price, growth, head, policy).high_water - 1


@given(prices, growths, heads, policies, st.integers(1, 1000))
def test_a_longer_conversation_is_never_compacted_later(
    price: ModelPrice, growth: Growth, head: int, policy: CompactionPolicy, more: int
) -> None:
    """As many turns are expected as there were, and a compaction pays over them."""
    longer = replace(growth, turns=growth.turns + more)
    assert marks(price, longer, head, policy).high_water <= marks(price, growth, head, policy).high_water


@given(prices, growths, heads, policies)
def test_a_cold_cache_never_raises_the_mark(
    price: ModelPrice, growth: Growth, head: int, policy: CompactionPolicy
) -> None:
    """The next turn pays for all of its input anyway."""
    cold = marks(price, growth, head, policy, cold=True)
    assert cold.high_water <= marks(price, growth, head, policy).high_water


def test_a_compaction_must_pay_within_as_many_turns_as_there_were() -> None:
    """The second request of a conversation with a long first message pays at once for what may end there."""
    high_waters = [marks(growth=Growth(turns, 1500)).high_water for turns in (0, 1, 5, 100)]
    assert high_waters == sorted(high_waters, reverse=True)
    assert high_waters[0] == budget().limit, "the first request is never compacted for money"
    saved_each_turn = 1e-7 * (high_waters[1] - HEAD - 10_000)
    assert saved_each_turn == pytest.approx((1.25e-6 - 1e-7) * 10_000, rel=0.01)


def test_a_model_that_writes_the_summary_makes_compactions_rarer() -> None:
    """Its reading and writing are on the bill; from the cached prefix it reads for a tenth."""
    chosen, cached, written = (
        marks(policy=replace(POLICY, strategy=strategy, summarizer_cache_friendly=friendly)).high_water
        for strategy, friendly in STRATEGIES
    )
    assert chosen < cached < written


def test_the_mark_is_below_the_length_from_which_a_model_costs_more() -> None:
    """Above it, all tokens of a request cost twice as much."""
    rates = HAIKU.rates
    tiered = replace(HAIKU, long_rates=replace(rates, input=2e-6, cache_read=2e-7), long_from=200_000)
    assert marks(tiered, Growth(1, 1500)).high_water == 137_000
    assert marks(replace(tiered, long_from=100_000), Growth(1, 1500)).high_water == 100_000
    assert marks(tiered, Growth(0, 1500)).high_water == budget().limit, "a first request is not compacted for money"


def test_the_next_summary_is_prepared_three_turns_early() -> None:
    """By the conversation's own growth, so that none waits and none is made long before it is used."""
    made = marks(growth=Growth(100, 2000))
    assert made.prepare_mark == made.high_water - 6000


def test_the_head_is_above_no_mark() -> None:
    """An agent's tools may be larger than the floor; what a compaction leaves of the messages is the same."""
    made = marks(head=60_000)
    assert made.low_water == 70_000
    assert made.high_water > 80_000


@pytest.mark.parametrize(
    "price",
    [None, ModelPrice(Rates(0.0, 0.0, 0.0, 0.0))],
)
def test_a_model_without_a_price_has_its_usual_marks(price: ModelPrice | None) -> None:
    """Unknown, or free as a server of one's own: no money can be saved."""
    usual = budget(price, CompactionPolicy(strategy="extractive"))
    assert budget(price) == usual
    assert priced(usual, POLICY, GROWTH, HEAD, is_cold=False) == usual


def test_a_window_below_the_floor_has_its_usual_marks() -> None:
    """It overflows before a compaction pays."""
    assert budget(window=40_000) == budget(policy=CompactionPolicy(strategy="extractive"), window=40_000)


def test_a_provider_without_a_cache_reads_everything_at_the_price_of_input() -> None:
    """So each token that is left out saves its whole price at each turn."""
    uncached = ModelPrice(Rates(1e-6, 5e-6, 1e-6, 1e-6), cache_seconds=0)
    assert marks(uncached, head=0).high_water == 40_000


def test_the_example_of_the_page_is_what_the_code_computes() -> None:
    """docs/cost.md, "Compact as soon as it pays"."""
    made = marks(growth=Growth(100, 3000), head=12_000)
    assert (made.low_water, made.high_water) == (22_000, 48_267)
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    assert all(f"{mark:,}" in page for mark in (made.low_water, made.high_water))


def test_the_parts_of_one_answer_are_one_turn() -> None:
    """Responses sends reasoning, calls and words as items of their own."""
    roles: list[Role] = ["user", "assistant", "assistant", "tool", "assistant", "user", "assistant", "assistant"]
    messages = [Message(raw=b"", role=role, text="", digest=b"") for role in roles]
    assert answer_places(messages) == [1, 4, 6]


def test_a_large_head_does_not_have_a_compaction_at_each_turn() -> None:
    """Also where one costs nothing: without a cache, or after it has run out."""
    uncached = ModelPrice(Rates(1e-6, 5e-6, 1e-6, 1e-6), cache_seconds=0)
    for made in (marks(uncached, head=60_000), marks(head=60_000, cold=True)):
        assert made.high_water - made.low_water >= 20_000


@given(prices, growths, policies, st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_compaction_that_keeps_more_must_free_no_less(
    price: ModelPrice, growth: Growth, policy: CompactionPolicy, kept: int, more: int
) -> None:
    """What stays is written to the cache again."""
    own = budget(price, policy)
    less, greater = (
        least_freed(own, policy, growth, Compaction(size, 1000), is_cold=False) for size in (kept, kept + more)
    )
    assert greater >= less


def sent_by(policy: CompactionPolicy, turns: int, growth: int, head: int = 20_000) -> tuple[float, int]:
    """The cost of an agent's turns beside no compaction, and how many compactions there were."""
    messages = [Message(raw=b"0", role="system", text="", digest=b"s")]
    tokens = [head]
    whole = cost = 0.0
    before = before_whole = compactions = 0
    latest: Forecast | None = None
    for number in range(turns):
        messages.append(Message(raw=b"1", role="user", text="x", digest=b"u%d" % number))
        tokens.append(growth // 2)
        situation = PlanInput(list(messages), list(tokens), 3, budget(HAIKU, policy), policy)
        latest = forecast(situation, latest)
        cached = head if latest.compacted else before
        cost += 1e-7 * cached + 1.25e-6 * (latest.tokens - cached)
        whole += 1e-7 * before_whole + 1.25e-6 * (situation.total - before_whole)
        before_whole, before, compactions = situation.total, latest.tokens, compactions + latest.compacted
        messages.append(Message(raw=b"2", role="assistant", text="y", digest=b"a%d" % number))
        tokens.append(growth - growth // 2)
    return cost / whole, compactions


@pytest.mark.parametrize("growth", [1500, 3000, 5000, 8000, 15_000])
@pytest.mark.parametrize("turns", [10, 20, 40, 80])
@pytest.mark.parametrize("keep", [0, 10])
def test_a_conversation_gets_cheaper_or_ends_right_after_its_first_compaction(
    keep: int, turns: int, growth: int
) -> None:
    """Whatever must stay of it: where a compaction frees too little for its price, there is none."""
    ratio, compactions = sent_by(replace(POLICY, keep_last_messages=keep), turns, growth)
    assert ratio <= (1.1 if turns <= 20 else 1.0)
    assert compactions <= turns / 4
