"""What tokens cost, by a model's price and the provider's own count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.money import BilledTokens, ModelPrice, Rates, billed_tokens
from tidemark.core.report import Usage

RATES = Rates(input=1.0, output=5.0, cache_read=0.1, cache_write=1.25)
COUNTS = st.integers(0, 10**7)


def test_each_kind_of_token_has_its_rate() -> None:
    """Fresh, cached, written to the cache, and output."""
    assert ModelPrice(RATES).usd(BilledTokens(10, 100, 8, 2)) == pytest.approx(10 + 10 + 10 + 10)


def test_a_long_input_costs_more_for_all_its_tokens() -> None:
    """Providers price the whole request by its length, not what is beyond the bound."""
    price = ModelPrice(RATES, Rates(2.0, 7.0, 0.2, 2.5), long_from=200)
    assert price.usd(BilledTokens(fresh=200)) == 200
    assert price.usd(BilledTokens(fresh=1, cached=200, output=1)) == pytest.approx(2 + 40 + 7)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_the_parts_of_the_input_add_up_to_what_the_provider_counted(
    fresh: int, cached: int, writes: int, output: int
) -> None:
    """Nothing is billed twice."""
    total = fresh + cached + writes
    assert billed_tokens(Usage(total, cached, output, writes)) == BilledTokens(fresh, cached, writes, output)


@pytest.mark.parametrize(
    "usage",
    [Usage(None, 1, 1), Usage(10, 11, 1), Usage(10, 6, 1, 5), Usage(-1, 0, 0), Usage(10, -1, 1), Usage(10, 0, -1)],
)
def test_counts_that_cannot_be_are_no_bill(usage: Usage) -> None:
    """Usage that a provider leaves out or sends wrong makes no invented money."""
    assert billed_tokens(usage) is None


def test_what_a_provider_does_not_report_counts_as_none() -> None:
    """Many servers report no cache."""
    assert billed_tokens(Usage(10)) == BilledTokens(10)
