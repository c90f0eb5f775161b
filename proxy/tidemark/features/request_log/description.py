"""Describes the log of requests, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.features.conversations.paging import MAX_PAGE_ENTRIES
from tidemark.server.describing import (
    NUMBER,
    NUMBER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    WHOLE,
    WHOLE_OR_NULL,
    choice,
    constant,
    in_query,
    list_of,
    members,
    operation,
    whole,
)

_REQUEST = members(
    {
        **dict.fromkeys(("id", "path", "outcome", "kind", "model", "client", "tenant"), TEXT),
        **dict.fromkeys(("action", "tenant_name", "conversation", "warning", "code"), TEXT_OR_NULL),
        **dict.fromkeys(("status", "tokens_before", "tokens_after", "summarized_messages", "count"), WHOLE),
        **dict.fromkeys(("at", "seconds"), NUMBER),
        **dict.fromkeys(("first_byte_seconds", "usd"), NUMBER_OR_NULL),
        "cached_tokens": WHOLE_OR_NULL,
    }
)
OPERATIONS = (
    operation(
        "operator",
        "GET",
        "/tidemark/requests",
        "List the newest requests, newest first.",
        members({"object": constant("list"), "data": list_of(_REQUEST), "next_cursor": TEXT_OR_NULL}),
        in_query("limit", whole(1, MAX_PAGE_ENTRIES)),
        in_query("cursor", TEXT),
        *(in_query(name, TEXT) for name in ("model", "tenant", "kind", "status", "conversation")),
        in_query("warnings", choice("true"), "Only those with a warning."),
    ),
)
