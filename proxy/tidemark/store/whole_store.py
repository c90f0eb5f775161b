"""Goes through all keys of a store, on every server that has some, while it is in use.

The features ``upkeep`` and ``tenants`` read what it finds. A key that exists all the while is met at least once
(https://valkey.io/commands/scan). Slots that move meanwhile could hide one, so a cluster whose layout has changed is
gone through again.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from tidemark.core.errors import SchemaUnknown, StoreUnavailable
from tidemark.core.frozen import frozen
from tidemark.store import keys
from tidemark.store.connection.client import FAILURES, ServerClient, StoreClient, connect
from tidemark.store.connection.cluster import ClusterClient, connect_cluster
from tidemark.store.connection.node import CallTimes
from tidemark.store.connection.pipelined import Argument
from tidemark.store.connection.sentinel import connect_to_primary
from tidemark.store.connection.url import names_sentinels, read_address
from tidemark.store.schema import read_schema, refusal_of

CALL_SECONDS = 60.0
"""The longest that one command may take; a conversation of a gigabyte takes seconds."""
PAGE = 500
"""Keys, or elements of one key, that are asked for at once."""
REWRITE_SECONDS = 600.0
_PAUSE_SECONDS = 0.05
MOST_PASSES = 5
"""How often a cluster is gone through whose slots move all the while."""


class ScanState(msgspec.Struct):
    """How far a scan is; a later process goes on from it while the same server processes run."""

    layout: str = ""
    """A digest of the map from slots to servers."""
    done: list[str] = []
    """The server processes that are done, by their run ids."""
    server: str = ""
    """The one under way; its cursor is the next."""
    cursor: str = "0"


@frozen
class ScannedServer:
    """One server that has keys: its client, and the id of its process."""

    client: StoreClient | ServerClient
    run_id: str


class WholeStore:
    """All servers of one store. Belongs to the event loop that uses it first. Mutable: the connection.

    :param url: as ``store.url``, with ``embedded`` resolved
    :raises ConfigError: the URL cannot be used
    """

    def __init__(self, url: str, *, library: bool = False) -> None:
        self._plain, is_cluster = read_address(url)
        self._library = library
        self._client: StoreClient
        if is_cluster:
            self._client = connect_cluster(self._plain, CallTimes(), library=library)
        elif names_sentinels(url):
            self._client = connect_to_primary(url, library=library)
        else:
            self._client = connect(self._plain, library=library)

    async def check_schema(self, *, makes_digests: bool = False) -> None:
        """Note the schema in a new store.

        :param makes_digests: the caller looks for keys by digests, so theirs must have the store's key
        :raises SchemaUnknown: a newer version of Tidemark wrote the store
        :raises StoreUnavailable: it does not answer
        """
        refusal = refusal_of(await _answered(read_schema(self._client)), whatever_digests=not makes_digests)
        if refusal:
            raise SchemaUnknown(refusal)

    async def models_epoch(self) -> str:
        """Return the first part of the version of the settings of models.

        It names a store, and is empty in one without such settings.

        :raises StoreUnavailable: the store does not answer
        """
        version: bytes = await self.call("GET", keys.models_part("v")) or b""
        return version.decode().partition(":")[0]

    async def call(self, *command: Argument) -> Any:
        """Send one command to the server that has its key.

        :raises StoreUnavailable: it does not answer, or refuses
        """
        return await _answered(self._client.call(*command))

    async def call_large(self, *command: Argument) -> Any:
        return await _answered(self._client.call_large(*command))

    async def rewrite_files(self) -> None:
        """Have the append-only file of an embedded server written anew, without what was changed or deleted, and wait.

        :raises StoreUnavailable: it takes too long
        """
        await self.call("BGREWRITEAOF")
        deadline = time.monotonic() + REWRITE_SECONDS
        while time.monotonic() < deadline:
            facts = await _facts(self._client, "persistence")
            if facts.get("aof_rewrite_in_progress") == facts.get("aof_rewrite_scheduled") == "0":
                return
            await asyncio.sleep(_PAUSE_SECONDS)
        raise StoreUnavailable("The append-only file is not rewritten yet. Run the command again.")

    async def count_keys(self) -> int:
        """Return how many keys all servers have, other programs' too."""
        _, servers = await self.servers()
        return sum([int(await _answered(server.client.call("DBSIZE"))) for server in servers])

    async def servers(self) -> tuple[str, Sequence[ScannedServer]]:
        """Return a digest of the layout, and every server that has keys."""
        if not isinstance(self._client, ClusterClient):
            facts = await _facts(self._client)
            if facts.get("redis_mode") != "cluster" or self._plain.startswith("unix:"):
                return "", [ScannedServer(self._client, facts.get("run_id", ""))]
            await self._client.aclose()
            self._client = connect_cluster(self._plain, CallTimes(), library=self._library)
        owners = await _answered(self._client.layout())
        layout = hashlib.sha256(" ".join(map(repr, owners)).encode()).hexdigest()
        primaries = dict.fromkeys(owners)
        return layout, [ScannedServer(node.client, (await _facts(node.client)).get("run_id", "")) for node in primaries]

    async def aclose(self) -> None:
        await self._client.aclose()


class KeyScan:
    """Yields the names of all keys of Tidemark's, page by page, some of them twice. Mutable: ``state``."""

    def __init__(self, store: WholeStore, state: ScanState | None = None) -> None:
        self._store = store
        self.state = state or ScanState()
        """Where to go on; it counts a page when the next one is asked for."""

    async def pages(self) -> AsyncIterator[Sequence[bytes]]:
        """Yield the names.

        :raises StoreUnavailable: a server does not answer, or slots move without an end
        """
        for _ in range(MOST_PASSES):
            layout, servers = await self._store.servers()
            if layout != self.state.layout:
                self.state = ScanState(layout)
            for server in servers:
                if server.run_id not in self.state.done:
                    async for names in self._pages_of(server):
                        yield names
            after, remaining = await self._store.servers()
            if after == layout and all(server.run_id in self.state.done for server in remaining):
                return
        raise StoreUnavailable("The slots of the cluster move all the while. Run it again when they stay.")

    async def _pages_of(self, server: ScannedServer) -> AsyncIterator[Sequence[bytes]]:
        state = self.state
        if state.server != server.run_id:
            state.server, state.cursor = server.run_id, "0"
        while True:
            command = ("SCAN", state.cursor, "MATCH", "tm:*", "COUNT", PAGE)
            cursor, names = await _answered(server.client.call(*command))
            yield names
            state.cursor = str(int(cursor))
            if state.cursor == "0":
                break
        # To another process the cursor would mean nothing.
        if (await _facts(server.client)).get("run_id", "") == server.run_id:
            state.done.append(server.run_id)
        state.server = ""


async def _answered(call: Any) -> Any:
    """Return what a server answers within the time limit.

    :raises StoreUnavailable: it does not, or refuses
    """
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await call
    except FAILURES as error:
        cause = f"{type(error).__name__}: {error}"
        words = str(error) or "no answer in time"
        if isinstance(error, OSError):
            words = f"The store does not answer ({words}). Check store.url, and whether its server runs."
        else:
            words = f"The store does not do what is asked for: {words}"
        raise StoreUnavailable(words, internal=cause) from error


async def _facts(client: StoreClient | ServerClient, section: str = "server") -> Mapping[str, str]:
    """Return what a server says of itself; redis-py reads it already."""
    answer = await _answered(client.call("INFO", section))
    if isinstance(answer, Mapping):
        return {str(name): str(value) for name, value in answer.items()}
    lines = (answer.decode() if isinstance(answer, bytes) else str(answer)).splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines)}
