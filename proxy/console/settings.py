"""``/console/settings``: the effective configuration, and the settings for all models, which are edited there.

The form is a client of the same functions as ``/tidemark/settings``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.responses import Response

from proxy.console.pages import Answer
from proxy.console.visit import Visit, go_to
from proxy.core.conversation.messages import JsonValue
from proxy.core.errors import InvalidRequest, SettingsConflict
from proxy.server.endpoints.settings import SettingsPort
from proxy.server.errors import status_of

SETTINGS = "/console/settings"
TEXTS: Mapping[str, tuple[str, str]] = {
    "threshold": ("Threshold", "A share of the window above the target and up to 1, or tokens above 100"),
    "retention_tokens": ("Retention in tokens", "Tokens, 0 or more"),
    "retention_ratio": ("Retention as a share", "A share of the limit, from 0 to less than 1"),
    "strategy": ("Strategy", "hybrid, llm or extractive"),
    "template": ("Template", "general, technical, coding, detailed or concise"),
}
"""The fields with their labels and ranges."""


class SettingRow(Protocol):
    """A row of the effective configuration."""

    @property
    def name(self) -> str:
        """Return the dotted key."""
        ...

    @property
    def value(self) -> str:
        """Return the value, without secrets."""
        ...

    @property
    def source(self) -> str:
        """Return where the value comes from."""
        ...


@dataclass(frozen=True, slots=True)
class _RefusedForm:
    """A form that was refused: what it held, and why."""

    entered: Mapping[str, str]
    notices: bool
    message: str
    param: str | None
    """The field at fault; None for the settings as a whole."""
    status: int


@dataclass(frozen=True, slots=True)
class SettingPages:
    """Shows the configuration, and changes what the store may have of it."""

    settings: SettingsPort
    effective: Callable[[], Sequence[SettingRow]]
    typed: Callable[[str], JsonValue]
    """Returns the value of a typed text, as the command line reads it."""

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        """Return the method, path and answer of the page and its forms."""
        return [("GET", SETTINGS, self._show), ("POST", SETTINGS, self._change)]

    async def _show(self, visit: Visit) -> Response:
        return await self._page(visit)

    async def _change(self, visit: Visit) -> Response:
        """Save the form, or reset everything; an input without a value resets its setting."""
        entered = {name: visit.form.get(name, "").strip() for name in TEXTS}
        notices = visit.form.get("notices") == "on"
        try:
            if visit.form.get("action") == "reset":
                await self.settings.reset()
            else:
                fields = {name: self.typed(text) if text else None for name, text in entered.items()}
                own: dict[str, JsonValue] = {"notices": None if notices else False}
                await self.settings.change({**fields, **own, "version": visit.form.get("version")})
        except (InvalidRequest, SettingsConflict) as error:
            param = error.param if isinstance(error, InvalidRequest) else None
            return await self._page(visit, _RefusedForm(entered, notices, str(error), param, status_of(error)))
        return go_to(SETTINGS, saved="yes")

    async def _page(self, visit: Visit, refusal: _RefusedForm | None = None) -> Response:
        current: Any = await self.settings.described()
        stored = {name: str(current[name]) if name in current["stored"] else "" for name in TEXTS}
        return visit.page(
            "settings.html",
            refusal.status if refusal else 200,
            rows=self.effective(),
            texts=TEXTS,
            current=current,
            entered=refusal.entered if refusal else stored,
            notices=refusal.notices if refusal else current["notices"],
            error=refusal.message if refusal else "",
            param=refusal.param if refusal and refusal.param in TEXTS else "",
            saved=bool(visit.parameter("saved")),
        )
