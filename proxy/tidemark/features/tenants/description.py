"""Describes the erasure of tenants, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.server.describing import OBJECT, TEXT, Operation, in_path, json_answer, list_of, members

OPERATIONS = (
    Operation(
        method="DELETE",
        path="/tidemark/tenants/{tenant}",
        summary="Erase a tenant, and answer a signed certificate.",
        access="operator",
        parameters=(in_path("tenant", "The beginning of the tenant's fingerprint."),),
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
