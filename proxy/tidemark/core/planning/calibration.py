"""Calibration: learns from ``usage`` how many tokens the provider counts for each local one.

It adjusts the budget's marks, and is off unless ``calibrate: true`` (FR-1.1.5: local counts decide). If the provider
counts f tokens for each local one, its window holds 1/f as many local tokens. So the marks are divided by f, and all
counts, the summary's too, stay local.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import MARGIN_RATIO, Budget

LEAST, MOST = 0.5, 3.0
"""Bounds of a factor. No two tokenizers in use differ by more, so values outside have another cause."""
SAFE = 1 / (1 + MARGIN_RATIO)
"""The smallest factor that is applied. If it is entirely wrong, the safety margin just covers the mistake."""
PAST_SHARE = 0.5
"""The weight of the past after one more reply: after five replies of equal size, 3 % of it remain."""
ANY_TOOLS = "*"
"""Stands for all tool sets of a model. A new tool set starts from this calibration."""


@frozen
class CalibrationKey:
    """What a factor applies to."""

    owner: str
    """The owner, by ``owner_of`` (promise 8)."""
    model: str
    """``provider:model``."""
    upstream: str
    """A digest of the address, because two upstreams may serve one name."""
    tools: str
    """A digest of the request's tools; empty without any."""


@frozen
class Calibration:
    """Two sums of tokens over past replies, the older ones with less weight. Long requests weigh more."""

    local_tokens: float = 0.0
    """The sum of local counts."""
    provider_tokens: float = 0.0
    """The sum of the provider's counts of the same requests."""
    replies: int = 0
    updated_at: float = 0.0
    """Unix time, seconds."""

    @property
    def factor(self) -> float:
        """Return the provider's tokens for each local one; 1 while nothing is learned."""
        return min(max(self.provider_tokens / self.local_tokens, LEAST), MOST) if self.local_tokens > 0 else 1.0

    @property
    def applied(self) -> float:
        """Return the factor that is used with the usual margin."""
        return max(self.factor, SAFE)

    def within(self, margin: float) -> float:
        """Return the factor that is used: never so small that the safety margin does not cover a mistake.

        :param margin: the policy's margin, as a share of the window
        """
        return max(self.factor, 1 / (1 + margin))

    def learned(self, local_tokens: int, provider_tokens: int, now: float) -> Calibration:
        """Return the calibration after one more reply; each reply is bounded, so no odd one spoils the others."""
        if local_tokens <= 0 or provider_tokens <= 0:
            return self
        bounded = min(max(provider_tokens, LEAST * local_tokens), MOST * local_tokens)
        return Calibration(
            PAST_SHARE * self.local_tokens + local_tokens,
            PAST_SHARE * self.provider_tokens + bounded,
            self.replies + 1,
            now,
        )


UNCALIBRATED = Calibration()


@frozen
class CalibrationEntry:
    """A calibration with its tool set."""

    tools: str
    calibration: Calibration


@frozen
class CalibratedBudget:
    """The budget of one request, with the factor between the two counts."""

    budget: Budget
    """The model's budget, in the provider's tokens."""
    factor: float = 1.0
    """The provider's tokens for each local one."""
    key: CalibrationKey | None = None
    """What the request's reply calibrates; None if the model is not calibrated."""

    @property
    def marks(self) -> Budget:
        """Return the budget in local tokens."""
        return self.budget if self.factor == 1.0 else in_local_tokens(self.budget, self.factor)

    def provider_tokens(self, tokens: int) -> int:
        """Return a local count in the provider's tokens."""
        return tokens if self.factor == 1.0 else round(tokens * self.factor)


def calibration_key(fingerprint: bytes, model: str, base_url: str, tools: Sequence[bytes]) -> CalibrationKey:
    """Return what a request's reply calibrates.

    :param tools: the members that declare the request's tools, as raw JSON
    """
    upstream = digest_of(base_url.encode()).hex()
    return CalibrationKey(owner_of(fingerprint), model, upstream, digest_of(*tools).hex() if tools else "")


def in_local_tokens(budget: Budget, factor: float) -> Budget:
    """Return the marks in local tokens, if the provider counts ``factor`` tokens for each local one."""
    return replace(
        budget,
        window=int(budget.window / factor),
        limit=int(budget.limit / factor),
        high_water=int(budget.high_water / factor),
        prepare_mark=int(budget.prepare_mark / factor),
        low_water=int(budget.low_water / factor),
        retention=int(budget.retention / factor),
        max_summary=int(budget.max_summary / factor),
        max_work_summary=int(budget.max_work_summary / factor),
        min_tokens=int(budget.min_tokens / factor),
        max_recall=int(budget.max_recall / factor),
        price=None if budget.price is None else replace(budget.price, long_from=int(budget.price.long_from / factor)),
    )
