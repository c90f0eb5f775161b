"""Plugs in the figures of requests: ``/tidemark/stats``."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.routing import BaseRoute

from tidemark.features.feature import Feature
from tidemark.features.traffic.counting import TrafficCounter
from tidemark.features.traffic.endpoints import TrafficEndpoints
from tidemark.features.traffic.store import RedisTraffic
from tidemark.features.traffic.traffic_reader import TrafficReader
from tidemark.worker.worker import Worker


class TrafficFeature(Feature):
    """Adds up the figures of all requests, for the operator."""

    def __init__(self, worker: Worker) -> None:
        store, metrics = RedisTraffic(worker.store.ask), worker.metrics
        self._operator = worker.operator
        self._counter = TrafficCounter(store, time.time, metrics.hand_over, metrics.state.add_store_time)
        metrics.give_traffic_to(self._counter.add)
        self.reader = TrafficReader(store, self._counter.settle, time.time)

    def routes(self) -> Sequence[BaseRoute]:
        return TrafficEndpoints(self.reader, self._operator).routes()

    async def aclose(self) -> None:
        """Write the figures that wait."""
        await self._counter.aclose()
