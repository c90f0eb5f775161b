"""How a line of the log is written in JSON, that of a request above all, and the timestamp of a fact's line.

Beside ``logging.py``, which writes them. Each request has such a line, so its fields are told to the encoder once and
for all; what comes out is, byte by byte, what the same encoder makes of the masked fields of any other fact.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from proxy.core.events import RequestServed
from proxy.telemetry.masking import DIGEST, fit_to_log, fit_word

SECONDS_DIGITS = 6
_FIELDS = [(name, Any, None) for name in (*RequestServed._fields, "event", "level", "timestamp")]
_Line = msgspec.defstruct("_Line", _FIELDS, omit_defaults=True)
"""What a request's line says; what is None is left out."""
_ENCODER = msgspec.json.Encoder(enc_hook=str)


def as_json(fields: object, **_: Any) -> str:
    """A line's fields, without the line's end."""
    return _ENCODER.encode(fields).decode()


def served_line(fact: RequestServed, name: str, level: str) -> str:
    """The line of a request: the fact's fields in their order, without what it does not know."""
    (path, status, outcome, seconds, first_byte, overhead, model, stream, conversation, tenant, action) = fact[:11]
    (before, after, limit, summarized, strategy, warning, store, code, cause, prompt, cached, completion) = fact[11:]
    line = _Line(
        _text(path),
        status,
        fit_word(outcome),
        _seconds(seconds),
        _seconds(first_byte),
        _seconds(overhead),
        _text(model),
        stream,
        _id(conversation),
        _id(tenant),
        fit_word(action) if action else None,
        before,
        after,
        limit,
        summarized,
        _text(strategy),
        _text(warning),
        fit_word(store) if store else None,
        _text(code),
        _text(cause),
        prompt,
        cached,
        completion,
        name,
        level,
        timestamp(),
    )
    return as_json(line) + "\n"


def timestamp() -> str:
    """The time as ``2026-01-31T12:34:56.123456Z``."""
    second, rest = divmod(time.time_ns(), 10**9)
    return f"{_second(second)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()


def _text(text: str | None) -> str | None:
    return fit_to_log(text) if text else None


def _id(text: str) -> str | None:
    """New in most lines, so it takes no place among what is remembered."""
    return text if DIGEST.fullmatch(text) else _text(text)


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, SECONDS_DIGITS)
