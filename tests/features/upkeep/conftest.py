"""Upkeep is tested on the stores of ``tests/store``."""

from __future__ import annotations

from tests.store.conftest import (
    admin,
    alone,
    anyio_backend,
    client,
    cluster_url,
    server,
    short_folder,
    store,
    tenant,
    url,
)

__all__ = [
    "admin",
    "alone",
    "anyio_backend",
    "client",
    "cluster_url",
    "server",
    "short_folder",
    "store",
    "tenant",
    "url",
]
