"""Cursors: opaque texts for the end of a page, which a client sends to get the next page."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Sequence

from tidemark.core.errors import InvalidRequest


def cursor_of(*place: float | str) -> str:
    """Write a place in a list as a cursor."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place_of(cursor: str, kinds: Sequence[type]) -> tuple[object, ...]:
    """Read the place in a list that a cursor stands for.

    :param kinds: the types of the place's parts
    :raises InvalidRequest: the text is no cursor, or one of another list
    """
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        place = None
    if not isinstance(place, list) or len(place) != len(kinds):
        raise _refused()
    if not all(isinstance(part, kind) and _is_finite(part) for part, kind in zip(place, kinds, strict=True)):
        raise _refused()
    return tuple(place)


def _is_finite(part: object) -> bool:
    """Return whether ``cursor_of`` can have written a part: it writes no booleans, infinities or NaN."""
    return not isinstance(part, bool) and (not isinstance(part, float) or math.isfinite(part))


def _refused() -> InvalidRequest:
    return InvalidRequest("'cursor' must be the 'next_cursor' of the page before, as it came.", param="cursor")
