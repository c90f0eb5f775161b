"""``/tidemark/settings``: the settings for all models, which the operator reads and changes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.frozen import frozen
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.features.settings.operator_settings import OperatorSettings
from tidemark.server.encodings import read_plain_body
from tidemark.server.operator import OperatorAccess
from tidemark.server.responses import to_json, with_error_envelope

SETTINGS = "/tidemark/settings"
MAX_BODY_BYTES = 65_536


@frozen
class SettingsEndpoints:
    """Serves the settings, to the operator alone."""

    settings: OperatorSettings
    access: OperatorAccess

    def routes(self) -> list[BaseRoute]:
        return [
            Route(SETTINGS, with_error_envelope(self._describe), methods=["GET"]),
            Route(SETTINGS, with_error_envelope(self._change), methods=["PUT"]),
            Route(SETTINGS, with_error_envelope(self._reset), methods=["DELETE"]),
        ]

    async def _describe(self, request: Request) -> Response:
        self.access.require(request)
        return to_json(await self.settings.described())

    async def _change(self, request: Request) -> Response:
        self.access.require(request)
        body = await read_plain_body(request, MAX_BODY_BYTES)
        fields = {name: decode_value(raw, name) for name, raw in read_members(body).items()}
        return to_json(await self.settings.change(fields))

    async def _reset(self, request: Request) -> Response:
        self.access.require(request)
        return to_json(await self.settings.reset())
