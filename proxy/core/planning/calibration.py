"""Calibration: how many tokens the provider counts where we count one, learned from its ``usage``.

Beside the budget on the road of a request; off unless ``calibrate: true`` (FR-1.1.5: local counts decide). What the
provider counts f times as dense has a window that holds 1/f of our tokens, so the marks are divided and the counts,
the summary's too, stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.core.conversation.messages import digest_of
from proxy.core.conversation.prefix import owner_of
from proxy.core.planning.budget import MARGIN_RATIO, Budget
from proxy.core.values import value

LEAST, MOST = 0.5, 3.0
"""Bounds of a factor; no two tokenizers in use differ by more, so what lies outside is no tokenizer's doing."""
SAFE = 1 / (1 + MARGIN_RATIO)
"""The smallest factor that is applied: were it wrong altogether, the safety margin would just be used up."""
KEPT = 0.5
"""Share of what was known that stays when a reply comes in: after five of equal size 3 % of the past are left."""
ANY_TOOLS = "*"
"""In place of a tool set's digest: all requests for the model. A tool set that is new starts from it."""


@dataclass(frozen=True, slots=True)
class CalibrationKey:
    """What a factor holds for."""

    owner: str
    """Whose: ``owner_of`` the credential (promise 8)."""
    model: str
    """``provider:model``."""
    upstream: str
    """A digest of the address: one name may be served by two."""
    tools: str
    """A digest of the request's tools; empty without any."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Two sums of tokens over the replies so far, the past fading; long requests count for more than short ones."""

    counted: float = 0.0
    """By us."""
    told: float = 0.0
    """By the provider, for the same."""
    replies: int = 0
    updated_at: float = 0.0
    """Unix time, seconds."""

    @property
    def factor(self) -> float:
        """The provider's tokens for one of ours, as learned; 1 while nothing is."""
        return min(max(self.told / self.counted, LEAST), MOST) if self.counted > 0 else 1.0

    @property
    def applied(self) -> float:
        """The factor that is used with the usual margin."""
        return max(self.factor, SAFE)

    def within(self, margin: float) -> float:
        """The factor that is used: never so small that the safety margin would not cover a mistake.

        :param margin: the policy's, as a share of the window
        """
        return max(self.factor, 1 / (1 + margin))

    def learned(self, counted: int, told: int, now: float) -> Calibration:
        """After one more reply; each is bounded by itself, so that no odd one spoils the others."""
        if counted <= 0 or told <= 0:
            return self
        bounded = min(max(told, LEAST * counted), MOST * counted)
        return Calibration(KEPT * self.counted + counted, KEPT * self.told + bounded, self.replies + 1, now)


UNCALIBRATED = Calibration()


@dataclass(frozen=True, slots=True)
class CalibrationEntry:
    """A calibration and the tool set that it is of."""

    tools: str
    calibration: Calibration


@value
class CalibratedBudget:
    """What one request is measured by."""

    budget: Budget
    """The model's own, in the provider's tokens."""
    factor: float = 1.0
    """The provider's tokens for one of ours."""
    key: CalibrationKey | None = None
    """What the request's reply is a lesson for; None where the model is not calibrated."""

    @property
    def marks(self) -> Budget:
        """The budget as our own counts meet it."""
        return self.budget if self.factor == 1.0 else in_local_tokens(self.budget, self.factor)

    def provider_tokens(self, tokens: int) -> int:
        """Our count in the provider's tokens."""
        return tokens if self.factor == 1.0 else round(tokens * self.factor)


def calibration_key(fingerprint: bytes, model: str, base_url: str, tools: Sequence[bytes]) -> CalibrationKey:
    """Return what a request's reply calibrates.

    :param tools: the members that declare the request's tools, as raw JSON
    """
    upstream = digest_of(base_url.encode()).hex()
    return CalibrationKey(owner_of(fingerprint), model, upstream, digest_of(*tools).hex() if tools else "")


def in_local_tokens(budget: Budget, factor: float) -> Budget:
    """The marks as our own counts meet them, where the provider counts ``factor`` for each of ours."""
    return replace(
        budget,
        window=int(budget.window / factor),
        limit=int(budget.limit / factor),
        high_water=int(budget.high_water / factor),
        prepare_mark=int(budget.prepare_mark / factor),
        low_water=int(budget.low_water / factor),
        retention=int(budget.retention / factor),
        max_summary=int(budget.max_summary / factor),
        min_tokens=int(budget.min_tokens / factor),
    )
