"""Makes the facts of one request, and shows them.

``writer.py`` makes them of the event that each request ends with. Both forms of the request are not among them: the
console makes them of the stored conversation, which the last three facts lead to.
"""

from __future__ import annotations

import re

from tidemark.core.bill import MOST_TOKENS, MOST_USD, NANO, billed_tokens
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.events import RequestServed
from tidemark.core.report import Report
from tidemark.store.request_facts import CLIPPED, RECALLED, SHORTENED, RequestFacts

MAX_CHARACTERS = 100
"""Of a name that a client chooses."""
MAX_WARNING_CHARACTERS = 300
NEWEST_BYTES = 8
DIGITS = 3
_PROGRAM = re.compile(r"[^\s(;,]+(?: \d[^\s(;,]*)?")


def facts_of(served: RequestServed, at: float) -> RequestFacts:
    """Return the facts of a request.

    :param at: Unix time of its end, seconds
    """
    report, usage, first_byte = served.report, served.usage, served.first_byte_seconds
    cached = usage.cached_tokens
    is_stored = report is not None and not report.not_stored
    return RequestFacts(
        round(at, DIGITS),
        f"/v1/{served.endpoint}" if served.endpoint else _text(served.path),
        served.status,
        served.outcome,
        _text(served.model),
        program_of(served.client),
        _text(served.tenant),
        round(served.seconds, DIGITS),
        None if first_byte is None else round(first_byte, DIGITS),
        report.action if report else "",
        report.tokens_before if report else 0,
        report.tokens_after if report else 0,
        cached if cached is not None and 0 <= cached <= MOST_TOKENS else None,
        _nano(served),
        _text(report.warning or "", MAX_WARNING_CHARACTERS) if report else "",
        served.code or "",
        report.summarized if report else 0,
        _changes(report) if report else 0,
        report.conversation if report and is_stored else "",
        report.position if report and is_stored else 0,
        report.newest[:NEWEST_BYTES] if report and is_stored else b"",
    )


def program_of(agent: bytes) -> str:
    """Return a program's name and version of a ``User-Agent``: its first product (RFC 9110, section 10.1.5)."""
    match = _PROGRAM.match(agent[: 2 * MAX_CHARACTERS].decode("latin-1").strip())
    return match[0][:MAX_CHARACTERS] if match else ""


def facts_json(identifier: str, owner: str, facts: RequestFacts) -> dict[str, JsonValue]:
    """Return a request as the API shows it."""
    return {
        "id": identifier,
        "at": facts.at,
        "path": facts.path,
        "status": facts.status,
        "outcome": facts.outcome,
        "kind": facts.kind,
        "action": facts.action or None,
        "model": facts.model,
        "client": facts.program,
        "tenant": owner,
        "tenant_name": facts.tenant or None,
        "conversation": facts.conversation or None,
        "seconds": facts.seconds,
        "first_byte_seconds": facts.first_byte,
        "tokens_before": facts.before,
        "tokens_after": facts.after,
        "cached_tokens": facts.cached,
        "summarized_messages": facts.summarized,
        "usd": facts.usd,
        "warning": facts.warning or None,
        "code": facts.code or None,
    }


def _changes(report: Report) -> int:
    clipped = report.warning is not None and "clipped" in report.warning
    masked = report.strategy == "mask" or report.covered > report.summarized
    shortened = report.lossless_tokens > 0
    return RECALLED * (report.recalled_tokens > 0) | SHORTENED * shortened | CLIPPED * (clipped or masked)


def _nano(served: RequestServed) -> int | None:
    report = served.report
    if report is None or report.price is None or not report.tokens_after:
        return None
    billed = billed_tokens(served.usage)
    if billed is None or (usd := report.price.usd(billed)) > MOST_USD:
        return None
    return round(usd * NANO)


def _text(text: str, characters: int = MAX_CHARACTERS) -> str:
    """Return a text that can be written: half of a surrogate pair, which JSON may hold, becomes a question mark."""
    return text[:characters] if text.isascii() else text[:characters].encode("utf-8", "replace").decode()
