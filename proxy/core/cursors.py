"""Cursors: where a page ends, as an opaque text that the client sends for the next one."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Sequence

from proxy.core.errors import InvalidRequest


def cursor_of(*place: float | str) -> str:
    """The cursor of a place."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place_of(cursor: str, kinds: Sequence[type]) -> tuple[object, ...]:
    """The place of a cursor.

    :param kinds: the types that it must have
    :raises InvalidRequest: it is none of ours, or of another list
    """
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        place = None
    if not isinstance(place, list) or len(place) != len(kinds):
        raise _refused()
    if not all(isinstance(one, kind) and _possible(one) for one, kind in zip(place, kinds, strict=True)):
        raise _refused()
    return tuple(place)


def _possible(one: object) -> bool:
    """Whether we may have written it: no time is endless, or no number."""
    return not isinstance(one, bool) and (not isinstance(one, float) or math.isfinite(one))


def _refused() -> InvalidRequest:
    return InvalidRequest("'cursor' must be the 'next_cursor' of the page before, as it came.", param="cursor")
