"""Plugs in the audit log: it takes the entries of the guard and of other parts, and serves ``/tidemark/audit``.

The guard (``server/guarding.py``) waits until its entry is stored. Parts that emit ``Audited`` do not wait: their
entries are appended as soon as the store takes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.events import Audited, Event, Listener
from tidemark.features.audit.reading import FILTERS, AuditReader, entry_json
from tidemark.features.conversations.paging import DEFAULT_PAGE_ENTRIES, MAX_PAGE_ENTRIES, number_of
from tidemark.features.feature import Feature
from tidemark.server.guarding import Trail
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.worker.patient_writer import PatientWriter
from tidemark.worker.worker import Worker

MAX_WAITING = 10_000
"""Entries that wait for a store that is away; the oldest make way."""
MAX_NUMBER = 10**11


class AuditFeature(Feature):
    """Appends entries, and shows them. Its state is the entries that wait for the store."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._log = worker.audit_log
        self.reader = AuditReader(self._log)
        self._appended: Audited | None = None
        self._waiting: deque[Audited] = deque(maxlen=MAX_WAITING)
        self._writer = PatientWriter(self._write, lambda: bool(self._waiting))

    def trails(self) -> Sequence[Trail]:
        """Return what appends an entry and waits for it."""
        return [self._append]

    def listeners(self) -> Sequence[Listener]:
        """Return what appends the entries that other parts emit."""
        return [self._note]

    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/tidemark/audit", with_error_envelope(self._list), methods=["GET"])]

    async def aclose(self) -> None:
        await self._writer.aclose()

    async def _append(self, fact: Audited) -> None:
        await self._log.append(fact)
        self._appended = fact  # for the log's line, and not for this feature once more
        try:
            self._worker.emit(fact)
        finally:
            self._appended = None

    def _note(self, event: Event) -> None:
        if isinstance(event, Audited) and event is not self._appended:
            self._waiting.append(event)
            self._writer.begin()

    async def _write(self) -> None:
        while self._waiting:
            await self._log.append(self._waiting[0])
            self._waiting.popleft()

    async def _list(self, request: Request) -> Response:
        self._worker.operator.require_reader(request)
        limit = number_of(request, "limit", least=1, most=MAX_PAGE_ENTRIES) or DEFAULT_PAGE_ENTRIES
        before = number_of(request, "before", least=1, most=MAX_NUMBER)
        filters = {name: request.query_params[name] for name in FILTERS if request.query_params.get(name)}
        page = await self.reader.page(limit, before, filters)
        data: list[JsonValue] = [dict(entry_json(entry)) for entry in page.entries]
        return to_json({"object": "list", "data": data, "before": page.before, "head": str(page.head)})
