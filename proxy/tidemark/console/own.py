"""``/console/own``: a tenant that has signed in takes out all that is kept of it, or erases that."""

from __future__ import annotations

import json
from collections.abc import Sequence

from starlette.responses import Response

from tidemark.console.pages import HOME, Answer
from tidemark.console.visit import Visit
from tidemark.core.frozen import frozen
from tidemark.features.tenants.feature import TenantsFeature

ERASE = f"{HOME}/own/erase"


@frozen
class OwnPages:
    """Exports and erases the visiting tenant. The routes serve nobody else (``app/roles.py``)."""

    tenants: TenantsFeature

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        return [
            ("GET", f"{HOME}/own/export", self._export),
            ("GET", ERASE, self._ask),
            ("POST", ERASE, self._erase),
        ]

    async def _export(self, visit: Visit) -> Response:
        return await self.tenants.export(visit.visitor.owner, visit.parameter("format") or "html")

    async def _ask(self, visit: Visit) -> Response:
        owner = visit.visitor.owner
        return visit.page("erase_own.html", certificate="", count=await self.tenants.count(owner))

    async def _erase(self, visit: Visit) -> Response:
        done = await self.tenants.erase(visit.visitor.owner)
        return visit.page("erase_own.html", certificate=json.dumps(done, indent=2))
