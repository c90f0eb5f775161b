"""Describes the export and the erasure of tenants, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.server.describing import (
    OBJECT,
    TEXT,
    Answer,
    choice,
    in_path,
    in_query,
    list_of,
    members,
    operation,
)

_TENANT = in_path("tenant", "The beginning of the tenant's fingerprint.")
OPERATIONS = (
    operation(
        "operator",
        "GET",
        "/tidemark/tenants/{tenant}/export",
        "Export all that is kept of a tenant, as JSON Lines or one HTML page.",
        Answer({"application/jsonl": TEXT, "text/html": TEXT}),
        _TENANT,
        in_query("format", choice("jsonl", "html"), "Without it, jsonl."),
        refusals=(503,),
    ),
    operation(
        "operator",
        "DELETE",
        "/tidemark/tenants/{tenant}",
        "Erase a tenant, and answer a signed certificate.",
        members(
            {
                "tenant": TEXT,
                "erased_at": TEXT,
                "key_ids": list_of(TEXT),
                "erased": OBJECT,
                "backups_and_exports": TEXT,
                "public_key": TEXT,
                "signature": TEXT,
            }
        ),
        _TENANT,
    ),
)
