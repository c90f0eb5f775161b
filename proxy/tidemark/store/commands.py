"""Sends commands and scripts to the store, each within a time limit.

All adapters of this package share one sender and so one connection. ``connection/`` carries the bytes; this module
adds the time limits, the outage backoff and the scripts' names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tidemark.core.conversation.prefix import is_id, split_id
from tidemark.core.errors import SchemaUnknown
from tidemark.store import keys, scripts
from tidemark.store.connection.client import FAILURES, UNKNOWN_SCRIPT, StoreClient
from tidemark.store.connection.cluster import ClusterClient, connect_cluster
from tidemark.store.connection.node import RECALL_SECONDS, RECORD_SECONDS, CallTimes, StoreNode
from tidemark.store.connection.replicated import Replication, connect_replicated
from tidemark.store.connection.sentinel import connect_to_primary
from tidemark.store.connection.slots import keys_of
from tidemark.store.connection.url import names_sentinels, read_address
from tidemark.store.schema import number_of, read_schema, refusal_of
from tidemark.store.watch import facts_of

__all__ = ["RECALL_SECONDS", "RECORD_SECONDS", "Ask", "CommandSender"]

Ask = Callable[..., Awaitable[Any]]
"""``CommandSender.ask``, as the adapters are given it."""
_PROBE_SECONDS = 60
"""The lifetime of a probe's key."""


class CommandSender:
    """Sends commands to one store. It belongs to the event loop that uses it first.

    Its state is the connection, and for each server whether it is away and the task that probes it.

    :param url: ``redis://``, ``rediss://``, ``unix://``; ``redis+cluster://`` or ``?cluster=true``; ``redis+sentinel://``
    :param library: send commands by redis-py, not only those over TLS
    :param wait_replicas: how many replicas must have a turn before it counts as stored, within ``wait_seconds``
    :raises ConfigError: the URL cannot be used
    """

    def __init__(
        self,
        url: str,
        *,
        recall_timeout_seconds: float,
        record_timeout_seconds: float,
        library: bool = False,
        wait_replicas: int = 0,
        wait_seconds: float = 0.0,
    ) -> None:
        plain, self.is_cluster = read_address(url)
        """Whether a script may only use keys of one slot."""
        replication = None
        if wait_replicas:
            record_timeout_seconds += wait_seconds
            names = frozenset({scripts.RECORD.sha, scripts.RECORD.source})
            replication = Replication(wait_replicas, wait_seconds, names)
        times = CallTimes(recall_timeout_seconds, record_timeout_seconds)
        self._cluster: ClusterClient | None = None
        self._client: StoreClient
        if self.is_cluster:
            self._client = self._cluster = connect_cluster(plain, times, library=library, replication=replication)
        elif names_sentinels(url):
            self._client = connect_to_primary(url, library=library, replication=replication)
        else:
            self._client = connect_replicated(plain, replication, library=library)
        self._only = StoreNode(times, self._write_probe)
        self._routed = self._cluster
        """The cluster, whose servers each have a state of their own; None if calls have one state."""

    def node(self, family: str) -> StoreNode:
        """Return the server that has a family's keys: the time limits of calls to it, and whether it is away."""
        return self._only if self._routed is None else self._routed.node_of(keys.family_prefix(family))

    @property
    def is_well(self) -> bool:
        """Whether every server answers and takes writes, as far as is known."""
        nodes = [self._only] if self._routed is None else self._routed.nodes
        return all(node.backoff.is_well for node in nodes)

    async def ask(self, *command: str | bytes | float, probe: bool = False, briefly: bool = False) -> Any:
        """Send one command within its time limit.

        :param probe: send it during an outage too
        :param briefly: wait no longer than ``recall`` does, because a client waits for its request to be forwarded
        :raises StoreUnavailable: the store did not answer in time
        """
        node = self._only if self._routed is None else self._routed.node_of(next(iter(keys_of(command)), None))
        with node.probing if probe else node.recalling if briefly else node.recording:
            return await self._client.call(*command)

    async def ping(self) -> None:
        """Write one key on every server, during an outage too, to learn whether the store takes writes.

        :raises StoreUnavailable: one does not answer, or refuses to write
        """
        await (self._only if self._routed is None else self._routed).ping()

    async def server_facts(self) -> list[Mapping[str, str]]:
        """Return the fields of ``INFO memory`` of each server; none of a server that does not answer, or refuses."""
        clients = [self._client] if self._cluster is None else self._cluster.clients()

        async def facts(client: StoreClient) -> list[Mapping[str, str]]:
            try:
                async with asyncio.timeout(RECORD_SECONDS):
                    return [facts_of(await client.call("INFO", "memory"))]
            except FAILURES:
                return []

        return [fields for answers in await asyncio.gather(*map(facts, clients)) for fields in answers]

    async def check_schema(self) -> int:
        """Refuse all calls while the store has an unknown schema; return the one that it has.

        A new store gets this program's. A store that does not answer changes nothing and returns 0: other calls report
        that.

        :raises SchemaUnknown: it is a newer one
        """
        try:
            async with asyncio.timeout(RECORD_SECONDS):
                stored = await read_schema(self._client)
        except FAILURES:
            if self._only.backoff.refusal:
                raise SchemaUnknown(self._only.backoff.refusal) from None
            return 0
        refusal = refusal_of(stored)
        if refusal:
            self._only.backoff.bar(refusal)
            self._routed = None
            raise SchemaUnknown(refusal)
        self._only.backoff.admit()
        self._routed = self._cluster
        return number_of(stored)

    async def _write_probe(self) -> None:
        await self._client.call("SET", keys.PROBE, b"", "EX", _PROBE_SECONDS)

    async def run(self, script: scripts.Script, family: str, *arguments: str | bytes | float) -> Any:
        """Run a script by name, within the caller's time limit; a server that lacks it is sent the source."""
        prefix = keys.family_prefix(family)
        try:
            return await self._client.call("EVALSHA", script.sha, 1, prefix, *arguments)
        except UNKNOWN_SCRIPT:
            return await self._client.call("EVAL", script.source, 1, prefix, *arguments)

    async def run_with_keys(self, script: scripts.Script, names: Sequence[str], *arguments: str | bytes | float) -> Any:
        """Run a script over several keys, which need not be in one slot if the store is no cluster."""
        try:
            return await self._client.call("EVALSHA", script.sha, len(names), *names, *arguments)
        except UNKNOWN_SCRIPT:
            return await self._client.call("EVAL", script.source, len(names), *names, *arguments)

    async def run_large(self, script: scripts.Script, family: str, *arguments: str | bytes | float) -> Any:
        """Run a script whose arguments are megabytes."""
        prefix = keys.family_prefix(family)
        try:
            return await self._client.call_large("EVALSHA", script.sha, 1, prefix, *arguments)
        except UNKNOWN_SCRIPT:
            return await self._client.call_large("EVAL", script.source, 1, prefix, *arguments)

    async def read(self, script: scripts.Script, conversation: str, *more: str) -> Any:
        """Run a script over one conversation within the time limit; return nothing if the id is none.

        :raises StoreUnavailable: the store did not answer in time
        """
        if not is_id(conversation):
            return ()
        family, own = split_id(conversation)
        with self.node(family).recording:
            return await self.run(script, family, b"", 0, own, *more)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def end_probes(self) -> None:
        await self._only.aclose()
