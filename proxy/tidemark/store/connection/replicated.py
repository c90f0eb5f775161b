"""Lets a turn count as stored only when replicas have it, if ``store.wait_replicas`` says so.

``tidemark/store/commands.py``, ``cluster.py`` and ``sentinel.py`` open each server's client here. ``WAIT`` goes
directly behind the write over the same connection (https://valkey.io/commands/wait), so its answer is about this write,
on the server that took it, also during a failover. It blocks its connection, so these writes have a pool of their own.
Without the setting no such client is made.
"""

from __future__ import annotations

from typing import Any

from tidemark.core.frozen import frozen
from tidemark.store.connection.client import PooledClient, ServerClient, connect, connect_pool
from tidemark.store.connection.pipelined import Argument, CommandRefused


@frozen
class Replication:
    """How many replicas must have a write, and which writes."""

    replicas: int
    seconds: float
    """How long they are waited for; the write is not undone after that."""
    scripts: frozenset[Argument]
    """The names and sources of the scripts whose writes are waited for. Each writes something at every run."""


class ReplicatedClient:
    """Sends commands to one server, and waits for replicas behind the scripts that ask for it."""

    def __init__(self, client: ServerClient, pool: PooledClient, replication: Replication) -> None:
        self._client = client
        self._pool = pool
        self._replication = replication
        self._wait = ("WAIT", replication.replicas, round(replication.seconds * 1000))

    async def call(self, *command: Argument) -> Any:
        """Send one command; raises ``CommandRefused`` (``NOREPLICAS``) if too few replicas have its write."""
        if self._must_wait(command):
            return self._checked(*await self._pool.call_all(command, self._wait))
        return await self._client.call(*command)

    async def call_large(self, *command: Argument) -> Any:
        return await (self.call(*command) if self._must_wait(command) else self._client.call_large(*command))

    async def call_asking(self, *command: Argument) -> Any:
        """Send a command about a slot that moves to this server, likewise."""
        if self._must_wait(command):
            _, *answers = await self._pool.call_all(("ASKING",), command, self._wait)
            return self._checked(*answers)
        return await self._client.call_asking(*command)

    async def aclose(self) -> None:
        await self._client.aclose()
        await self._pool.aclose()

    def _must_wait(self, command: tuple[Argument, ...]) -> bool:
        return len(command) > 1 and command[1] in self._replication.scripts

    def _checked(self, answer: Any, count: Any) -> Any:
        for failed in (answer, count):
            if isinstance(failed, Exception):
                raise failed
        if count < self._replication.replicas:
            raise CommandRefused(f"NOREPLICAS {count} of {self._replication.replicas} replicas have the turn")
        return answer


def connect_replicated(url: str, replication: Replication | None, *, library: bool = False) -> ServerClient:
    """Make the client for one server's address. It opens nothing yet.

    :param replication: which writes wait for replicas; None for none
    :param library: use redis-py for a plain address too
    :raises ConfigError: the URL cannot be used
    """
    client = connect(url, library=library)
    return client if replication is None else ReplicatedClient(client, connect_pool(url), replication)
