"""Describes the erasure of tenants, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.server.describing import OBJECT, TEXT, in_path, list_of, members, operation

OPERATIONS = (
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
        in_path("tenant", "The beginning of the tenant's fingerprint."),
    ),
)
"""Those of this feature."""
