"""Gaps: what of a stored history is left where some of its records cannot be read.

Of stored history only, before the alignment with what a client sends. A tool call and its results never part
(promise 3), so what has lost its counterpart is left out as well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from proxy.core.conversation.messages import JsonValue
from proxy.core.conversation.records import StoredMessage

_RESULTS = ("tool", "function")


def without_gaps(kept: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """Take out what cannot be read, and the calls and results that have no counterpart without it.

    :param kept: without its system messages, as it is stored; a gap is a message that is ``unreadable``
    """
    if not any(one.unreadable for one in kept):
        return kept
    exchanges: list[list[StoredMessage]] = [[]]
    for one in kept:
        if not one.unreadable and _read(one).get("role") not in _RESULTS:
            exchanges.append([])
        exchanges[-1].append(one)
    return [one for exchange in exchanges for one in _sound(exchange)]


def _sound(exchange: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """What is left of a message, and of the results and gaps that follow it."""
    gap = next((place for place, one in enumerate(exchange) if one.unreadable), None)
    if gap is None:
        return exchange
    first = _read(exchange[0]) if gap else {}
    if first.get("role") in (None, *_RESULTS):
        return []
    called = first.get("tool_calls")
    calls = len(called) if isinstance(called, list) else int("function_call" in first)
    if not calls:
        return exchange[:1]
    return exchange[:gap] if gap > calls else []  # all its results stand before the gap, or some are lost


def _read(one: StoredMessage) -> dict[str, JsonValue]:
    value = json.loads(one.raw)
    return value if isinstance(value, dict) else {}
