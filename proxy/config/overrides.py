"""What a person may set of a model while Tidemark runs: the same fields and ranges as in the file.

``app`` hands ``read_override`` to the registry; values come from JSON or, as text, from the command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from proxy.config import kinds
from proxy.config.kinds import Kind, Unfit
from proxy.config.models import WINDOW_KEYS
from proxy.config.sections import CompactionSettings
from proxy.config.tree import Scalar, resolve
from proxy.core.conversation.messages import JsonValue
from proxy.core.errors import InvalidRequest

MOST_TOKENS = 1_000_000_000
"""A hundred times the largest window there is: what is above it is a slip."""
_TOKENS: Kind[Any] = kinds.whole("tokens", least=1, most=MOST_TOKENS)
_COMPACTION = {one.name: one for one in dataclasses.fields(CompactionSettings)}
KINDS: Mapping[str, Kind[Any]] = {
    **dict.fromkeys(WINDOW_KEYS, _TOKENS),
    **{name: _COMPACTION[name].metadata["kind"] for name in ("threshold", "retention_tokens")},
}


def read_override(name: str, value: JsonValue) -> int | float | None:
    """A field's value, checked; None takes back what was set.

    :raises InvalidRequest: there is no such field, or the value is of another kind or out of range
    """
    kind = KINDS.get(name)
    if kind is None:
        message = f"Unknown parameter: {name[:80]!r}; use {', '.join(KINDS)}."
        raise InvalidRequest(message, param=name[:80], code="unknown_parameter")
    if value is None:
        return None
    takes = f"it takes {kind.wanted}, or null for what was found"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{name!r} is {str(value)[:60]!r}; {takes}.", param=name, code="invalid_type")
    try:
        read: int | float = kind.read(Scalar(value, str(value), 0))
    except Unfit as unfit:
        raise InvalidRequest(f"{name!r} is {value}; {str(unfit) or takes}.", param=name) from unfit
    return read


def as_typed(text: str) -> JsonValue:
    """A value that somebody typed, as YAML reads a word without quotes."""
    return resolve(text)
