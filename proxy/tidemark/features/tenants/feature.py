"""Plugs in the erasure of tenants: ``DELETE /tidemark/tenants/{tenant}``, for the operator."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.config import Settings
from tidemark.core.events import Audited
from tidemark.features.feature import Feature
from tidemark.features.tenants.erasure import ErasureParts, TenantErasure
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.store.encryption.keyring import KeyRing
from tidemark.store.whole_store import WholeStore
from tidemark.worker.worker import Worker

TENANT = "/tidemark/tenants/{tenant}"


class TenantsFeature(Feature):
    """Erases tenants. Each erasure has a connection of its own to the store, since it goes through all of it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def routes(self) -> Sequence[BaseRoute]:
        return [Route(TENANT, with_error_envelope(self._erase), methods=["DELETE"])]

    async def _erase(self, request: Request) -> Response:
        worker = self._worker
        worker.operator.require(request)
        store = WholeStore(worker.store_url, library=worker.settings.transport.store == "library")
        try:
            erasure = TenantErasure(erasure_parts(worker.settings, store, worker.tenant_keys, worker.secret))
            owner = await erasure.find(request.path_params["tenant"])
            certificate = await erasure.erase(owner)
        finally:
            await store.aclose()
        address = request.client.host if request.client else ""
        worker.emit(Audited("tenant.erased", "operator", tenant=owner, address=address))
        return to_json(certificate)


def erasure_parts(settings: Settings, store: WholeStore, tenant_keys: KeyRing | None, secret: bytes) -> ErasureParts:
    """Return what an erasure works on."""
    return ErasureParts(
        store=store,
        keys=tenant_keys,
        flush_folder=settings.data_dir / "flush",
        secret=secret,
        is_embedded=str(settings.store.url) == "embedded",
    )
