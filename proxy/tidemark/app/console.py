"""Connects the pages of the console to the parts that they show.

``endpoints.py`` adds the routes to those of the API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from starlette.routing import BaseRoute

from tidemark.config import as_typed
from tidemark.console.conversations import ConversationPages
from tidemark.console.models import ModelPages
from tidemark.console.overview import OverviewPages
from tidemark.console.pages import EVENTS, ConsolePages, PageFamily
from tidemark.console.sessions import Sessions
from tidemark.console.settings import SettingPages, SettingRow
from tidemark.console.summaries import SummaryPages
from tidemark.features.conversations.endpoints import ConversationEndpoints
from tidemark.features.live_events.endpoint import LiveEventEndpoint
from tidemark.features.live_events.hub import LiveEventHub
from tidemark.features.model_registry.endpoints import ModelRegistryPort
from tidemark.features.settings.endpoints import SettingsPort
from tidemark.features.summaries.summary_changes import SummaryChanges
from tidemark.features.traffic.reading import TrafficReader
from tidemark.server.operator import OperatorAccess


def console_routes(
    operator: OperatorAccess,
    secret: bytes,
    *,
    traffic: TrafficReader,
    live_events: LiveEventHub,
    summaries: SummaryChanges,
    models: Sequence[str],
    registry: ModelRegistryPort,
    settings: SettingsPort,
    effective: Callable[[], Sequence[SettingRow]],
    conversations: ConversationEndpoints,
) -> list[BaseRoute]:
    """Return the routes of all pages. A new family of pages is one line here.

    :param secret: the key of the process's HMACs
    :param models: the names of configured models
    """
    sessions = Sessions(operator, secret, time.time)
    families: list[PageFamily] = [
        OverviewPages(traffic),
        ConversationPages(
            conversations.reading,
            conversations.finding,
            conversations.transfer,
            conversations.manual,
            settings,
            models,
        ),
        SummaryPages(summaries, models),
        ModelPages(registry, as_typed),
        SettingPages(settings, effective, as_typed),
    ]
    events = LiveEventEndpoint(live_events, sessions.require, EVENTS)
    return [*events.routes(), *ConsolePages(sessions, families).routes()]
