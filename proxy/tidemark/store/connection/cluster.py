"""Sends each command to the server of a cluster that has its slot, and follows slots that move.

``tidemark/store/commands.py`` uses it if ``store.url`` names a cluster; ``client.py`` makes the client of each
server. A script declares the common beginning of all keys that it touches. No key has that name, so a server that
gives a slot away runs no script in the slot, and answers ``ASK``. Then the keys that are still there are moved, and the
script runs at the new server when all have moved: never on a part of a conversation
(``docs/adr/0024-a-slot-on-its-way.md``).

redis-py's client of clusters is not used. It sends ``ASKING`` and the command over two connections, so a command
about a moving slot fails, and it has one state for all servers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from tidemark.core.errors import ConfigError
from tidemark.store.connection.client import FAILURES, OUTAGES, ServerClient, words_of
from tidemark.store.connection.node import CallTimes, StoreNode
from tidemark.store.connection.pipelined import Argument, CommandRefused
from tidemark.store.connection.replicated import Replication, connect_replicated
from tidemark.store.connection.slots import Redirection, is_script, keys_of, read_redirection, slot_of
from tidemark.store.connection.topology import ClusterNode, Topology
from tidemark.store.connection.url import Place, at_place, read_login, read_places

MOVING_SECONDS = 1.0
"""How long a command waits for a slot that is on its way, and whose keys Tidemark cannot move itself."""
STUCK_SECONDS = 5.0
"""How long no further command waits for such a slot after that."""
_PAUSE_SECONDS = 0.02
_MOST_HOPS = 8
_MOST_KEYS = 100_000
"""Keys of a slot that are looked at, to find those of one conversation's family."""
_KEYS_A_MOVE = 50
_MOVE_MILLISECONDS = 200
"""The longest time that the two servers may be silent to each other; the first serves no command meanwhile."""
_UNANSWERED = object()


class ClusterClient:
    """Sends commands to a cluster. Belongs to the event loop that uses it first.

    Its state is the topology, and until when no command waits for a slot that is on its way.

    :param seeds: the servers that the configuration names
    :param login: user and password, with which one server moves keys to another
    """

    def __init__(
        self,
        seeds: Sequence[Place],
        open_client: Callable[[Place], ServerClient],
        times: CallTimes,
        login: tuple[str, str] | None = None,
    ) -> None:
        self._topology = Topology(seeds, open_client, times, self._probe)
        self._login = ("AUTH2", *login) if login else ()
        self._stuck: dict[int, float] = {}
        self._unplaced = StoreNode(times, self._find_all)
        """Stands for the slots whose server is not known."""

    def node_of(self, key: Argument | None) -> StoreNode:
        """Return the server of a key as calls see it; that of no key is the first that is well."""
        if key is None:
            return min(self.nodes, key=lambda node: node.backoff.is_away)
        owner = self._topology.owners[slot_of(_text(key))]
        return self._unplaced if owner is None else owner.state

    @property
    def nodes(self) -> list[StoreNode]:
        """All servers that have slots, and what stands for the slots that none has."""
        return [*(node.state for node in self._topology.primaries()), self._unplaced]

    def clients(self) -> list[ServerClient]:
        """Return the client of each server that is known to have slots."""
        return [node.client for node in self._topology.primaries()]

    async def call(self, *command: Argument) -> Any:
        """Send one command to the server that has its slot; raises one of ``FAILURES``."""
        return await self._send(command, is_large=False)

    async def call_large(self, *command: Argument) -> Any:
        return await self._send(command, is_large=True)

    async def ping(self) -> None:
        """Write one key on every server, to learn whether each takes writes.

        :raises StoreUnavailable: one does not answer, or refuses to write, or slots have no server
        """
        await self._unplaced.ping()
        nodes = [node for node in self._topology.primaries() if self._topology.find_probe_key(node)]
        for outcome in await asyncio.gather(*[node.state.ping() for node in nodes], return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def layout(self) -> Sequence[ClusterNode]:
        """Ask for the slots, and return the server of each.

        :raises OSError: no server tells them, or a slot has none
        """
        await self._topology.load()
        await self._find_all()
        return [owner for owner in self._topology.owners if owner is not None]

    async def aclose(self) -> None:
        await self._unplaced.aclose()
        await self._topology.aclose()

    async def _send(self, command: Sequence[Argument], *, is_large: bool) -> Any:
        names = keys_of(command)
        slot = slot_of(_text(names[0])) if names else None
        node = first = await self._owner(slot)
        hops, until = 0, None
        while True:
            try:
                return await (node.client.call_large(*command) if is_large else node.client.call(*command))
            except OUTAGES as error:
                hops += 1
                node = await self._replacement(node, first, slot, error)
            except FAILURES as error:
                redirection = read_redirection(words_of(error), node.place[0])
                if redirection is None or slot is None or hops > _MOST_HOPS:
                    raise
                if redirection.word == "MOVED":
                    hops += 1
                    node = self._topology.move(slot, redirection.place)
                    continue
                answer = await self._follow(redirection, node, slot, command)
                if answer is not _UNANSWERED:
                    return answer
                until = await self._wait_for_slot(node, slot, until)
                node = await self._owner(slot)

    async def _replacement(
        self, failed: ClusterNode, first: ClusterNode, slot: int | None, error: BaseException
    ) -> ClusterNode:
        """Return the server that has taken a failed one's place; raises the error if there is none yet.

        :param first: the server whose outage the caller reports; that of any other is noted here
        """
        try:
            await self._topology.load()
            owner = await self._owner(slot)
        except OSError:
            owner = failed
        if owner is not failed:
            return owner
        if failed is first:
            raise error
        failed.state.backoff.failed()
        raise CommandRefused(f"CLUSTERDOWN {failed}: {error}") from error

    async def _follow(
        self, redirection: Redirection, source: ClusterNode, slot: int, command: Sequence[Argument]
    ) -> Any:
        """Send a command to the server that its slot is moving to, once all that it may touch is there.

        :returns: its answer; ``_UNANSWERED`` if the slot must be waited for
        """
        if redirection.word != "ASK":
            return _UNANSWERED
        if is_script(command) and not await self._clear(source, redirection.place, slot, keys_of(command)):
            return _UNANSWERED
        target = self._topology.node(redirection.place)
        try:
            return await target.client.call_asking(*command)
        except OUTAGES:
            return _UNANSWERED
        except FAILURES as error:
            if read_redirection(words_of(error), target.place[0]) is None:
                raise
            return _UNANSWERED  # the move has ended, or begins only

    async def _clear(self, source: ClusterNode, target: Place, slot: int, beginnings: Sequence[Argument]) -> bool:
        """Move the keys with these beginnings that a server still has of a slot; return whether none is left.

        No key comes back: the server that gives a slot away makes no new one in it.
        """
        if self._stuck.get(slot, 0.0) > asyncio.get_running_loop().time():
            return False
        try:
            while remaining := await self._remaining_keys(source, slot, beginnings):
                for start in range(0, len(remaining), _KEYS_A_MOVE):
                    part = remaining[start : start + _KEYS_A_MOVE]
                    arguments = (*target, "", 0, _MOVE_MILLISECONDS, *self._login, "KEYS", *part)
                    await source.client.call("MIGRATE", *arguments)
                    source.state.backoff.succeeded(asyncio.get_running_loop().time())
        except FAILURES:
            return False
        return True

    async def _remaining_keys(self, source: ClusterNode, slot: int, beginnings: Sequence[Argument]) -> list[bytes]:
        names = await source.client.call("CLUSTER", "GETKEYSINSLOT", slot, _MOST_KEYS)
        starts = tuple(_text(beginning) for beginning in beginnings)
        remaining = [name for name in names if name.startswith(starts)]
        if not remaining and len(names) == _MOST_KEYS:
            raise CommandRefused(f"slot {slot} has more keys than are looked at")
        return remaining

    async def _wait_for_slot(self, node: ClusterNode, slot: int, until: float | None) -> float:
        """Wait a moment for a slot that is on its way.

        :raises CommandRefused: it has taken too long
        """
        now = asyncio.get_running_loop().time()
        if until is None:
            until = now if self._stuck.get(slot, 0.0) > now else now + MOVING_SECONDS
        if now >= until:
            self._stuck[slot] = now + STUCK_SECONDS
            raise CommandRefused(f"TRYAGAIN slot {slot} is on its way from {node}, and the rest of its keys is not")
        node.state.backoff.succeeded(now)  # it answers, so the caller's time begins anew
        await asyncio.sleep(_PAUSE_SECONDS)
        return until

    async def _owner(self, slot: int | None) -> ClusterNode:
        """Return the server that has a slot, or any that is well; raises ``OSError`` if there is none."""
        if slot is None:
            primaries = self._topology.primaries()
            if not primaries:
                await self._topology.load()
                primaries = self._topology.primaries()
            return min(primaries, key=lambda node: node.state.backoff.is_away)
        owner = self._topology.owners[slot]
        if owner is None:
            await self._topology.load()
            owner = self._topology.owners[slot]
        if owner is None:
            raise ConnectionError(f"no server of the cluster has slot {slot}")
        return owner

    async def _probe(self, node: ClusterNode) -> None:
        """Learn whether a server's outage is over: it answers, or another one has its slots."""
        with contextlib.suppress(OSError):
            await self._topology.load()
        if self._topology.find_probe_key(node):
            await node.state.ping()
        else:
            node.state.backoff.succeeded(asyncio.get_running_loop().time())
            node.state.backoff.wrote()

    async def _find_all(self) -> None:
        if None in self._topology.owners:
            await self._topology.load()
        if None in self._topology.owners:
            slot = self._topology.owners.index(None)
            raise ConnectionError(f"no server of the cluster has slot {slot}: tell one to take it (ADDSLOTS)")


def _text(key: Argument) -> bytes:
    return key if isinstance(key, bytes) else str(key).encode()


def connect_cluster(
    url: str, times: CallTimes, *, library: bool = False, replication: Replication | None = None
) -> ClusterClient:
    """Make the client for a cluster's address. It opens nothing yet.

    :param url: with any number of servers: ``redis://me:password@a:7000,b:7000``
    :param library: use redis-py for plain addresses too
    :param replication: which writes wait for replicas; None for none
    :raises ConfigError: the URL cannot be used
    """

    def open_client(place: Place) -> ServerClient:
        return connect_replicated(at_place(url, place), replication, library=library)

    try:
        seeds = read_places(url)
    except ValueError as error:
        raise ConfigError("store.url cannot be used: a port is a number up to 65535.", internal=str(error)) from error
    open_client(seeds[0])  # an option that does not fit shows here, and not at a request
    return ClusterClient(seeds, open_client, times, read_login(url))
