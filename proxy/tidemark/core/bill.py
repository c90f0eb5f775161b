"""The bill: what turns cost by the provider's count, and what they would have cost uncompacted.

``features/bill/`` adds it up after the responses. The uncompacted turn is a model of what the client would have been
billed, and its assumptions stand at ``uncompacted``; docs/cost.md explains them to operators.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields

from tidemark.core.frozen import frozen
from tidemark.core.money import HOUR_SECONDS, BilledTokens, ModelPrice
from tidemark.core.report import Report, ShadowReport, Usage

NANO = 10**9
"""Amounts are added up as whole billionths of a dollar, so that sums of workers and of days are exact."""
MOST_USD = 1000.0
"""No request costs more: a provider that counts so many tokens is wrong."""
MOST_TOKENS = 10**9
"""No request has more input, or output."""

SavingOf = Callable[[str, Report, Usage], Awaitable[float | None]]
"""Returns the USD that a turn saved at least; None if unknown. It takes the model, the report and the counts."""


def billed_tokens(usage: Usage) -> BilledTokens | None:
    """Return what a provider's counts bill; None if it left its input out, or sent what cannot be.

    Counts below 0 and cached input beyond all input are no bill, so no money is derived from them.
    """
    total, cached, writes = usage.input_tokens, usage.cached_tokens or 0, usage.cache_write_tokens or 0
    output, hour_writes = usage.output_tokens or 0, usage.hour_write_tokens or 0
    if total is None or min(total, cached, writes, output, hour_writes) < 0 or cached + writes > total:
        return None
    if max(total, output) > MOST_TOKENS or hour_writes > writes:
        return None
    return BilledTokens(total - cached - writes, cached, writes, output, hour_writes)


@frozen
class EarlierTurn:
    """What is known of a conversation's turn before."""

    model: str
    """Its model: another one reads nothing of its cache."""
    input_tokens: int
    """Its input if nothing had been left out, by the provider's count."""
    answered_at: float
    """Unix time, seconds."""
    caches: bool
    """Whether the provider has shown in this conversation that it caches."""


@frozen
class BilledTurn:
    """One turn as it was forwarded and billed."""

    model: str
    billed: BilledTokens
    tokens_before: int
    """Tokens of the request as it came, by the local count."""
    tokens_after: int
    """The same of what was forwarded."""
    limit: int
    """The most tokens that may be forwarded."""
    is_changed: bool
    """Whether a summary is new in this turn, so that the cached prefix ends before it."""
    answered_at: float
    """Unix time, seconds."""
    rounds: int = 1
    """How often the upstream was asked: once more for each search of earlier messages."""
    shadow: ShadowReport | None = None
    """What compaction would have made of it, in shadow mode."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out and nothing was added."""
        return self.tokens_after <= 0 or self.tokens_before == self.tokens_after


def uncompacted(turn: BilledTurn, before: EarlierTurn | None, cache_seconds: float) -> BilledTokens:
    """Return what the provider would have billed if the turn had been forwarded as it came.

    1. What was left out has as many of the provider's tokens for each local one as what was forwarded. It counts up to
       the limit only, since a longer request would have been refused. The model would not have searched.
    2. If no summary is new and the turn read from the cache, what was left out would have been read from it, too.
    3. Otherwise, the input of the turn before would have been read, if the cache still had it and the provider caches.
       If no turn before is known, all of it would have been read, so that no saving is invented.
    4. The rest is billed as the new tokens of the turn were: as written if it wrote to the cache. The output is equal.

    :param before: the conversation's turn before; None if none is known, as after a change of the model
    :param cache_seconds: the life of a cached prefix after its last use
    """
    billed = turn.billed
    if turn.is_whole:
        return billed
    whole = min(turn.tokens_before, max(turn.limit, turn.tokens_after))
    total = round(billed.input / turn.rounds * whole / turn.tokens_after)
    caches = before.caches if before is not None else cache_seconds > 0  # who is new may cache without having shown it
    caches = caches or billed.cached > 0 or billed.cache_writes > 0
    cache_seconds = max(cache_seconds, HOUR_SECONDS) if billed.hour_writes else cache_seconds
    is_warm = before is None or max(0.0, turn.answered_at - before.answered_at) <= cache_seconds
    cached = billed.cached // turn.rounds
    if billed.cached and not turn.is_changed and turn.rounds == 1:
        cached += total - billed.input
    elif caches and is_warm:
        cached = max(cached, total if before is None else before.input_tokens)
    cached = min(max(cached, 0), total)
    return _with_new(billed, total, cached)


def _with_new(billed: BilledTokens, total: int, cached: int) -> BilledTokens:
    """Return a turn of another length, whose new tokens are billed as those of ``billed`` were."""
    fresh = total - cached
    if not billed.cache_writes:
        return BilledTokens(fresh, cached, 0, billed.output)
    fresh = min(billed.fresh, fresh)
    writes = total - cached - fresh
    return BilledTokens(fresh, cached, writes, billed.output, writes * billed.hour_writes // billed.cache_writes)


def compacted(billed: BilledTokens, tokens: int, shadow: ShadowReport) -> BilledTokens:
    """Return what the provider would have billed for a turn of shadow mode if it had been compacted.

    What would have been forwarded has as many of the provider's tokens for each local one. A turn with a new summary
    would have read what stands before it, and written the rest. Any other one would have had the same new tokens.

    :param tokens: of the request as it went out, by the local count
    """
    scale = billed.input / tokens if tokens else 0.0
    total = min(round(shadow.tokens * scale), billed.input)
    if shadow.head_tokens:
        cached = min(round(shadow.head_tokens * scale), billed.cached, total)
    else:
        cached = max(total - (billed.input - billed.cached), 0) if billed.cached else 0
    return _with_new(billed, total, cached)


@dataclass(slots=True)
class BillFigures:
    """The bill of many turns. It is mutable: turns are added to it. Amounts are in billionths of a dollar."""

    requests: int = 0
    fresh: int = 0
    cached: int = 0
    cache_writes: int = 0
    output: int = 0
    """Tokens by the provider's count, as ``BilledTokens`` has them."""
    tokens_saved: int = 0
    """Tokens by which requests got smaller, by the local count."""
    requests_nano: int = 0
    """What the requests cost."""
    summaries_nano: int = 0
    """What the models that wrote summaries cost."""
    uncompacted_nano: int = 0
    """What the same requests would have cost if nothing had been left out."""
    summary_tokens: int = 0
    """Input and output of the models that wrote summaries."""
    unpriced: int = 0
    """Requests without a known price: no money is counted for them."""
    uncounted: int = 0
    """Requests whose provider sent no usable count."""
    unknown_summaries: int = 0
    """Calls of models that write summaries, without a price or a usable count."""
    shadow_requests: int = 0
    """Requests in shadow mode whose price is known."""
    shadow_nano: int = 0
    """What they cost."""
    forecast_nano: int = 0
    """What they would have cost if they had been compacted, summaries included."""

    @property
    def input(self) -> int:
        return self.fresh + self.cached + self.cache_writes

    @property
    def paid_usd(self) -> float | None:
        """Return what requests and their summaries cost; None if nothing has a price."""
        return (self.requests_nano + self.summaries_nano) / NANO if self.has_money else None

    @property
    def summaries_usd(self) -> float | None:
        return self.summaries_nano / NANO if self.has_money else None

    @property
    def uncompacted_usd(self) -> float | None:
        return self.uncompacted_nano / NANO if self._has_priced_requests else None

    @property
    def saved_usd(self) -> float | None:
        """Return the saving, net of the summaries; below 0 if the proxy cost more.

        It is None if nothing has a price, or a summary has none: then the saving may be none.
        """
        if self.unknown_summaries or not self._has_priced_requests:
            return None
        return (self.uncompacted_nano - self.requests_nano - self.summaries_nano) / NANO

    @property
    def has_money(self) -> bool:
        """Whether anything has a price. What is free costs nothing, and what is unknown may cost anything."""
        return bool(self.requests_nano or self.summaries_nano) or self._has_priced_requests

    @property
    def _has_priced_requests(self) -> bool:
        return self.unpriced + self.uncounted < self.requests

    @property
    def shadow_usd(self) -> float | None:
        """Return what requests in shadow mode cost; None if there are none."""
        return self.shadow_nano / NANO if self.shadow_requests else None

    @property
    def forecast_usd(self) -> float | None:
        """Return what they would have cost compacted; None if there are none."""
        return self.forecast_nano / NANO if self.shadow_requests else None

    def add(self, other: BillFigures) -> None:
        for name in AMOUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_turn(self, turn: BilledTurn, price: ModelPrice | None, before: EarlierTurn | None) -> BilledTokens:
        """Add a turn, and return what it would have been billed uncompacted."""
        billed = turn.billed
        self.requests += 1
        self.fresh += billed.fresh
        self.cached += billed.cached
        self.cache_writes += billed.cache_writes
        self.output += billed.output
        self.tokens_saved += max(0, turn.tokens_before - turn.tokens_after)
        whole = uncompacted(turn, before, 0.0 if price is None else price.cache_seconds)
        if price is None or (usd := price.usd(billed, turn.rounds)) > MOST_USD:
            self.unpriced += 1
            return whole
        whole_usd = usd if turn.is_whole else price.usd(whole)
        if whole_usd > MOST_USD:
            self.unpriced += 1
            return whole
        self.requests_nano += round(usd * NANO)
        self.uncompacted_nano += round(whole_usd * NANO)
        if turn.shadow is not None:
            self._add_shadow(turn, turn.shadow, price, usd)
        return whole

    def _add_shadow(self, turn: BilledTurn, shadow: ShadowReport, price: ModelPrice, usd: float) -> None:
        """Add the forecast of a turn; a model that writes summaries is priced like the conversation's own."""
        forecast = compacted(turn.billed, turn.tokens_after, shadow)
        summary = BilledTokens(fresh=shadow.summary_input_tokens, output=shadow.summary_output_tokens)
        self.shadow_requests += 1
        self.shadow_nano += round(usd * NANO)
        self.forecast_nano += round((price.usd(forecast) + price.usd(summary)) * NANO)

    def add_summary(self, billed: BilledTokens | None, price: ModelPrice | None) -> None:
        """Add a call of a model that wrote a summary, or failed to.

        :param billed: None if its provider sent no usable count
        """
        self.summary_tokens += billed.input + billed.output if billed else 0
        usd = None if price is None or billed is None else price.usd(billed)
        if usd is None or usd > MOST_USD:
            self.unknown_summaries += 1
        else:
            self.summaries_nano += round(usd * NANO)


def bill_json(figures: BillFigures) -> dict[str, int | float | None]:
    """Return figures as JSON. Amounts are in USD, net of the summaries; null if they are not known."""
    return {
        "requests": figures.requests,
        "input_tokens": figures.input,
        "cached_tokens": figures.cached,
        "cache_write_tokens": figures.cache_writes,
        "output_tokens": figures.output,
        "summary_tokens": figures.summary_tokens,
        "tokens_saved": figures.tokens_saved,
        "paid_usd": figures.paid_usd,
        "summaries_usd": figures.summaries_usd,
        "uncompacted_usd": figures.uncompacted_usd,
        "saved_usd": figures.saved_usd,
        "unpriced_requests": figures.unpriced,
        "uncounted_requests": figures.uncounted,
        "unknown_summaries": figures.unknown_summaries,
        "shadow_requests": figures.shadow_requests,
        "shadow_usd": figures.shadow_usd,
        "forecast_usd": figures.forecast_usd,
    }


AMOUNTS: Sequence[str] = tuple(item.name for item in fields(BillFigures))
"""The names of all figures, by which the store adds them up."""
