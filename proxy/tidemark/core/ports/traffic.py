"""The port for the figures of all requests (``tidemark/core/traffic.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tidemark.core.traffic import TrafficFigures, TrafficLevel


class TrafficStore(Protocol):
    """Adds up the figures of all workers and replicas."""

    async def add(self, writer: str, number: int, minutes: Mapping[int, TrafficFigures]) -> None:
        """Add a worker's figures, at every level. A batch that is sent again adds nothing.

        :param writer: the worker's name among all workers
        :param number: the batch's number, greater than that of the worker's batch before
        :param minutes: figures by minute since 1970
        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def read(self, level: TrafficLevel, first: int, last: int) -> Mapping[int, TrafficFigures]:
        """Return the figures of the periods from ``first`` to ``last``; those without any are left out.

        :param first: periods of this level since 1970
        :raises StoreUnavailable: the store did not answer in time
        """
        ...
