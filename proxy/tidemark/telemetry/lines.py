"""Formats a log line in JSON: the line of a request, and the timestamp of every line.

``logging.py`` writes the lines. Every request has one, so its fields are a struct, which encodes faster than a dict.
The bytes are the same as for the masked fields of any other event.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from tidemark.core.events import RequestServed
from tidemark.telemetry.masking import DIGEST, fit_to_log, fit_word

SECONDS_DIGITS = 6
_ENCODER = msgspec.json.Encoder(enc_hook=str)


class ServedLine(msgspec.Struct, omit_defaults=True):
    """The fields of a request's line, in order; fields that are None are omitted."""

    path: str | None
    status: int
    outcome: str
    seconds: float
    first_byte_seconds: float | None = None
    overhead_seconds: float | None = None
    model: str | None = None
    stream: bool | None = None
    conversation: str | None = None
    tenant: str | None = None
    action: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    limit: int | None = None
    summarized_messages: int | None = None
    strategy: str | None = None
    receipt: str | None = None
    recall: str | None = None
    recalled_tokens: int | None = None
    shadow_tokens: int | None = None
    lossless_tokens: int | None = None
    cache_break: str | None = None
    warning: str | None = None
    store: str | None = None
    code: str | None = None
    cause: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    trace_id: str | None = None
    event: str | None = None
    level: str | None = None
    timestamp: str | None = None


def as_json(fields: object, **_: Any) -> str:
    """Encode a line's fields, without the line end."""
    return _ENCODER.encode(fields).decode()


def served_line(served: RequestServed, name: str | None = None, level: str | None = None) -> ServedLine:
    """Return the line of a request, with masked texts.

    :param name: the event's name, and ``level`` its level; None if another processor adds both
    """
    line = ServedLine(
        path=_text(served.path),
        status=served.status,
        outcome=fit_word(served.outcome),
        seconds=round(served.seconds, SECONDS_DIGITS),
        first_byte_seconds=_seconds(served.first_byte_seconds),
        model=_text(served.model),
        stream=served.stream,
    )
    report = served.report
    if report is not None:
        line.overhead_seconds = round(report.overhead_seconds, SECONDS_DIGITS)
        line.conversation, line.tenant = _id(report.conversation), _id(report.tenant)
        line.action = report.action
        line.tokens_before, line.tokens_after, line.limit = report.tokens_before, report.tokens_after, report.limit
        line.summarized_messages, line.strategy = report.summarized, _text(report.strategy)
        line.receipt = report.receipt or None
        if report.recall:
            line.recall, line.recalled_tokens = report.recall, report.recalled_tokens
        line.shadow_tokens = report.shadow.tokens if report.shadow else None
        line.lossless_tokens = report.lossless_tokens or None
        line.cache_break = report.cache_break or None
        line.warning = _text(report.warning)
        line.store = "off" if report.not_stored else "degraded" if report.degraded else "ok"
    line.code, line.cause = _text(served.code), _text(served.cause)
    usage = served.usage
    line.prompt_tokens, line.cached_tokens = usage.input_tokens, usage.cached_tokens
    line.completion_tokens = usage.output_tokens
    line.trace_id = served.trace_id or None
    if name is not None:
        line.event, line.level, line.timestamp = name, level, timestamp()
    return line


def served_fields(served: RequestServed) -> dict[str, Any]:
    """Return the fields by name, for a line that is not JSON."""
    return {name: value for name, value in msgspec.structs.asdict(served_line(served)).items() if value is not None}


def timestamp() -> str:
    """Return the current time in the form ``2026-01-31T12:34:56.123456Z``."""
    second, rest = divmod(time.time_ns(), 10**9)
    return f"{_second(second)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()


def _text(text: str | None) -> str | None:
    return fit_to_log(text) if text else None


def _id(text: str) -> str | None:
    """Mask an id without the cache, because nearly every line has another id."""
    return text if DIGEST.fullmatch(text) else _text(text)


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, SECONDS_DIGITS)
