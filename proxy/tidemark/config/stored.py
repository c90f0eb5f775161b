"""Checks the settings for all models that an operator changes while Tidemark runs.

Names and ranges are those of ``compaction.defaults``. ``app`` passes these functions to
``features/settings/operator_settings.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tidemark.config import kinds
from tidemark.config.kinds import Kind, Unfit
from tidemark.config.policies import CompactionSettings
from tidemark.config.sections import changed
from tidemark.config.settings import Settings
from tidemark.config.tree import Scalar
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.summary import Template, TemplateName
from tidemark.core.errors import InvalidRequest
from tidemark.core.operator_settings import StoredValues

_COMPACTION = {field.name: field for field in dataclasses.fields(CompactionSettings)}
_NUMBERS = ("threshold", "retention_tokens", "retention_ratio")
STORED_KINDS: Mapping[str, Kind[Any]] = {
    **{name: _COMPACTION[name].metadata["kind"] for name in (*_NUMBERS, "strategy")},
    "template": kinds.choice(TemplateName),
    "notices": kinds.flag(),
}
"""The settings that the store may have. A template of one's own needs a file, so only shipped ones are stored."""


def read_setting(name: str, value: JsonValue) -> str | int | float | bool | None:
    """Return a setting's checked value; None resets it.

    :raises InvalidRequest: there is no such setting, or the value is of another kind or out of range
    """
    kind = STORED_KINDS.get(name)
    if kind is None:
        message = f"Unknown parameter: {name[:80]!r}; use {', '.join(STORED_KINDS)}."
        raise InvalidRequest(message, param=name[:80], code="unknown_parameter")
    if value is None:
        return None
    wanted = f"it takes {kind.wanted}, or null to reset it"
    if not isinstance(value, str | int | float | bool):
        raise InvalidRequest(f"{name!r} is {str(value)[:60]!r}; {wanted}.", param=name, code="invalid_type")
    try:
        read: str | int | float | bool = kind.read(Scalar(value, str(value), 0))
    except Unfit as unfit:
        detail = f"{unfit}; " if str(unfit) else ""
        raise InvalidRequest(f"{name!r} is {str(value)[:60]!r}; {detail}{wanted}.", param=name) from unfit
    return read


def with_stored(settings: Settings, values: StoredValues) -> Settings:
    """Return the settings with the stored values in place of ``compaction.defaults``; unusable ones are left out."""
    usable = {name: value for name, value in values.items() if name in _COMPACTION and _is_usable(name, value)}
    if not usable:
        return settings
    defaults = changed(settings.compaction.defaults, usable)
    compaction = dataclasses.replace(settings.compaction, defaults=defaults)
    return dataclasses.replace(settings, compaction=compaction, stored_keys=frozenset(usable))


def check_stored(settings: Settings, values: StoredValues) -> None:
    """Check that the stored values contradict no other setting of any configured model.

    :raises InvalidRequest: a compaction would not bring a request below the mark that it is due at
    """
    if "threshold" not in values:
        return
    after = with_stored(settings, values)
    names = [*after.compaction.models, *(entry.name for entry in after.model_list)]
    for compaction in (after.compaction.defaults, *map(after.compaction_for, names)):
        if compaction.threshold <= 1 and compaction.target >= compaction.threshold:
            raise InvalidRequest(
                f"'threshold' must lie between the target, {compaction.target:g}, and 1, or be a number of tokens: a "
                "compaction brings a request well under the mark that it is due at.",
                param="threshold",
            )


def configured_values(settings: Settings) -> StoredValues:
    """Return the values that apply where the store has none."""
    defaults = settings.compaction.defaults
    template = defaults.template.name if isinstance(defaults.template, Template) else defaults.template
    numbers = {name: getattr(defaults, name) for name in _NUMBERS}
    return {**numbers, "strategy": defaults.strategy, "template": template, "notices": True}


def _is_usable(name: str, value: JsonValue) -> bool:
    """Return whether this version of Tidemark takes a stored value."""
    try:
        return read_setting(name, value) is not None
    except InvalidRequest:
        return False
