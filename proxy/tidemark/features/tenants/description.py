"""Describes the export and the erasure of tenants, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.server.describing import (
    OBJECT,
    TEXT,
    Answer,
    Operation,
    choice,
    in_path,
    in_query,
    json_answer,
    list_of,
    members,
)

_TENANT = in_path("tenant", "The beginning of the tenant's fingerprint.")
OPERATIONS = (
    Operation(
        method="GET",
        path="/tidemark/tenants/{tenant}/export",
        summary="Export all that is kept of a tenant, as JSON Lines or one HTML page.",
        access="operator",
        parameters=(_TENANT, in_query("format", choice("jsonl", "html"), "Without it, jsonl.")),
        answers={200: Answer({"application/jsonl": TEXT, "text/html": TEXT})},
        refusals=(503,),
    ),
    Operation(
        method="DELETE",
        path="/tidemark/tenants/{tenant}",
        summary="Erase a tenant, and answer a signed certificate.",
        access="operator",
        parameters=(_TENANT,),
        answers={
            200: json_answer(
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
                )
            )
        },
    ),
)
"""Those of this feature."""
