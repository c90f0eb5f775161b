"""Connects the pages of the console to the features that they show."""

from __future__ import annotations

import time
from functools import partial

from starlette.routing import BaseRoute

from tidemark.app.features import find
from tidemark.config import as_typed
from tidemark.config.effective import effective_settings
from tidemark.console.conversations import ConversationPages
from tidemark.console.models import ModelPages
from tidemark.console.overview import OverviewPages
from tidemark.console.pages import HOME, ConsolePages, PageFamily
from tidemark.console.sessions import Sessions
from tidemark.console.settings import SettingPages
from tidemark.console.summaries import SummaryPages
from tidemark.features.conversations.feature import Conversations
from tidemark.features.feature import Feature
from tidemark.features.model_registry.feature import ModelRegistryFeature
from tidemark.features.settings.feature import OperatorSettingsFeature
from tidemark.features.summaries.feature import Summaries
from tidemark.features.traffic.feature import Traffic
from tidemark.worker.worker import Worker


def console_routes(worker: Worker, features: list[Feature]) -> list[BaseRoute]:
    """Return the routes of all pages. A new family of pages is one line here."""
    sessions = Sessions(worker.operator, worker.secret, time.time)
    models = [entry.name for entry in worker.settings.model_list]
    conversations, summaries = find(Conversations, features), find(Summaries, features)
    settings = find(OperatorSettingsFeature, features).settings
    families: list[PageFamily] = [
        OverviewPages(find(Traffic, features).reader),
        ConversationPages(
            conversations.reading, conversations.finding, conversations.transfer, summaries.manual, settings, models
        ),
        SummaryPages(summaries.changes, models),
        ModelPages(find(ModelRegistryFeature, features).registry, as_typed),
        SettingPages(settings, partial(effective_settings, worker.settings), as_typed),
    ]
    streams = [route for feature in features for route in feature.console_routes(HOME, sessions.require)]
    return [*streams, *ConsolePages(sessions, families).routes()]
