"""Reads the W3C trace context of a request: its trace, and which of its header lines may go on.

``server/auth.py`` asks it for requests with such headers. A request without them belongs to no trace. Tidemark
invents none, because nothing would record it. Source: W3C Recommendation "Trace Context", sections 3.2, 3.3 and 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"
NAMES = frozenset({TRACEPARENT, TRACESTATE})
MAX_MEMBERS = 32
"""The most list members of ``tracestate`` (section 3.3.1.3)."""
_PARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[\x21-\x7e]*)?")
"""Section 3.2.2: version, trace id, id of the caller's span, flags; version ff and ids of zeros only are invalid."""
_FIRST_VERSION = b"00"
"""The only version of which nothing may follow the flags (section 4.3)."""
_MEMBER = re.compile(
    rb"(?:[a-z0-9][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    rb"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
"""Sections 3.3.1.3.1 and 3.3.1.3.2: a key of one system or of a tenant at one, and its value.

As in Level 2, a key of one system may begin with a digit."""


def read_traceparent(value: bytes) -> str:
    """Return the trace id of a ``traceparent``, in 32 hexadecimal digits; empty if the value is malformed."""
    matched = _PARENT.fullmatch(value)
    if matched is None or (matched[3] is not None and matched[1] == _FIRST_VERSION):
        return ""
    return matched[2].decode()


def is_tracestate(values: Iterable[bytes]) -> bool:
    """Return whether the lines of ``tracestate`` are one well-formed list, which may have empty members.

    :param values: the values of the lines in order; together they are one list (RFC 9110, section 5.3)
    """
    members = [member.strip(b" \t") for line in values for member in line.split(b",")]
    members = [member for member in members if member]
    keys = {member.partition(b"=")[0] for member in members}
    return len(keys) == len(members) <= MAX_MEMBERS and all(map(_MEMBER.fullmatch, members))


def traced_lines(lines: Sequence[tuple[bytes, bytes]]) -> tuple[str, list[tuple[bytes, bytes]]]:
    """Return a request's trace id, and its header lines without a malformed trace context.

    Tidemark adds no span of its own here, so what is well-formed goes on byte for byte. A malformed ``traceparent``,
    or two of them, are ignored with their ``tracestate``; a malformed ``tracestate`` is ignored alone (section 4.3).

    :param lines: names in lower case
    :returns: the id in 32 hexadecimal digits, empty if there is none
    """
    parents = [value for name, value in lines if name == TRACEPARENT]
    trace_id = read_traceparent(parents[0].strip(b" \t")) if len(parents) == 1 else ""
    dropped = set(NAMES)
    if trace_id:
        dropped.discard(TRACEPARENT)
        if is_tracestate(value for name, value in lines if name == TRACESTATE):
            dropped.discard(TRACESTATE)
    return trace_id, [line for line in lines if line[0] not in dropped]
