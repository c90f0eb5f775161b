"""``/console/settings``: the effective configuration, and the settings for all models, which are edited there.

The form is a client of the same functions as ``/tidemark/settings``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from starlette.responses import Response

from tidemark.config.effective import EffectiveSetting
from tidemark.console.pages import Answer
from tidemark.console.visit import Visit, go_to, words_for_form
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.summary import Strategy, TemplateName
from tidemark.core.errors import InvalidRequest, SettingsConflict, StoreUnavailable
from tidemark.core.frozen import frozen
from tidemark.features.settings.operator_settings import OperatorSettings
from tidemark.server.errors import status_of

SETTINGS = "/console/settings"
TEXTS: Mapping[str, tuple[str, str]] = {
    "threshold": ("Threshold", "A share of the window above the target and up to 1, or tokens above 100"),
    "retention_tokens": ("Retention in tokens", "Tokens, 0 or more"),
    "retention_ratio": ("Retention as a share", "A share of the limit, from 0 to less than 1"),
    "strategy": (
        "Strategy",
        "Who writes summaries: a model, the proxy itself (extractive), both (hybrid), or the provider (native)",
    ),
    "template": ("Template", "What a model is told to keep; only shipped templates can be chosen here"),
}
"""The fields with their labels and ranges."""
CHOICES: Mapping[str, Sequence[str]] = {"strategy": get_args(Strategy), "template": get_args(TemplateName)}
"""The fields that are chosen from a list, with all that can be chosen."""
NOTICES = "notices"
RESETS = "reset:"
"""What the value of a button begins with that resets one setting; its name follows."""
MAX_FIND = 200
DEFAULTS = "compaction.defaults."
STORE_AWAY = (
    "The store does not answer, so this page shows what was in force when it last did. Nothing can be saved until it "
    "is back; look at its log, or try again in a moment."
)
NOT_SAVED = (
    "The store did not answer, so this is not known to be saved. What you entered is kept: save it again when the "
    "store is back."
)


@frozen
class _Form:
    """A form that was sent and is shown again: what it held, and why."""

    entered: Mapping[str, str]
    notices: bool
    version: str = ""
    """The version that the form was made for; empty for the newest one."""
    error: str = ""
    param: str = ""
    """The field at fault; empty for the settings as a whole."""
    status: int = 200
    note: str = ""
    """What was done; empty if the form was refused."""


@frozen
class _Field:
    """A field of the form, as the page shows it."""

    name: str
    label: str
    hint: str
    value: str
    """What it holds; empty for the configured value."""
    configured: str
    source: str
    is_stored: bool
    choices: Sequence[str]
    """All that can be chosen; empty for a field that is written."""
    ignored: str
    """A stored value that this version of Tidemark does not take; empty if there is none."""
    error: str = ""

    @property
    def unknown_choice(self) -> str:
        """Return what the field holds if nobody can choose it any more; empty if somebody can."""
        return self.value if self.choices and self.value not in ("", *self.choices) else ""


@frozen
class SettingPages:
    """Shows the configuration, and changes what the store may have of it."""

    settings: OperatorSettings
    effective: Callable[[], Sequence[EffectiveSetting]]
    typed: Callable[[str], JsonValue]
    """Returns the value of a typed text, as the command line reads it."""

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        return [("GET", SETTINGS, self._show), ("POST", SETTINGS, self._change)]

    async def _show(self, visit: Visit) -> Response:
        return await self._page(visit)

    async def _change(self, visit: Visit) -> Response:
        """Save the form, or reset one setting or everything; an input without a value resets its setting."""
        action, version = visit.form.get("action", ""), visit.form.get("version", "")
        entered = {name: visit.form.get(name, "").strip() for name in TEXTS}
        form = _Form(entered, visit.form.get(NOTICES) == "on", version)
        name = action.removeprefix(RESETS)
        try:
            if action == "reset":
                await self.settings.reset(visit.announce)
            elif name != action and name in (*TEXTS, NOTICES):
                return await self._reset(visit, form, name)
            else:
                fields = {name: self.typed(text) if text else None for name, text in entered.items()}
                own: dict[str, JsonValue] = {NOTICES: None if form.notices else False}
                await self.settings.change({**fields, **own, "version": version}, visit.announce)
        except StoreUnavailable as error:
            return await self._page(visit, replace(form, error=NOT_SAVED, status=status_of(error)))
        except (InvalidRequest, SettingsConflict) as error:
            param = error.param if isinstance(error, InvalidRequest) else None
            told = replace(form, error=words_for_form(error), param=param or "", status=status_of(error), version="")
            return await self._page(visit, told)
        return go_to(SETTINGS, saved="yes")

    async def _reset(self, visit: Visit, form: _Form, name: str) -> Response:
        """Reset one setting. The page keeps what was entered in the other fields and is not saved yet."""
        before: Any = await self.settings.described()
        others = {other: text for other, text in _stored_texts(before).items() if other != name}
        changed: Any = await self.settings.change({name: None, "version": form.version}, visit.announce)
        is_saved = form.notices == before[NOTICES] or name == NOTICES
        if is_saved and others == {other: form.entered[other] for other in others}:
            return go_to(SETTINGS, saved="yes")
        note = "Reset. The other fields hold what you entered, which is not saved yet."
        entered = {other: "" if other == name else text for other, text in form.entered.items()}
        notices = changed[NOTICES] if name == NOTICES else form.notices
        return await self._page(visit, _Form(entered, notices, note=note))

    async def _page(self, visit: Visit, form: _Form | None = None) -> Response:
        """Return the page. While the store does not answer, it shows what is in force."""
        status, away = form.status if form else 200, ""
        try:
            current: Any = await self.settings.described()
        except StoreUnavailable as error:
            current, status, away = self.settings.in_force(), status_of(error), STORE_AWAY
        shown = form or _Form(_stored_texts(current), current[NOTICES])
        note = "Saved. It applies to the next request, on all workers." if visit.parameter("saved") else ""
        rows, find = self.effective(), visit.parameter("find").strip()[:MAX_FIND]
        return visit.page(
            "settings.html",
            status,
            sections=_sections([row for row in rows if find.lower() in row.name.lower()], current),
            find=find,
            fields=_fields(rows, current, shown),
            stored=current["stored"],
            version=shown.version or current["version"],
            notices=shown.notices,
            error="" if shown.param in TEXTS else shown.error or away,
            note=shown.note or (note if not form else ""),
        )


def _stored_texts(current: Mapping[str, Any]) -> dict[str, str]:
    """Return what the fields hold: what is stored, even if it is not in force; empty if nothing is."""
    values = {**current, **current["ignored"]}
    return {name: str(values[name]) if name in current["stored"] else "" for name in TEXTS}


def _fields(rows: Sequence[EffectiveSetting], current: Mapping[str, Any], form: _Form) -> Sequence[_Field]:
    configured = {row.name: row for row in rows}
    fields = []
    for name, (label, hint) in TEXTS.items():
        row = configured[DEFAULTS + name]
        ignored, error = str(current["ignored"].get(name, "")), form.error if form.param == name else ""
        choices, is_stored = CHOICES.get(name, ()), name in current["stored"]
        value = form.entered[name]
        fields.append(_Field(name, label, hint, value, row.value, row.source, is_stored, choices, ignored, error))
    return fields


def _sections(rows: Sequence[EffectiveSetting], current: Mapping[str, Any]) -> Mapping[str, Sequence[EffectiveSetting]]:
    """Return the effective configuration by the sections of the file, with the store's values if they count."""
    sections: dict[str, list[EffectiveSetting]] = {}
    for row in rows:
        name = row.name.removeprefix(DEFAULTS)
        is_stored = name != row.name and name in current["stored"] and name not in current["ignored"]
        shown = replace(row, value=str(current[name]), source="store") if is_stored else row
        section = row.name.partition(".")[0] if "." in row.name else "general" if row.name.islower() else "secrets"
        sections.setdefault(section, []).append(shown)
    return sections
