"""Connects the pages of the console to the parts that they show.

``endpoints.py`` adds the routes to those of the API.
"""

from __future__ import annotations

import time

from starlette.routing import BaseRoute

from proxy.archive.live_events import LiveEventHub
from proxy.archive.traffic import TrafficReader
from proxy.console.overview import OverviewPages
from proxy.console.pages import EVENTS, ConsolePages
from proxy.console.sessions import Sessions
from proxy.server.endpoints.live_events import LiveEventEndpoint
from proxy.server.operator import OperatorAccess


def console_routes(
    operator: OperatorAccess, secret: bytes, *, traffic: TrafficReader, live_events: LiveEventHub
) -> list[BaseRoute]:
    """Return the routes of all pages. A new family of pages is one line here.

    :param secret: the key of the process's HMACs
    """
    sessions = Sessions(operator, secret, time.time)
    families = [OverviewPages(traffic)]
    events = LiveEventEndpoint(live_events, sessions.require, EVENTS)
    return [*events.routes(), *ConsolePages(sessions, families).routes()]
