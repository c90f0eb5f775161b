"""Makes the facts of one request, and shows them.

``writer.py`` makes them of the event that each request ends with. Both forms of the request are not among them: the
console makes them of the stored conversation, which the last three facts lead to.
"""

from __future__ import annotations

from functools import lru_cache

from tidemark.core.bill import MOST_TOKENS, MOST_USD, NANO, billed_tokens
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.events import RequestServed
from tidemark.core.http_headers import program_of
from tidemark.core.report import Report
from tidemark.store.request_facts import CLIPPED, MOVED, RECALLED, SHORTENED, RequestFacts

MAX_CHARACTERS = 100
"""Of a name that a client chooses."""
MAX_WARNING_CHARACTERS = 300
NEWEST_BYTES = 8
DIGITS = 3
REMEMBERED = 1024
"""Names that are cut once: most requests have those of the ones before."""


def facts_of(served: RequestServed, at: float, number: int = 1) -> RequestFacts:
    """Return the facts of a request.

    :param at: Unix time of its end, seconds
    :param number: of how many refused ones it is the last
    """
    report, cached = served.report, served.usage.cached_tokens
    if cached is not None and not 0 <= cached <= MOST_TOKENS:
        cached = None
    path = "/v1/" + served.endpoint if served.endpoint else _text(served.path)
    code, tenant = served.code or "", served.tenant and _text(served.tenant)
    names = _text(served.model), program_of(served.client), tenant
    head = at, path, served.status, served.outcome, *names, served.seconds, served.first_byte_seconds
    if report is None:
        return RequestFacts(*head, "", 0, 0, cached, None, "", code, 0, 0, "", 0, b"", number)
    is_stored = not report.not_stored
    return RequestFacts(
        *head,
        report.action,
        report.tokens_before,
        report.tokens_after,
        cached,
        None if report.price is None else _nano(served, report),
        _text(report.warning, MAX_WARNING_CHARACTERS) if report.warning else "",
        code,
        report.summarized,
        _changes(report) if report.summarized or report.warning or report.lossless_tokens else 0,
        report.conversation if is_stored else "",
        report.position if is_stored else 0,
        report.newest[:NEWEST_BYTES] if is_stored else b"",
    )


def facts_json(identifier: str, owner: str, facts: RequestFacts) -> dict[str, JsonValue]:
    """Return a request as the API shows it."""
    return {
        "id": identifier,
        "at": round(facts.at, DIGITS),
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
        "seconds": round(facts.seconds, DIGITS),
        "first_byte_seconds": None if facts.first_byte is None else round(facts.first_byte, DIGITS),
        "tokens_before": facts.before,
        "tokens_after": facts.after,
        "cached_tokens": facts.cached,
        "summarized_messages": facts.summarized,
        "usd": facts.usd,
        "warning": facts.warning or None,
        "code": facts.code or None,
        "count": facts.count,
    }


def _changes(report: Report) -> int:
    clipped = report.warning is not None and "clipped" in report.warning
    masked = report.strategy == "mask" or report.covered > report.summarized
    shortened = report.lossless_tokens > 0
    others = SHORTENED * shortened | CLIPPED * (clipped or masked) | MOVED * report.is_summary_moved
    return RECALLED * (report.recalled_tokens > 0) | others


def _nano(served: RequestServed, report: Report) -> int | None:
    billed = billed_tokens(served.usage) if report.tokens_after else None
    if billed is None or report.price is None or (usd := report.price.usd(billed)) > MOST_USD:
        return None
    return round(usd * NANO)


@lru_cache(REMEMBERED)
def _text(text: str, characters: int = MAX_CHARACTERS) -> str:
    """Return a text that can be written: half of a surrogate pair, which JSON may hold, becomes a question mark."""
    return text[:characters] if text.isascii() else text[:characters].encode("utf-8", "replace").decode()
