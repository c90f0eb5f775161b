"""``/tidemark/settings``: the settings for all models, which the operator reads and changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.server.encodings import read_plain_body
from tidemark.server.operator import OperatorAccess
from tidemark.server.responses import to_json, with_error_envelope

SETTINGS = "/tidemark/settings"
MAX_BODY_BYTES = 65_536


class SettingsPort(Protocol):
    """Reads and changes the settings. Every coroutine raises ``StoreUnavailable`` when the store did not answer."""

    @property
    def shows_notices(self) -> bool:
        """Return whether pages show notices."""
        ...

    async def described(self) -> Mapping[str, JsonValue]:
        """Return all settings."""
        ...

    def in_force(self) -> Mapping[str, JsonValue]:
        """Return all settings as they were when the store answered last."""
        ...

    async def change(self, fields: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Set some settings.

        :raises InvalidRequest: a setting is unknown, of another type, out of range, or contradicts another
        :raises SettingsConflict: they were changed since the sender read their version
        """
        ...

    async def reset(self) -> Mapping[str, JsonValue]:
        """Remove everything that was set."""
        ...


@dataclass(frozen=True, slots=True)
class SettingsEndpoints:
    """Serves the settings, to the operator alone."""

    settings: SettingsPort
    access: OperatorAccess

    def routes(self) -> list[BaseRoute]:
        """Return a route for each method."""
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
