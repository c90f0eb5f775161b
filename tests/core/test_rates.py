"""What tokens cost, by a model's price and the provider's own count."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tidemark.core.money import BilledTokens, ModelPrice, Rates

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
