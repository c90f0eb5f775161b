"""The line of a request in JSON, and the timestamp of every line of a fact.

Beside ``logging.py``, which writes them. Each request has such a line, so how a field gets into it is settled here
once and for all; what comes out is, byte by byte, what a JSON encoder makes of the masked fields.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from json import JSONEncoder

from proxy.core.events import RequestServed
from proxy.telemetry.masking import DIGEST, MAX_CHARACTERS, fit_to_log

SECONDS_DIGITS = 6
_CUT = MAX_CHARACTERS + 1
"""Of a longer text the log shows no more, and that there was more."""
_NAMES = RequestServed._fields
_ENCODED = JSONEncoder(ensure_ascii=False).encode


def served_line(fact: RequestServed, name: str, level: str) -> str:
    """The line of a request: the fact's fields in their order, without what it does not know."""
    (path, status, outcome, seconds, first_byte, overhead, model, stream, conversation, tenant, action) = fact[:11]
    (before, after, limit, summarized, strategy, warning, store, code, cause, prompt, cached, completion) = fact[11:]
    said = [
        _words("path", path[:_CUT], status, outcome),
        f'"seconds": {_seconds(seconds)}',
        f'"first_byte_seconds": {_seconds(first_byte)}' if first_byte is not None else "",
        f'"overhead_seconds": {_seconds(overhead)}' if overhead is not None else "",
        _words("model", model[:_CUT], stream),
        f'"conversation": {_id(conversation)}' if conversation else "",
        _words("tenant", tenant, action),
        f'"tokens_before": {before}' if before is not None else "",
        f'"tokens_after": {after}' if after is not None else "",
        f'"limit": {limit}' if limit is not None else "",
        f'"summarized_messages": {summarized}' if summarized is not None else "",
        _words("strategy", strategy, warning and warning[:_CUT], store, code and code[:_CUT], cause and cause[:_CUT]),
        f'"prompt_tokens": {prompt}' if prompt is not None else "",
        f'"cached_tokens": {cached}' if cached is not None else "",
        f'"completion_tokens": {completion}' if completion is not None else "",
    ]
    shown = ", ".join([part for part in said if part])
    return f'{{{shown}, "event": "{name}", "level": "{level}", "timestamp": "{timestamp()}"}}\n'


def timestamp() -> str:
    """The time as ``2026-01-31T12:34:56.123456Z``."""
    second, rest = divmod(time.time_ns(), 10**9)
    return f"{_second(second)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()


@lru_cache(maxsize=1024)
def _words(first: str, *values: str | int | None) -> str:
    """Fields in a row, from the one named ``first`` on, that take few values: remembered together.

    Texts from outside, which may have any length, are cut before.
    """
    names = _NAMES[_NAMES.index(first) :]
    return ", ".join(
        [f'"{name}": {_written(value)}' for name, value in zip(names, values, strict=False) if value or value == 0]
    )


def _written(value: str | int | None) -> str:
    return _ENCODED(fit_to_log(value) if isinstance(value, str) else value)


def _id(text: str) -> str:
    """New in most lines, so it takes no place among what is remembered."""
    return f'"{text}"' if DIGEST.fullmatch(text) else _written(text)


def _seconds(value: float) -> str:
    """As ``repr`` writes what ``round`` makes of it, which takes longer: without zeros at the end but the first."""
    if 0.0001 <= value < 1e9:  # no exponent, and all digits are the number's own
        text = f"{value:.{SECONDS_DIGITS}f}".rstrip("0")
        return text + "0" if text.endswith(".") else text
    return repr(round(value, SECONDS_DIGITS))
