"""Plugs in what concerns a whole tenant: its export and its erasure, for the operator and for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import cast, get_args

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tidemark.config import Settings
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest, ServerBusy
from tidemark.features.feature import Feature
from tidemark.features.tenants.erasure import ErasureParts, TenantErasure
from tidemark.features.tenants.export import MEDIA_TYPES, ExportParts, Format, TenantExport
from tidemark.features.tenants.traces import find_owner
from tidemark.server.guarding import announce_of
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.store.encryption.keyring import KeyRing
from tidemark.store.whole_store import WholeStore
from tidemark.worker.worker import Worker

TENANT = "/tidemark/tenants/{tenant}"
BUSY_SECONDS = 30


class TenantsFeature(Feature):
    """Exports and erases tenants. Each has a connection of its own to the store, since it goes through all of it.

    Mutable: the lock of the export that runs.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._exporting = asyncio.Lock()

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route(TENANT, with_error_envelope(self._erase), methods=["DELETE"]),
            Route(f"{TENANT}/export", with_error_envelope(self._export), methods=["GET"]),
        ]

    async def count(self, owner: str) -> int:
        """Return how many conversations an owner has.

        :raises StoreUnavailable: the store did not answer in time
        """
        return await self._worker.store.listing.count(owner)

    async def export(self, owner: str, form: str) -> Response:
        """Return all that is kept of an owner, as it is read.

        :raises InvalidRequest: there is no such form
        :raises ServerBusy: this worker is writing another export
        :raises StoreUnavailable: the store does not answer; later the answer breaks off
        """
        if form not in get_args(Format):
            raise InvalidRequest("'format' must be jsonl or html.", param="format")
        if self._exporting.locked():
            raise ServerBusy("Another export is being written. Try again later.", retry_after=BUSY_SECONDS)
        await self._worker.store.ping()
        kind = cast("Format", form)
        headers = {"content-disposition": f'attachment; filename="tidemark-{owner[:8]}.{form}"'}
        return StreamingResponse(self._stream_export(owner, kind), headers=headers, media_type=MEDIA_TYPES[kind])

    async def erase(self, owner: str) -> dict[str, JsonValue]:
        """Erase all of an owner, and return the signed certificate.

        :raises StoreUnavailable: the store does not answer, or the tenant writes all the while
        """
        worker = self._worker
        async with aclosing(self._store()) as store:
            erasure = TenantErasure(erasure_parts(worker.settings, store, worker.tenant_keys, worker.secret))
            return await erasure.erase(owner)

    async def _stream_export(self, owner: str, form: Format) -> AsyncIterator[bytes]:
        async with self._exporting, aclosing(self._store()) as store:
            async for page in TenantExport(export_parts(self._worker, store), owner).write(form):
                yield page

    async def _erase(self, request: Request) -> Response:
        owner = await self._find_owner(request)
        await announce_of(request)("", owner)
        return to_json(await self.erase(owner))

    async def _export(self, request: Request) -> Response:
        return await self.export(await self._find_owner(request), request.query_params.get("format", "jsonl"))

    async def _find_owner(self, request: Request) -> str:
        """Return the owner that an operator's path names."""
        self._worker.operator.require(request)
        async with aclosing(self._store()) as store:
            return await find_owner(store, self._worker.tenant_keys, request.path_params["tenant"])

    def _store(self) -> WholeStore:
        return WholeStore(self._worker.store_url, library=self._worker.settings.transport.store == "library")


def export_parts(worker: Worker, store: WholeStore) -> ExportParts:
    """Return what an export reads."""
    folder = worker.settings.data_dir / "flush"
    return ExportParts(store=store, codec=worker.codec, flush_folder=folder, fingerprint_of=worker.keys.fingerprint_of)


def erasure_parts(settings: Settings, store: WholeStore, tenant_keys: KeyRing | None, secret: bytes) -> ErasureParts:
    """Return what an erasure works on."""
    return ErasureParts(
        store=store,
        keys=tenant_keys,
        flush_folder=settings.data_dir / "flush",
        secret=secret,
        is_embedded=str(settings.store.url) == "embedded",
    )
