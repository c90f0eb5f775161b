"""Plugs in the settings that an operator changes while the server runs: ``/tidemark/settings``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.config.stored import check_stored, configured_values, read_setting, with_stored
from tidemark.core.operator_settings import SettingValues
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.features.feature import Feature
from tidemark.features.settings.operator_settings import OperatorSettings
from tidemark.features.settings.store import RedisSettings
from tidemark.server.encodings import read_plain_body
from tidemark.server.guarding import announce_of
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.worker.worker import Worker

SETTINGS = "/tidemark/settings"
MAX_BODY_BYTES = 65_536


class SettingsFeature(Feature):
    """Shows, changes and applies the operator's settings."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.settings = OperatorSettings(
            RedisSettings(worker.store.ask, worker.codec),
            worker.live,
            configured=configured_values(worker.settings),
            read_setting=read_setting,
            check=partial(check_stored, worker.settings),
            apply=self._apply,
        )

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route(SETTINGS, with_error_envelope(self._describe), methods=["GET"]),
            Route(SETTINGS, with_error_envelope(self._change), methods=["PUT"]),
            Route(SETTINGS, with_error_envelope(self._reset), methods=["DELETE"]),
        ]

    def _apply(self, stored: SettingValues) -> None:
        """Let all following requests have the stored settings."""
        self._worker.catalog.use_policies(with_stored(self._worker.settings, stored).policy_for)

    async def _describe(self, request: Request) -> Response:
        self._worker.operator.require_reader(request)
        return to_json(await self.settings.described())

    async def _change(self, request: Request) -> Response:
        self._worker.operator.require(request)
        body = await read_plain_body(request, MAX_BODY_BYTES)
        fields = {name: decode_value(raw, name) for name, raw in read_members(body).items()}
        return to_json(await self.settings.change(fields, announce_of(request)))

    async def _reset(self, request: Request) -> Response:
        self._worker.operator.require(request)
        return to_json(await self.settings.reset(announce_of(request)))
