"""``/console/audit``: what people read, changed and deleted, newest first, with filters.

It shows what ``GET /tidemark/audit`` returns, to the operator and to auditors.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.responses import Response

from tidemark.console.pages import HOME, Answer
from tidemark.console.visit import Visit
from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.features.audit.reading import FILTERS, AuditReader

AUDIT = f"{HOME}/audit"
ENTRIES = 100
_DIGITS = 11


@frozen
class AuditPages:
    """Shows the audit log."""

    reader: AuditReader

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        return [("GET", AUDIT, self._show)]

    async def _show(self, visit: Visit) -> Response:
        text = visit.parameter("before")
        if text and not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
            raise InvalidRequest("There is no such page of the list.", param="cursor")
        filters = {name: visit.parameter(name).strip() for name in FILTERS if visit.parameter(name).strip()}
        page = await self.reader.page(ENTRIES, int(text) if text else None, filters)
        return visit.page(
            "audit.html",
            entries=page.entries,
            head=page.head,
            filters={name: filters.get(name, "") for name in FILTERS},
            is_filtered=bool(filters),
            older=urlencode({**filters, "before": page.before}) if page.before else "",
        )
