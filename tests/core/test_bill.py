"""What a turn would have cost uncompacted: no money is invented, and sums add up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidemark.core.bill import BilledTurn, BillFigures, EarlierTurn, bill_json, billed_tokens, compacted, uncompacted
from tidemark.core.money import BilledTokens, ModelPrice, Rates
from tidemark.core.report import ShadowReport, Usage

COUNTS = st.integers(0, 10**7)
AMOUNT = st.floats(0, 1e-4)
BILLED = st.builds(BilledTokens, COUNTS, COUNTS, COUNTS, COUNTS)
RATES = st.builds(Rates, AMOUNT, AMOUNT, AMOUNT, AMOUNT)
EARLIER = st.none() | st.builds(EarlierTurn, st.just("m"), COUNTS, st.floats(-1e6, 1e12), st.booleans())
TURNS = st.builds(
    BilledTurn, st.just("m"), BILLED, COUNTS, COUNTS, COUNTS, st.booleans(), st.floats(-1e6, 1e12), st.integers(1, 4)
)
SONNET = ModelPrice(Rates(3e-6, 15e-6, 0.3e-6, 3.75e-6))
LIMIT = 200_000
UNCACHED = EarlierTurn("m", 4000, 999.0, caches=False)
"""A turn before whose provider has shown no cache."""


def turn(billed: BilledTokens, before: int, after: int, *, is_changed: bool = False, at: float = 1000.0) -> BilledTurn:
    """Make a turn of one question to the model."""
    return BilledTurn("m", billed, before, after, LIMIT, is_changed, at)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_the_parts_of_the_input_add_up_to_what_the_provider_counted(
    fresh: int, cached: int, writes: int, output: int
) -> None:
    """Nothing is billed twice."""
    total = fresh + cached + writes
    assert billed_tokens(Usage(total, cached, output, writes)) == BilledTokens(fresh, cached, writes, output)


@given(COUNTS, COUNTS, RATES)
def test_what_is_written_for_an_hour_is_billed_at_its_own_rate(writes: int, hour: int, rates: Rates) -> None:
    """Only that part of the writes; uncompacted, the same part of more tokens."""
    billed = billed_tokens(Usage(writes + hour, 0, 0, writes + hour, hour))
    assert billed == BilledTokens(0, 0, writes + hour, 0, hour)
    usd = ModelPrice(rates).usd(billed)
    assert usd == pytest.approx(writes * rates.cache_write + hour * rates.hour_write)
    assert usd >= ModelPrice(rates).usd(replace(billed, hour_writes=0)) * (1 - 1e-12)
    whole = uncompacted(turn(billed, 30_000, 10_000), None, 0.0)
    assert 0 <= whole.hour_writes <= whole.cache_writes
    if hour == 0 or writes == 0:
        assert whole.hour_writes == (0 if hour == 0 else whole.cache_writes)


def test_a_prefix_that_was_written_for_an_hour_is_read_after_half_of_it() -> None:
    """So no saving is invented for a turn after a pause."""
    hourly = BilledTokens(0, 0, 5000, 100, 5000)
    before = EarlierTurn("m", 9000, 1000.0 - 1800, caches=True)
    changed = turn(hourly, 10_000, 5000, is_changed=True)
    assert uncompacted(changed, before, 300.0).cached == 9000
    assert uncompacted(replace(changed, billed=replace(hourly, hour_writes=0)), before, 300.0).cached == 0


@pytest.mark.parametrize(
    "usage",
    [
        Usage(None, 1, 1),
        Usage(10, 11, 1),
        Usage(10, 6, 1, 5),
        Usage(10, 0, 1, 5, 6),
        Usage(-1, 0, 0),
        Usage(10, -1, 1),
        Usage(10, 0, -1),
    ],
)
def test_counts_that_cannot_be_are_no_bill(usage: Usage) -> None:
    """Usage that a provider leaves out or sends wrong makes no invented money."""
    assert billed_tokens(usage) is None


def test_what_a_provider_does_not_report_counts_as_none() -> None:
    """Many servers report no cache."""
    assert billed_tokens(Usage(10)) == BilledTokens(10)


@given(TURNS, EARLIER, RATES)
def test_a_turn_that_went_out_as_it_came_saves_exactly_nothing(
    asked: BilledTurn, before: EarlierTurn | None, rates: Rates
) -> None:
    """Whatever was cached, counted or known before."""
    asked, figures = replace(asked, tokens_before=asked.tokens_after), BillFigures()
    figures.add_turn(asked, ModelPrice(rates), before)
    assert not figures.saved_usd
    assert uncompacted(asked, before, 300) == asked.billed


@given(TURNS, EARLIER, st.floats(0, 1e6))
def test_an_uncompacted_turn_is_a_bill_that_can_be(
    asked: BilledTurn, before: EarlierTurn | None, cache_seconds: float
) -> None:
    """No count is below 0, the output is equal, and no input is beyond the limit that a request has."""
    whole = uncompacted(asked, before, cache_seconds)
    assert min(whole.fresh, whole.cached, whole.cache_writes) >= 0
    assert whole.output == asked.billed.output
    if not asked.is_whole:
        most = max(asked.limit, asked.tokens_after)
        assert whole.input <= round(asked.billed.input / asked.rounds * most / asked.tokens_after)


@given(TURNS, EARLIER, RATES, AMOUNT)
def test_dearer_cache_reads_never_lower_the_saving_of_a_reused_summary(
    asked: BilledTurn, before: EarlierTurn | None, rates: Rates, more: float
) -> None:
    """What is left out of a cached request would have been read from the cache."""
    before_tokens = max(asked.tokens_before, asked.tokens_after)
    asked = replace(asked, is_changed=False, rounds=1, tokens_before=before_tokens)
    cheap, dear = (ModelPrice(replace(rates, cache_read=rate)) for rate in (rates.cache_read, rates.cache_read + more))
    whole = uncompacted(asked, before, 300)
    savings = [price.usd(whole) - price.usd(asked.billed) for price in (cheap, dear)]
    assert savings[1] >= savings[0] - 1e-6 * max(1, abs(savings[0]))


@given(st.lists(st.tuples(TURNS, EARLIER)), RATES)
def test_the_bill_of_all_is_the_sum_of_the_bills(
    turns: list[tuple[BilledTurn, EarlierTurn | None]], rates: Rates
) -> None:
    """Workers and days add up exactly."""
    price, total, parts = ModelPrice(rates), BillFigures(), BillFigures()
    for asked, before in turns:
        total.add_turn(asked, price, before)
        part = BillFigures()
        part.add_turn(asked, price, before)
        parts.add(part)
    assert parts == total


@given(TURNS, EARLIER)
def test_without_a_price_there_are_tokens_and_no_money(asked: BilledTurn, before: EarlierTurn | None) -> None:
    """Nobody knows what it cost, so nothing is said to be saved."""
    figures = BillFigures()
    figures.add_turn(asked, None, before)
    described = bill_json(figures)
    assert [described[name] for name in ("paid_usd", "uncompacted_usd", "saved_usd", "summaries_usd")] == [None] * 4
    assert described["input_tokens"] == asked.billed.input
    assert described["unpriced_requests"] == 1


def test_a_reused_summary_saves_what_would_have_been_read_from_the_cache() -> None:
    """10,000 tokens are left out of a request whose prefix is cached: they would have cost a tenth of new ones."""
    asked = turn(BilledTokens(fresh=100, cached=4900), 15_000, 5000)
    assert uncompacted(asked, None, 300) == BilledTokens(fresh=100, cached=14_900)


def test_a_new_summary_is_compared_with_the_cache_of_the_turn_before() -> None:
    """The uncompacted request would have read what it wrote before, and written its newest messages only."""
    asked = turn(BilledTokens(fresh=0, cached=1000, cache_writes=4000), 15_000, 5000, is_changed=True)
    before = EarlierTurn("m", 14_000, 900.0, caches=True)
    assert uncompacted(asked, before, 300) == BilledTokens(fresh=0, cached=14_000, cache_writes=1000)
    figures = BillFigures()
    figures.add_turn(asked, SONNET, before)
    assert figures.saved_usd is not None
    assert figures.saved_usd < 0  # writing the new prefix costs more than reading the old one would have


def test_a_pause_longer_than_the_cache_s_life_reads_nothing() -> None:
    """Then the whole uncompacted request would have been written anew."""
    asked = turn(BilledTokens(fresh=0, cache_writes=5000), 15_000, 5000, is_changed=True, at=1301)
    before = EarlierTurn("m", 14_000, 1000.0, caches=True)
    assert uncompacted(asked, before, 300) == BilledTokens(cache_writes=15_000)


def test_a_clock_that_jumps_back_counts_as_no_time() -> None:
    """The cache is as warm as it can be, which is the smaller saving."""
    asked = turn(BilledTokens(cache_writes=5000), 15_000, 5000, is_changed=True, at=10)
    before = EarlierTurn("m", 14_000, 1000.0, caches=True)
    assert uncompacted(asked, before, 300).cached == 14_000


def test_without_a_known_turn_before_all_counts_as_cached() -> None:
    """So that no saving is invented."""
    asked = turn(BilledTokens(fresh=10, cache_writes=4990), 15_000, 5000, is_changed=True)
    assert uncompacted(asked, None, 300) == BilledTokens(cached=15_000)


def test_a_provider_that_caches_nothing_bills_all_as_new() -> None:
    """Each turn would have paid for the whole history."""
    asked = turn(BilledTokens(fresh=5000), 15_000, 5000)
    assert uncompacted(asked, EarlierTurn("m", 14_000, 999.0, caches=False), 300) == BilledTokens(fresh=15_000)


@given(TURNS, EARLIER)
def test_nothing_known_of_the_turn_before_never_means_a_larger_saving(asked: BilledTurn, before: EarlierTurn) -> None:
    """A provider of a priced cache may read all of it, whether or not it has shown that yet."""
    amounts = []
    for known in (None, before):
        figures = BillFigures()
        figures.add_turn(replace(asked, rounds=1, is_changed=True), SONNET, known)
        assume(not figures.unpriced)  # so much money is no bill
        amounts.append(figures.uncompacted_nano)
    assert amounts[0] <= amounts[1] + 1


def test_several_rounds_are_priced_by_the_length_of_one() -> None:
    """Two rounds of 150,000 tokens are no request beyond 200,000."""
    tiered = replace(SONNET, long_rates=Rates(6e-6, 22e-6, 0.6e-6, 7.5e-6), long_from=200_000)
    figures = BillFigures()
    asked = BilledTurn(
        "m", BilledTokens(fresh=300_000), 150_000, 150_000, LIMIT, is_changed=False, answered_at=1.0, rounds=2
    )
    figures.add_turn(asked, tiered, None)
    assert figures.paid_usd == pytest.approx(0.9)


def test_a_summary_with_a_price_is_no_loss_of_requests_without() -> None:
    """What they would have cost is unknown."""
    figures = BillFigures()
    figures.add_turn(turn(BilledTokens(fresh=5000), 15_000, 5000), None, None)
    figures.add_summary(BilledTokens(fresh=1000), SONNET)
    assert (figures.uncompacted_usd, figures.saved_usd) == (None, None)
    assert figures.paid_usd == pytest.approx(0.003)


def test_recalled_messages_that_make_a_request_longer_are_a_loss() -> None:
    """The proxy says so."""
    figures = BillFigures()
    figures.add_turn(turn(BilledTokens(fresh=6000), 5000, 6000), SONNET, UNCACHED)
    assert figures.saved_usd == pytest.approx(-0.003)


def test_no_request_beyond_the_limit_is_compared_with() -> None:
    """It would have been refused, and a refusal costs nothing."""
    asked = turn(BilledTokens(fresh=5000), 900_000, 5000)
    assert uncompacted(asked, None, 300).input == LIMIT


def test_a_search_is_no_part_of_the_uncompacted_turn() -> None:
    """The model had all messages, so it would have been asked once."""
    asked = replace(turn(BilledTokens(fresh=10_000), 15_000, 5000), rounds=2)
    assert uncompacted(asked, None, 300).input == 15_000


def test_the_summaries_are_part_of_what_was_paid() -> None:
    """A saving is net of them; if nobody knows what one cost, nobody knows the saving."""
    figures = BillFigures()
    figures.add_turn(turn(BilledTokens(fresh=5000), 15_000, 5000), SONNET, UNCACHED)
    figures.add_summary(BilledTokens(fresh=1000, output=1000), SONNET)
    assert figures.paid_usd == pytest.approx(0.015 + 0.018)
    assert figures.saved_usd == pytest.approx(0.045 - 0.033)
    figures.add_summary(None, SONNET)
    assert figures.saved_usd is None
    assert figures.paid_usd is not None


def test_a_count_that_no_request_can_have_makes_no_money() -> None:
    """A provider that sends a billion tokens is wrong."""
    figures = BillFigures()
    figures.add_turn(turn(BilledTokens(fresh=10**12), 10, 10), SONNET, None)
    figures.add_turn(turn(BilledTokens(fresh=10**7), 10**7, 1), SONNET, None)
    assert (figures.paid_usd, figures.uncompacted_usd, figures.unpriced) == (None, None, 2)


def test_the_page_s_example_is_what_the_bill_says() -> None:
    """``docs/cost.md`` has two requests of a compacted conversation, with their amounts."""
    price = ModelPrice(Rates(1e-6, 5e-6, 1e-7, 1.25e-6))
    before = EarlierTurn("m", 98_000, 900.0, caches=True)
    compacted = turn(BilledTokens(0, 5000, 15_000, 500), 100_000, 20_000, is_changed=True)
    reused = turn(BilledTokens(0, 20_000, 2000, 500), 102_000, 22_000)
    page = (Path(__file__).parents[2] / "docs" / "cost.md").read_text("utf-8")
    for asked in (compacted, reused):
        figures = BillFigures()
        whole = figures.add_turn(asked, price, before)
        before = EarlierTurn("m", whole.input, 1000.0, caches=True)
        paid, uncompacted_usd, saved = figures.paid_usd, figures.uncompacted_usd, figures.saved_usd
        assert None not in (paid, uncompacted_usd, saved)
        sign = "-" if (saved or 0) < 0 else ""
        amounts = f"| ${paid:.5f} | ${uncompacted_usd:.5f} | {sign}${abs(saved or 0):.5f} |"
        assert f"| {asked.billed.cached:,} | {asked.billed.cache_writes:,} {amounts}" in page


def test_what_is_free_costs_nothing_and_is_known() -> None:
    """A server of one's own, with a price of 0."""
    figures = BillFigures()
    figures.add_turn(turn(BilledTokens(fresh=10), 20, 10), ModelPrice(Rates(0, 0, 0, 0)), None)
    assert (figures.paid_usd, figures.saved_usd) == (0, 0)


def test_a_forecast_turn_has_the_same_new_tokens() -> None:
    """What would have been left out would have been read from the cache."""
    billed = BilledTokens(fresh=10, cached=900, cache_writes=90, output=5)
    assert compacted(billed, 2000, ShadowReport(500)) == BilledTokens(10, 150, 90, 5)


def test_a_forecast_turn_with_a_new_summary_reads_only_what_stands_before_it() -> None:
    """The rest is written to the cache, if the provider writes to it at all."""
    writing, reading = BilledTokens(0, 900, 100, 5), BilledTokens(100, 900, 0, 5)
    assert compacted(writing, 2000, ShadowReport(500, head_tokens=100)) == BilledTokens(0, 50, 200, 5)
    assert compacted(reading, 2000, ShadowReport(500, head_tokens=100)) == BilledTokens(200, 50, 0, 5)


def test_without_a_cache_all_of_a_forecast_turn_is_new() -> None:
    """As with a provider that caches nothing, or after a pause."""
    assert compacted(BilledTokens(1000, 0, 0, 5), 1000, ShadowReport(300)) == BilledTokens(300, 0, 0, 5)


@given(BILLED, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_forecast_turn_is_never_longer_than_the_turn(
    billed: BilledTokens, tokens: int, forwarded: int, head: int
) -> None:
    """And has no tokens below 0, whatever the provider counted."""
    forecast = compacted(billed, tokens, ShadowReport(forwarded, head))
    assert min(forecast.fresh, forecast.cached, forecast.cache_writes) >= 0
    assert forecast.input <= billed.input
    assert forecast.cached <= billed.cached
