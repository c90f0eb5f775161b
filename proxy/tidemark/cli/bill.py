"""Says in one line what a server did while a command ran: requests, tokens, the share from caches, and money."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidemark.cli.metrics_text import MetricsReading
from tidemark.core.frozen import frozen
from tidemark.core.money import BilledTokens, ModelPrice

PROMPT, CACHED, REPLY = (f"tidemark_upstream_{name}_tokens_total" for name in ("prompt", "cached_prompt", "completion"))


@frozen
class Bill:
    """The tokens that upstreams counted, and what they cost."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    reply_tokens: int = 0
    usd: float = 0.0
    """Of the models with a known price. What a provider asks for writing its cache is not in it."""
    unpriced: tuple[str, ...] = ()
    """The models without a known price."""

    def line(self) -> str:
        """Return a part of a line for a person; empty if no upstream has counted."""
        if not self.prompt_tokens:
            return ""
        share = self.cached_tokens / self.prompt_tokens
        text = (
            f"; upstreams read {self.prompt_tokens:,} tokens ({share:.0%} from a cache) and wrote {self.reply_tokens:,}"
        )
        if self.usd:
            text += f", about ${self.usd:,.4f}"
        return text + (f", no known price for {', '.join(self.unpriced)}" if self.unpriced else "")


def bill_between(before: MetricsReading, after: MetricsReading, prices: Mapping[str, ModelPrice]) -> Bill:
    """Return what was counted between two readings.

    :param prices: by the model's name as clients send it
    """
    models = sorted(after.by_model.get(PROMPT, {}))
    bill = Bill()
    for model in models:
        prompt, cached, reply = (_fresh(before, after, name, model) for name in (PROMPT, CACHED, REPLY))
        if not prompt:
            continue
        price = prices.get(model)
        usd = (
            0.0
            if price is None
            else replace(price, long_rates=None).usd(BilledTokens(max(0, prompt - cached), cached, 0, reply))
        )
        bill = Bill(
            bill.prompt_tokens + prompt,
            bill.cached_tokens + cached,
            bill.reply_tokens + reply,
            bill.usd + usd,
            (*bill.unpriced, *([model] if price is None else [])),
        )
    return bill


def billed_models(reading: MetricsReading) -> Iterable[str]:
    """Return the models that upstreams counted tokens of."""
    return reading.by_model.get(PROMPT, {})


def _fresh(before: MetricsReading, after: MetricsReading, name: str, model: str) -> int:
    return int(after.by_model.get(name, {}).get(model, 0) - before.by_model.get(name, {}).get(model, 0))
