"""Checks the settings of a model that an operator changes while Tidemark runs.

Fields and ranges are those of the file. ``app`` passes ``read_override`` to the registry. Values come from JSON or, as
text, from the command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tidemark.config import kinds
from tidemark.config.kinds import Kind, Unfit
from tidemark.config.models import WINDOW_KEYS
from tidemark.config.policies import CompactionSettings
from tidemark.config.tree import Scalar, resolve
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest

MOST_TOKENS = 1_000_000_000
"""A hundred times the largest window of any model; a larger number is a mistake."""
_TOKENS: Kind[Any] = kinds.whole("tokens", least=1, most=MOST_TOKENS)
_COMPACTION = {field.name: field for field in dataclasses.fields(CompactionSettings)}
KINDS: Mapping[str, Kind[Any]] = {
    **dict.fromkeys(WINDOW_KEYS, _TOKENS),
    **{name: _COMPACTION[name].metadata["kind"] for name in ("threshold", "retention_tokens")},
}


def read_override(name: str, value: JsonValue) -> int | float | None:
    """Return a field's checked value; None resets the field.

    :raises InvalidRequest: there is no such field, or the value is of another kind or out of range
    """
    kind = KINDS.get(name)
    if kind is None:
        message = f"Unknown parameter: {name[:80]!r}; use {', '.join(KINDS)}."
        raise InvalidRequest(message, param=name[:80], code="unknown_parameter")
    if value is None:
        return None
    takes = f"it takes {kind.wanted}, or null to reset it"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{name!r} is {str(value)[:60]!r}; {takes}.", param=name, code="invalid_type")
    try:
        read: int | float = kind.read(Scalar(value, str(value), 0))
    except Unfit as unfit:
        raise InvalidRequest(
            f"{name!r} is {value}; {f'{unfit}; ' if str(unfit) else ''}{takes}.", param=name
        ) from unfit
    return read


def as_typed(text: str) -> JsonValue:
    """Return the value of a typed text, as YAML reads a word without quotes."""
    return resolve(text)
