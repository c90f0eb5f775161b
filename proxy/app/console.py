"""Connects the pages of the console to the parts that they show.

``endpoints.py`` adds the routes to those of the API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from starlette.routing import BaseRoute

from proxy.archive.live_events import LiveEventHub
from proxy.archive.summary_changes import SummaryChanges
from proxy.archive.traffic import TrafficReader
from proxy.config import as_typed
from proxy.console.conversations import ConversationPages
from proxy.console.models import ModelPages
from proxy.console.overview import OverviewPages
from proxy.console.pages import EVENTS, ConsolePages, PageFamily
from proxy.console.sessions import Sessions
from proxy.console.settings import SettingPages, SettingRow
from proxy.console.summaries import SummaryPages
from proxy.server.endpoints.conversations import ConversationEndpoints
from proxy.server.endpoints.live_events import LiveEventEndpoint
from proxy.server.endpoints.registry import ModelRegistryPort
from proxy.server.endpoints.settings import SettingsPort
from proxy.server.operator import OperatorAccess


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
