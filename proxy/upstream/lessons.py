"""What overflows have taught, each kept for the credential that met it alone (promise 8).

Between the catalog, which asks before every request, and the registry, which shows it. What an error says may
quote what a caller wrote, so no other caller's window follows it. Kept for the life of the process.
"""

from __future__ import annotations

from proxy.core.budget import ModelWindow
from proxy.core.calibration import owner_of
from proxy.core.ports import Caller, Route
from proxy.core.registry import Overrides
from proxy.upstream.bounded import remember
from proxy.upstream.learning import Lesson

REMEMBERED = 1024
"""Lessons that are kept; clients choose names, so there must be a bound."""
_Identity = tuple[str, str, str, bytes, Overrides]
"""Address, provider, the upstream's name of the model, the credential's fingerprint, and what a person had set."""


class Lessons:
    """A bounded memory, the newest last."""

    def __init__(self) -> None:
        self._learned: dict[_Identity, Lesson] = {}

    def keep(self, route: Route, caller: Caller, said: Overrides, lesson: Lesson) -> None:
        """Remember what an overflow taught.

        :param said: what a person has set; a new word ends the lesson, for it may be the answer to a larger server
        """
        remember(self._learned, _identity(route, caller, said), lesson, most=REMEMBERED)

    def of(self, route: Route, caller: Caller, said: Overrides) -> Lesson | None:
        """What holds for a caller's requests."""
        return self._learned.get(_identity(route, caller, said))

    def shown(self, provider: str, model: str, said: Overrides, owner: str | None, window: ModelWindow) -> ModelWindow:
        """The window as an owner's credential meets it; for None, the operator, by the newest lesson of anybody's."""
        for (_, by, name, fingerprint, then), lesson in reversed(self._learned.items()):
            mine = owner is None or owner_of(fingerprint) == owner
            if mine and (by, name, then) == (provider, model, said):
                return lesson.over(window)
        return window


def _identity(route: Route, caller: Caller, said: Overrides) -> _Identity:
    return (route.base_url, route.provider, route.upstream_model, caller.fingerprint, said)
