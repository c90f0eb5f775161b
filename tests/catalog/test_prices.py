"""A model's price comes from ``model_info`` first, and from litellm's data if its name says which model it is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.catalog.prices import Prices, read_price
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.money import ModelPrice, Rates
from tidemark.core.ports import Route

HAIKU = Route("wire", "claude-haiku-4-5", "claude-haiku-4-5", "anthropic", "https://api.anthropic.com")
STATED = {"input_cost_per_token": 2e-6, "output_cost_per_token": 4e-6}


def price_of(route: Route, info: Mapping[str, JsonValue] | None = None) -> ModelPrice | None:
    """Look a price up."""
    return asyncio.run(Prices(lambda _: info or {}, LiteLLMModelData().price).find(route))


def test_litellm_knows_what_reading_and_writing_a_cache_costs() -> None:
    """Its data file states all five rates of Claude Haiku 4.5."""
    assert price_of(HAIKU) == ModelPrice(Rates(1e-6, 5e-6, 1e-7, 1.25e-6, 2e-6))


def test_what_is_written_for_an_hour_costs_twice_the_input() -> None:
    """Unless its rate is stated, also of long contexts; if writes cost no more than input, it does not either."""
    key = "cache_creation_input_token_cost"
    written = {**STATED, key: 2.5e-6}
    hours = [{}, {f"{key}_above_1hr": 3e-6}]
    prices = [read_price({**written, **hour}) for hour in hours]
    assert [price and price.rates.hour_write for price in prices] == [4e-6, 3e-6]
    plain = read_price(STATED)
    assert plain is not None
    assert plain.rates.hour_write == plain.rates.input
    suffix = "_above_200k_tokens"
    long = {f"{name}{suffix}": 2 * amount for name, amount in written.items()}
    price = read_price({**written, **long, f"{key}_above_1hr{suffix}": 7e-6})
    assert price is not None
    assert price.long_rates is not None
    assert price.long_rates.hour_write == 7e-6


def test_a_long_context_has_rates_of_its_own() -> None:
    """GPT-5.6 costs twice as much above 272,000 tokens, and a cache write 1.25 times the input."""
    price = price_of(Route("wire", "gpt-5.6", "gpt-5.6", "openai", "https://api.openai.com/v1"))
    assert price is not None
    assert price.long_rates is not None
    assert price.long_from == 272_000
    assert price.long_rates.input == pytest.approx(2 * price.rates.input)
    assert price.rates.cache_write == pytest.approx(1.25 * price.rates.input)


def test_the_configuration_replaces_it_as_a_whole() -> None:
    """Two sources do not mix: without a price of cached input, the configured model caches nothing."""
    assert price_of(HAIKU, STATED) == ModelPrice(Rates(2e-6, 4e-6, 2e-6, 2e-6), cache_seconds=0)


def test_the_life_of_a_cached_prefix_can_be_stated() -> None:
    """Some providers sell a longer one."""
    price = read_price({**STATED, "cache_read_input_token_cost": 2e-7, "cache_seconds": 3600})
    assert price is not None
    assert price.cache_seconds == 3600


@pytest.mark.parametrize("stated", [{}, {"input_cost_per_token": 1e-6}, {**STATED, "input_cost_per_token": "free"}])
def test_without_both_prices_nothing_is_known(stated: Mapping[str, JsonValue]) -> None:
    """A bill of half the tokens would mislead."""
    assert read_price(stated) is None


@pytest.mark.parametrize("amount", [-1.0, float("nan"), float("inf"), True])
def test_an_amount_that_is_no_number_is_no_price(amount: float) -> None:
    """JSON and YAML have them all."""
    assert read_price({**STATED, "output_cost_per_token": amount}) is None


def test_a_server_of_ones_own_has_no_price_though_its_model_has_a_known_name() -> None:
    """The operator may state one."""
    local = Route("wire", "gpt-4o", "gpt-4o", "openai", "http://127.0.0.1:1", params={"api_base": "http://127.0.0.1:1"})
    assert price_of(local) is None
    assert price_of(local, STATED) is not None


def test_a_provider_s_own_address_is_no_server_of_ones_own() -> None:
    """Stating the default changes nothing."""
    address = "https://api.anthropic.com"
    stated = Route("wire", HAIKU.name, HAIKU.upstream_model, "anthropic", address, params={"api_base": address})
    assert price_of(stated) == price_of(HAIKU)


def test_an_address_that_only_begins_like_a_provider_s_is_a_server_of_ones_own() -> None:
    """Whoever serves there asks what it likes."""
    address = "https://api.anthropic.com.example.org"
    stated = Route("wire", HAIKU.name, HAIKU.upstream_model, "anthropic", address, params={"api_base": address})
    assert price_of(stated) is None


def test_a_change_of_the_configuration_is_seen_at_the_next_request() -> None:
    """The cached price belongs to what it was read from."""
    info: dict[str, JsonValue] = {}
    prices = Prices(lambda _: info, LiteLLMModelData().price)

    async def twice() -> None:
        before = await prices.find(HAIKU)
        info.update(STATED)
        assert await prices.find(HAIKU) != before

    asyncio.run(twice())
