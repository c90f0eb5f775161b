"""Skips calls to a store that failed, until a probe gets an answer. So a dead Redis slows no request down.

``node.py`` asks it before it uses the network, reports how each call went, and ends the outage by a probe. It has no
clock. ``docs/adr/0015-outages-of-the-store.md`` has the rules.

It is another mechanism than the breaker of a summarizer (``tidemark/core/breaker.py``), because it follows other rules.
One failure begins an outage, since every request would meet the next one. A task of its own probes, since a probe is
a small write that costs nothing, and no client waits for it. The pauses do not grow, so a store that is back is used
within a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def _ignore_trouble() -> None:
    return


class OutageBackoff:
    """Whether calls to the store are skipped, and whether it takes writes.

    Mutable: both of these, whether calls are barred, the time of the last answer, and the time that a large write may
    take.
    """

    def __init__(self, on_trouble: Callable[[], None] = _ignore_trouble) -> None:
        """:param on_trouble: called when the store fails or refuses a write"""
        self.is_away = False
        """Whether the last call found no server or no answer: only probes are sent."""
        self.refuses_writes = False
        """Whether the store answered and refused to write, and has taken no write since."""
        self.refusal = ""
        """Why no call may be made at all, whatever the store answers; empty if calls may be made."""
        self._is_barred = False
        self.reason = ""
        """What was wrong when the store failed last, as a client may read it; empty if nobody said."""
        self._answered_at = -math.inf
        self._on_trouble = on_trouble
        self._large_write_until = -math.inf

    @property
    def is_well(self) -> bool:
        """Whether the store answers, and takes writes as far as is known."""
        return not (self.is_away or self.refuses_writes)

    def failed(self, reason: str = "") -> None:
        """Note that the store did not answer.

        :param reason: what is wrong and its mend, for the calls that are skipped from now on
        """
        self.is_away, self.reason = True, reason
        self._on_trouble()

    def refused(self) -> None:
        """Note that the store answered, and takes no writes."""
        self.refuses_writes = True
        self._on_trouble()

    def succeeded(self, now_seconds: float) -> None:
        """Note that the store answered. Only a write can show that it takes writes."""
        self._answered_at = now_seconds
        self.is_away = self._is_barred

    def bar(self, refusal: str) -> None:
        """Skip all calls from now on, probes too.

        :param refusal: why, for clients and the log
        """
        self.refusal, self._is_barred, self.is_away = refusal, True, True

    def admit(self) -> None:
        """Allow calls again."""
        if self._is_barred:
            self.refusal, self._is_barred, self.is_away = "", False, False

    def wrote(self) -> None:
        """Note that the store took a write."""
        self.refuses_writes = False

    def begin_large_write(self, until_seconds: float) -> None:
        """Expect a large write until then: calls that wait behind it on the same connection show no outage."""
        self._large_write_until = max(self._large_write_until, until_seconds)

    def end_large_write(self, until_seconds: float) -> None:
        """End that, unless another write may take longer."""
        if self._large_write_until == until_seconds:
            self._large_write_until = -math.inf

    def last_answer(self) -> float:
        """Return when the store answered last; minus infinity if it never did."""
        return self._answered_at

    def last_answer_expected(self) -> float:
        """Return the same, or the end of the large write that delays all other answers."""
        return max(self._answered_at, self._large_write_until)
