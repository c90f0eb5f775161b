"""Plugs in the settings that an operator changes while the server runs: ``/tidemark/settings``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from starlette.routing import BaseRoute

from tidemark.config.stored import check_stored, configured_values, read_setting, with_stored
from tidemark.core.operator_settings import SettingValues
from tidemark.features.feature import Feature
from tidemark.features.settings.endpoints import SettingsEndpoints
from tidemark.features.settings.operator_settings import OperatorSettings
from tidemark.features.settings.store import RedisSettings
from tidemark.worker.worker import Worker


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
        return SettingsEndpoints(self.settings, self._worker.operator).routes()

    def _apply(self, stored: SettingValues) -> None:
        """Let all following requests have the stored settings."""
        self._worker.catalog.use_policies(with_stored(self._worker.settings, stored).policy_for)
