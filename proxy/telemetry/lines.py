"""The line of a request in JSON, and the timestamp of every line of a fact.

Beside ``logging.py``, which writes them. Each request has such a line, so how a field gets into it is settled here
once and for all; what comes out is, byte by byte, what a JSON encoder makes of the masked fields.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from proxy.core.events import RequestServed
from proxy.telemetry.masking import DIGEST, MAX_CHARACTERS, fit_to_log

SECONDS_DIGITS = 6


def served_line(fact: RequestServed, name: str, level: str) -> str:
    """The line of a request: the fact's fields in their order, without what it does not know."""
    said = [head + write(value) for head, write, value in zip(_HEADS, _WRITE, fact, strict=True) if value or value == 0]
    return f'{{{", ".join(said)}, "event": "{name}", "level": "{level}", "timestamp": "{timestamp()}"}}\n'


def timestamp() -> str:
    """The time as ``2026-01-31T12:34:56.123456Z``."""
    second, rest = divmod(time.time_ns(), 10**9)
    return f"{_second(second)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()


@lru_cache(maxsize=1024)
def _own(text: str) -> str:
    """A text of ours or of the configuration's: the same few words again and again."""
    return encode_basestring(fit_to_log(text))


def _foreign(text: str) -> str:
    """A text from outside, cut before it is remembered: a client may send any length."""
    return _own(text[: MAX_CHARACTERS + 1])


def _id(text: str) -> str:
    """New in most lines, so it takes no place among what is remembered."""
    return f'"{text}"' if DIGEST.fullmatch(text) else _foreign(text)


def _seconds(value: float) -> str:
    return repr(round(value, SECONDS_DIGITS))


_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "status": str,
    "outcome": _own,
    "seconds": _seconds,
    "first_byte_seconds": _seconds,
    "overhead_seconds": _seconds,
    "stream": {True: "true", False: "false"}.__getitem__,
    "conversation": _id,
    "tenant": _own,
    "action": _own,
    "tokens_before": str,
    "tokens_after": str,
    "limit": str,
    "summarized_messages": str,
    "store": _own,
    "prompt_tokens": str,
    "cached_tokens": str,
    "completion_tokens": str,
}
"""How each kind of value is written. Numbers need no masking; what is not named here may be anybody's text."""
_HEADS = [f'"{name}": ' for name in RequestServed._fields]
_WRITE = [_WRITERS.get(name, _foreign) for name in RequestServed._fields]
