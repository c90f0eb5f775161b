"""Checks the settings that an operator changes while Tidemark runs, for all models or for one.

Names and ranges are those of the file. ``app`` passes these functions to ``features/settings/operator_settings.py`` and
to the registry. Values come from JSON or, as text, from the command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from tidemark.config.kinds import Kind, Mark, Unfit, kind_of, kinds_of, whole
from tidemark.config.models import WINDOW_KEYS
from tidemark.config.sections import CompactionSettings, changed
from tidemark.config.settings import Settings
from tidemark.config.tree import Scalar, resolve
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.summary import Template, TemplateName
from tidemark.core.errors import InvalidRequest
from tidemark.core.operator_settings import SettingValues

MOST_TOKENS = 1_000_000_000
"""A hundred times the largest window of any model; a larger number is a mistake."""
_NUMBERS = ("threshold", "retention_tokens", "retention_ratio")
_COMPACTION = kinds_of(CompactionSettings)
STORED_KINDS: Mapping[str, Kind] = {
    **{name: _COMPACTION[name] for name in (*_NUMBERS, "strategy")},
    "threshold": kind_of(Mark),
    "template": kind_of(TemplateName),
    "notices": kind_of(bool),
}
"""The settings for all models. A template of one's own needs a file, so only shipped ones are stored."""
OVERRIDE_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(WINDOW_KEYS, kind_of(Annotated[int, whole("tokens", least=1, most=MOST_TOKENS)])),
    "threshold": kind_of(Mark),
    "retention_tokens": _COMPACTION["retention_tokens"],
}
"""The settings of one model."""


def read_setting(name: str, value: JsonValue) -> str | int | float | bool | None:
    """Return the checked value of a setting for all models; None resets it.

    :raises InvalidRequest: there is no such setting, or the value is of another kind or out of range
    """
    read: str | int | float | bool | None = _read(STORED_KINDS, name, value, (str, int, float, bool))
    return read


def read_override(name: str, value: JsonValue) -> int | float | None:
    """Return the checked value of a setting of one model; None resets it.

    :raises InvalidRequest: there is no such setting, or the value is of another kind or out of range
    """
    read: int | float | None = _read(OVERRIDE_KINDS, name, value, (int, float))
    return read


def as_typed(text: str) -> JsonValue:
    """Return the value of a typed text, as YAML reads a word without quotes."""
    return resolve(text)


def with_stored(settings: Settings, values: SettingValues) -> Settings:
    """Return the settings with the stored values in place of ``compaction.defaults``; unusable ones are left out."""
    usable = {name: value for name, value in values.items() if name in _COMPACTION and _is_usable(name, value)}
    if not usable:
        return settings
    defaults = changed(settings.compaction.defaults, usable)
    compaction = dataclasses.replace(settings.compaction, defaults=defaults)
    return dataclasses.replace(settings, compaction=compaction, stored_keys=frozenset(usable))


def check_stored(settings: Settings, values: SettingValues) -> None:
    """Check that the stored values contradict no other setting of any configured model.

    :raises InvalidRequest: a compaction would not bring a request below the mark that it is due at
    """
    if "threshold" not in values:
        return
    after = with_stored(settings, values)
    names = [*after.compaction.models, *(entry.name for entry in after.model_list)]
    for compaction in (after.compaction.defaults, *map(after.compaction_for, names)):
        mark = compaction.threshold
        if mark is not None and mark <= 1 and compaction.target >= mark:
            raise InvalidRequest(
                f"'threshold' must lie between the target, {compaction.target:g}, and 1, or be a number of tokens: a "
                "compaction brings a request well under the mark that it is due at.",
                param="threshold",
            )


def configured_values(settings: Settings) -> SettingValues:
    """Return the values that apply if the store has none."""
    defaults = settings.compaction.defaults
    template = defaults.template.name if isinstance(defaults.template, Template) else defaults.template
    numbers = {name: getattr(defaults, name) for name in _NUMBERS}
    if defaults.threshold is None:
        numbers["threshold"] = "price"
    return {**numbers, "strategy": defaults.strategy, "template": template, "notices": True}


def _read(kinds: Mapping[str, Kind], name: str, value: Any, types: tuple[type, ...]) -> Any:
    kind = kinds.get(name)
    if kind is None:
        message = f"Unknown parameter: {name[:80]!r}; use {', '.join(kinds)}."
        raise InvalidRequest(message, param=name[:80], code="unknown_parameter")
    if value is None:
        return None
    shown = str(value)[:60] if type(value) in (int, float) else repr(str(value)[:60])
    wanted = f"it takes {kind.wanted}, or null to reset it"
    if type(value) not in types:  # a boolean is no number, which it is to isinstance
        raise InvalidRequest(f"{name!r} is {shown}; {wanted}.", param=name, code="invalid_type")
    try:
        return kind.read(Scalar(value, str(value), 0))
    except Unfit as unfit:
        detail = f"{unfit}; " if str(unfit) else ""
        raise InvalidRequest(f"{name!r} is {shown}; {detail}{wanted}.", param=name) from unfit


def _is_usable(name: str, value: JsonValue) -> bool:
    """Return whether this version of Tidemark takes a stored value."""
    try:
        return read_setting(name, value) is not None
    except InvalidRequest:
        return False
