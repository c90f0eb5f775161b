"""Knows the server of each slot of a cluster, and asks the servers for it.

``cluster.py`` routes by it. Any server that answers gives the places of all, so a cluster can be used while one of
the servers that ``store.url`` names is alive.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tidemark.store import keys
from tidemark.store.connection.client import FAILURES, ServerClient
from tidemark.store.connection.node import CallTimes, StoreNode
from tidemark.store.connection.slots import SLOTS, SlotRange, read_ranges, slot_of
from tidemark.store.connection.url import Place

_NEXT_SECONDS = 0.05
"""When the next server is asked for the slots, if one has not answered."""
_ANSWER_SECONDS = 1.0
"""When a server that was asked is given up."""
PROBE_SECONDS = 60
"""The lifetime of a probe's key."""

_T = TypeVar("_T")
Probe = Callable[["ClusterNode"], Awaitable[None]]


class ClusterNode:
    """One server of a cluster: its place, its client, and how calls to it go."""

    def __init__(self, place: Place, client: ServerClient, times: CallTimes, probe: Probe) -> None:
        self.place = place
        self.client = client
        self.probe_key = ""
        """A key in a slot that the server has."""
        self.state = StoreNode(times, self._write, lambda: probe(self))

    def __repr__(self) -> str:
        return f"{self.place[0]}:{self.place[1]}"

    async def _write(self) -> None:
        await self.client.call("SET", self.probe_key or keys.PROBE, b"", "EX", PROBE_SECONDS)

    async def aclose(self) -> None:
        await self.state.aclose()
        await self.client.aclose()


class Topology:
    """The servers of a cluster and their slots. Belongs to the event loop that uses it first.

    Mutable: all that, and the one task that asks for it.

    :param seeds: the servers that the configuration names
    """

    def __init__(
        self, seeds: Sequence[Place], open_client: Callable[[Place], ServerClient], times: CallTimes, probe: Probe
    ) -> None:
        self._seeds = tuple(seeds)
        self._open_client = open_client
        self._times = times
        self._probe = probe
        self._nodes: dict[Place, ClusterNode] = {}
        self.owners: list[ClusterNode | None] = [None] * SLOTS
        """The server that has each slot; None if it is not known, or no server has it."""
        self._loading: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def node(self, place: Place) -> ClusterNode:
        node = self._nodes.get(place)
        if node is None:
            node = self._nodes[place] = ClusterNode(place, self._open_client(place), self._times, self._probe)
        return node

    def primaries(self) -> list[ClusterNode]:
        """Return the servers that have slots."""
        return list(dict.fromkeys(owner for owner in self.owners if owner is not None))

    def move(self, slot: int, place: Place) -> ClusterNode:
        """Note that a slot is at another place, and ask for the others soon; return the server there."""
        node = self.owners[slot] = self.node(place)
        self._begin_loading()
        return node

    async def load(self) -> None:
        """Ask for the slots; of several callers, the first asks and the others wait for the same answer.

        :raises OSError: no server tells them
        """
        await asyncio.shield(self._begin_loading())

    def _begin_loading(self) -> asyncio.Task[None]:
        """Ask for the slots, unless that is under way; raises ``OSError`` if the connections are closed."""
        if self._closed:
            raise ConnectionError("closed on our side")
        if self._loading is None or self._loading.done():
            self._loading = self._start(self._load())
        return self._loading

    def find_probe_key(self, node: ClusterNode) -> bool:
        """Find the name of a key in a slot of a server; return whether it has any slot."""
        if node.probe_key and self.owners[slot_of(node.probe_key)] is node:
            return True
        if node not in self.owners:
            return False
        node.probe_key = next(
            name
            for name in (f"{keys.PROBE}:{number}" for number in itertools.count())
            if self.owners[slot_of(name)] is node
        )
        return True

    async def aclose(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*[node.aclose() for node in self._nodes.values()])

    async def _load(self) -> None:
        places = list({*self._nodes, *self._seeds})
        random.shuffle(places)  # a server that is cut off from the others may tell what was true once
        nodes = sorted((self.node(place) for place in places), key=lambda node: node.state.backoff.is_away)
        self._apply(await self._first_answer(nodes))

    async def _first_answer(self, nodes: Sequence[ClusterNode]) -> list[SlotRange]:
        error: BaseException | None = None
        asking: set[asyncio.Task[list[SlotRange]]] = set()
        waiting = list(nodes)
        while waiting or asking:
            if waiting:
                asking.add(self._start(self._ask(waiting.pop(0))))
            done, asking = await asyncio.wait(
                asking, timeout=_NEXT_SECONDS if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = task.exception()
                if error is None:
                    return task.result()
        raise ConnectionError(f"no server of the cluster tells its slots: {error}") from error

    async def _ask(self, node: ClusterNode) -> list[SlotRange]:
        """Ask one server.

        :raises OSError: it does not tell
        """
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await node.client.call("CLUSTER", "SLOTS")
            ranges = read_ranges(answer, node.place[0])
        except (*FAILURES, ValueError, TypeError, IndexError) as error:
            raise ConnectionError(f"{node}: {type(error).__name__}: {error}") from error
        if not ranges:
            raise ConnectionError(f"{node} knows of no slots")
        return ranges

    def _apply(self, ranges: Sequence[SlotRange]) -> None:
        if self._closed:
            return
        owners: list[ClusterNode | None] = [None] * SLOTS
        places = set(self._seeds)
        for span in ranges:
            owners[span.first : span.last + 1] = [self.node(span.primary)] * (span.last + 1 - span.first)
            places.update((span.primary, *span.replicas))
        self.owners = owners
        for place in places:
            self.node(place)
        for place in self._nodes.keys() - places:
            self._start(self._nodes.pop(place).aclose())

    def _start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # asyncio logs an exception that no code reads
