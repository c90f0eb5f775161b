"""Chooses the header lines that pass each way, writes the report's lines, and reads the client's controls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidemark.core.conversation.keeping import KEEPS
from tidemark.core.errors import InvalidRequest
from tidemark.core.http_headers import NOT_SENT, end_to_end
from tidemark.core.planning.situation import Mode
from tidemark.core.ports import Headers
from tidemark.core.report import Report
from tidemark.pipeline.values import Controls, History

OWN_PREFIX = b"x-tidemark-"
_OWN = slice(len(OWN_PREFIX))
"""The part of a name that is compared. ``startswith`` takes twice as long, and it runs for every header line."""
MAX_NAME_LENGTH = 256
"""The most characters of a name that a client gives a conversation."""
NO_CONTROLS = Controls()
_HISTORIES: Mapping[str, History] = {"client": "client", "stored": "stored"}
_MODES: Mapping[str, Mode] = {"auto": "auto", "force": "force", "off": "off", "shadow": "shadow"}


def forwarded_lines(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the client's request headers that go upstream."""
    return [line for line in end_to_end(headers, NOT_SENT) if line[0][_OWN] != OWN_PREFIX]


def returned_lines(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the upstream's response headers that reach the client: all but its length and another Tidemark's.

    The length is written anew or omitted, because an event of ours may follow.
    """
    return [line for line in headers if line[0] != b"content-length" and line[0][_OWN] != OWN_PREFIX]


def report_lines(report: Report) -> list[tuple[bytes, bytes]]:
    """Return the header lines that report what was done to the request (promise 9)."""
    lines = [(b"x-tidemark-conversation", _field(report.conversation))] if report.conversation else []
    lines += [
        (b"x-tidemark-action", report.action.encode()),
        (b"x-tidemark-tokens-before", b"%d" % report.tokens_before),
        (b"x-tidemark-tokens-after", b"%d" % report.tokens_after),
        (b"x-tidemark-limit", b"%d" % report.limit),
        (b"x-tidemark-summarized-messages", b"%d" % report.summarized),
    ]
    if report.strategy:
        lines.append((b"x-tidemark-strategy", _field(report.strategy)))
    if report.receipt:
        lines.append((b"x-tidemark-kept", _field(report.receipt)))
    if report.recall:
        lines.append((b"x-tidemark-recalled-tokens", b"%d" % report.recalled_tokens))
    if report.warning:
        lines.append((b"x-tidemark-warning", _field(report.warning)))
    if report.gap:
        lines.append((b"x-tidemark-history-gap", _field(report.gap)))
    lines.append((b"x-tidemark-store", b"off" if report.not_stored else b"degraded" if report.degraded else b"ok"))
    return lines


def saved_line(usd: float) -> tuple[bytes, bytes]:
    """Return the header line that says what a request saved; below 0 if Tidemark cost more."""
    return (b"x-tidemark-saved", b"%.6f USD" % usd)


def read_controls(headers: Sequence[tuple[bytes, bytes]]) -> Controls:
    """Read the ``X-Tidemark-*`` request headers.

    :raises InvalidRequest: a header has a value that it does not take
    """
    values = {name: value.strip().decode("latin-1") for name, value in headers if name[_OWN] == OWN_PREFIX}
    if not values:
        return NO_CONTROLS
    history, _, more = values.get(b"x-tidemark-history", "client").lower().partition(";")
    history = history.strip()
    if history not in _HISTORIES:
        raise _refused("X-Tidemark-History", history, "client, stored, or stored; known=N")
    if history == "stored" and b"x-tidemark-conversation" not in values:
        raise _refused("X-Tidemark-History", history, "stored beside X-Tidemark-Conversation only")
    mode = values.get(b"x-tidemark-summarize", "auto").lower()
    if mode not in _MODES:
        raise _refused("X-Tidemark-Summarize", mode, "force, auto, off or shadow")
    overflow = values.get(b"x-tidemark-overflow")
    if overflow is not None and overflow.lower() != "acknowledge":
        raise _refused("X-Tidemark-Overflow", overflow, "acknowledge")
    stated = values.get(b"x-tidemark-keep", "all").lower()
    keep = next((value for value in KEEPS if value == stated), None)
    if keep is None:
        raise _refused("X-Tidemark-Keep", stated, "all, summaries or none")
    if keep != "all" and history == "stored":
        raise _refused("X-Tidemark-Keep", keep, "all beside X-Tidemark-History: stored, which needs what is stored")
    return Controls(
        keep=keep,
        mode=_MODES[mode],
        retention=_retention(values.get(b"x-tidemark-retention-tokens")),
        conversation=conversation_name(_as_utf8(values.get(b"x-tidemark-conversation"))),
        history=_HISTORIES[history],
        known_count=_known_count(more.strip()) if more else None,
        idempotency_key=_idempotency_key(headers) if history == "stored" else "",
        acknowledge=overflow is not None,
    )


def _retention(value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or len(value) > 12:
        raise _refused("X-Tidemark-Retention-Tokens", value, "a whole number of tokens, 0 or more")
    return int(value)


def _as_utf8(value: str | None) -> str | None:
    """Return a value whose bytes are UTF-8 as its text.

    Others stay ISO 8859-1 (RFC 9110, section 5.5).
    """
    if value is None or value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def _idempotency_key(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the newest ``Idempotency-Key``, with which clients mark a request that they may send again."""
    keys = [value for name, value in headers if name == b"idempotency-key"]
    return keys[-1].decode("latin-1").strip()[:MAX_NAME_LENGTH] if keys else ""


def _known_count(value: str) -> int:
    name, _, number = value.partition("=")
    if name.strip() != "known" or not number.isascii() or not number.isdigit() or len(number) > 12:
        raise _refused("X-Tidemark-History", f"stored; {value}", "a whole number of messages after known=")
    return int(number)


def conversation_name(value: str | None) -> str | None:
    """Return the name that a client gives a conversation, after checking it.

    :raises InvalidRequest: it is empty, too long or has invisible characters
    """
    if value is None:
        return None
    if not value or len(value) > MAX_NAME_LENGTH or not value.isprintable():
        raise _refused("X-Tidemark-Conversation", value, f"1 to {MAX_NAME_LENGTH} printable characters")
    return value


def _refused(header: str, value: str, allowed: str) -> InvalidRequest:
    return InvalidRequest(
        f"{header} cannot be {value[:80]!r}; it takes {allowed}.", param=header, code="invalid_header"
    )


def _field(value: str) -> bytes:
    """Return a value as a header field: one line of visible ASCII (RFC 9110, section 5.5)."""
    if len(value) <= 500 and value.isascii() and value.isprintable():
        return value.encode("ascii")
    return "".join(char if " " <= char <= "~" else "?" for char in value)[:500].encode("ascii")
