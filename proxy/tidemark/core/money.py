"""Money: what a model costs.

The catalog finds a model's price. The plan reads it if ``threshold`` is ``price``, and ``bill.py`` prices what the
upstreams counted.
"""

from __future__ import annotations

from tidemark.core.frozen import frozen

HOUR_SECONDS = 3600.0
"""How long a prefix lives that was written for an hour."""
CACHE_SECONDS = 300.0
"""How long a cached prefix lives after its last use, if nobody states it.

It is the shorter one of Anthropic's, and about what OpenAI promises. Source: their pages on prompt caching.
"""


@frozen
class BilledTokens:
    """The tokens of requests, as a provider bills them."""

    fresh: int = 0
    """Input that came from no cache and went into none."""
    cached: int = 0
    """Input that was read from the prompt cache."""
    cache_writes: int = 0
    """Input that was written to the prompt cache."""
    output: int = 0
    hour_writes: int = 0
    """The part of ``cache_writes`` that stays for an hour."""

    @property
    def input(self) -> int:
        return self.fresh + self.cached + self.cache_writes


@frozen
class Rates:
    """What tokens cost, in USD for each."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    stated_hour_write: float | None = None
    """For what is written for an hour; None if nobody states it."""

    @property
    def hour_write(self) -> float:
        """Return the rate of what is written for an hour: twice the input's if writes cost more than it.

        Source: Anthropic's guide "Prompt caching", "Pricing".
        """
        if self.stated_hour_write is not None:
            return self.stated_hour_write
        return max(2 * self.input, self.cache_write) if self.cache_write > self.input else self.cache_write


@frozen
class ModelPrice:
    """What a model costs."""

    rates: Rates
    long_rates: Rates | None = None
    """For all tokens of a request whose input is longer than ``long_from``; None if the model has one price."""
    long_from: int = 0
    """Tokens."""
    cache_seconds: float = CACHE_SECONDS
    """The life of a cached prefix after its last use; 0 if the provider caches nothing."""

    @property
    def is_free(self) -> bool:
        """Whether input costs nothing, as with most servers of one's own."""
        return self.rates.input <= 0

    @property
    def caches(self) -> bool:
        """Whether a prefix is cheaper if the provider caches it and reads it once."""
        rates = self.rates
        return self.cache_seconds > 0 and rates.cache_write + rates.cache_read < 2 * rates.input

    def rates_for(self, input_tokens: int) -> Rates:
        """Return the rates of a request.

        :param input_tokens: all of its input, from the cache or not
        """
        return self.long_rates if self.long_rates is not None and input_tokens > self.long_from else self.rates

    def usd(self, tokens: BilledTokens, requests: int = 1) -> float:
        """Return what the tokens of one request cost, or of several that are about as long."""
        rates = self.rates_for(tokens.input // requests)
        return (
            tokens.fresh * rates.input
            + tokens.cached * rates.cache_read
            + (tokens.cache_writes - tokens.hour_writes) * rates.cache_write
            + tokens.hour_writes * rates.hour_write
            + tokens.output * rates.output
        )
