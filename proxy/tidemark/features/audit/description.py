"""Describes the audit log, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.server.describing import (
    NUMBER,
    TEXT,
    WHOLE,
    WHOLE_OR_NULL,
    constant,
    in_query,
    list_of,
    members,
    operation,
    whole,
)

_FACT = ("action", "role", "actor", "tenant", "subject", "address")
_ENTRY = members({"number": WHOLE, "at": NUMBER, **dict.fromkeys(_FACT, TEXT), "worker": TEXT})
OPERATIONS = (
    operation(
        "operator",
        "GET",
        "/tidemark/audit",
        "List what people read, changed and deleted, newest first.",
        members({"object": constant("list"), "data": list_of(_ENTRY), "before": WHOLE_OR_NULL, "head": TEXT}),
        in_query("limit", whole(1)),
        in_query("before", whole(1), "An entry's number."),
        *(in_query(name, TEXT) for name in _FACT),
    ),
)
