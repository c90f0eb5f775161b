"""Finds a model's price in the configuration or in litellm's data, which have the same fields.

An amount is in USD for each token. A model without a price for input and output has none, which is told as unknown.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.money import CACHE_SECONDS, ModelPrice, Rates
from tidemark.core.ports import Route
from tidemark.upstream.headers import is_anthropic
from tidemark.upstream.providers import is_openai

REMEMBERED = 1024
"""The most models whose prices are cached. Clients choose the names, so the cache needs a bound."""

INPUT, OUTPUT = "input_cost_per_token", "output_cost_per_token"
CACHE_READ, CACHE_WRITE = "cache_read_input_token_cost", "cache_creation_input_token_cost"
CACHE_LIFE = "cache_seconds"
"""Our own key, in ``model_info`` only."""
RATE_KEYS = (INPUT, OUTPUT, CACHE_READ, CACHE_WRITE)
HOUR_WRITE = f"{CACHE_WRITE}_above_1hr"
LONG_THOUSANDS = (100, 128, 200, 272, 512)
"""The lengths of input, in thousands of tokens, from which on some model costs more; read from the file's keys."""
_KEYS = (*RATE_KEYS, HOUR_WRITE)
PRICE_KEYS = (*_KEYS, *(f"{key}_above_{size}k_tokens" for size in LONG_THOUSANDS for key in _KEYS))


def read_price(stated: Mapping[str, object]) -> ModelPrice | None:
    """Return the price that some fields state; None without input's and output's."""
    rates = _rates(stated, "")
    if rates is None:
        return None
    seconds = _amount(stated.get(CACHE_LIFE))
    if seconds is None:
        seconds = CACHE_SECONDS if rates.cache_read < rates.input else 0.0
    for size in LONG_THOUSANDS:
        if (long_rates := _rates(stated, f"_above_{size}k_tokens")) is not None:
            return ModelPrice(rates, long_rates, 1000 * size, seconds)
    return ModelPrice(rates, cache_seconds=seconds)


def _rates(stated: Mapping[str, object], suffix: str) -> Rates | None:
    """Return the rates of the keys that end in ``suffix``. What is not cached, or written for nothing, is input."""
    prompt, reply, read, write, hour_write = (_amount(stated.get(key + suffix)) for key in _KEYS)
    if prompt is None or reply is None:
        return None
    return Rates(prompt, reply, prompt if read is None else read, write or prompt, hour_write)


def _amount(value: object) -> float | None:
    """Return an amount; None for all that is no number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


class Prices:
    """Finds prices. Its state is a cache.

    :param stated: returns the ``model_info`` of a model by the client's name; read at every request
    :param look_up: returns the price of the first of some names in litellm's data
    """

    def __init__(
        self,
        stated: Callable[[str], Mapping[str, JsonValue]],
        look_up: Callable[[Iterable[str]], Awaitable[ModelPrice | None]],
    ) -> None:
        self._stated = stated
        self._look_up = look_up
        self._cached: BoundedCache[str, tuple[Route, Mapping[str, JsonValue], ModelPrice | None]] = BoundedCache(
            REMEMBERED
        )
        """The prices by the client's name for the model, each with what it was found by."""

    async def find(self, route: Route) -> ModelPrice | None:
        """Return the price of a route's model; None if nobody states it.

        A name that the configuration gives to a server of its own may mean any model, so only ``model_info`` prices it.
        """
        info, cached = self._stated(route.name), self._cached.get(route.name)
        if cached is not None and cached[0] == route and cached[1] == info:
            return cached[2]
        price = read_price(info)
        if price is None and not _is_elsewhere(route):
            names = (f"{route.provider}/{route.upstream_model}", route.upstream_model, route.name)
            price = await self._look_up(names)
        self._cached.put(route.name, (route, dict(info), price))
        return price


def _is_elsewhere(route: Route) -> bool:
    """Return whether the configuration gives an address that is no provider's own."""
    params = route.params or {}
    stated = params.get("api_base") or params.get("base_url")
    return bool(stated) and not (is_openai(str(stated)) or is_anthropic(str(stated)))
