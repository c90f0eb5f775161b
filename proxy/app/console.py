"""Connects the pages of the console to the parts that they show.

``endpoints.py`` adds the routes to those of the API.
"""

from __future__ import annotations

import time

from starlette.routing import BaseRoute

from proxy.archive.traffic import TrafficReader
from proxy.console.overview import OverviewPages
from proxy.console.pages import ConsolePages
from proxy.console.sessions import Sessions
from proxy.server.operator import OperatorAccess


def console_routes(operator: OperatorAccess, secret: bytes, traffic: TrafficReader) -> list[BaseRoute]:
    """Return the routes of all pages. A new family of pages is one line here.

    :param secret: the key of the process's HMACs
    """
    sessions = Sessions(operator, secret, time.time)
    return ConsolePages(sessions, [OverviewPages(traffic)]).routes()
