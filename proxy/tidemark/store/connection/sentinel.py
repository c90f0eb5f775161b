"""Connects to the primary that Sentinels name, and to the next one after a failover.

``tidemark/store/commands.py`` uses it if ``store.url`` names Sentinels. Each new connection asks them first, and
checks that the server is a primary (https://valkey.io/topics/sentinel-clients). They are asked once a second, too: a
primary that was cut off does not know that another has its place, and would take writes that are lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from tidemark.core.errors import ConfigError
from tidemark.store.connection.client import (
    FAILURES,
    OUTAGES,
    ServerClient,
    StoreClient,
    connect,
    plain_server,
    words_of,
)
from tidemark.store.connection.pipelined import (
    CONNECT_SECONDS,
    Argument,
    CommandRefused,
    PipelinedConnection,
    StoreServer,
    StoreSocket,
    pack,
)
from tidemark.store.connection.replicated import Replication, connect_replicated
from tidemark.store.connection.url import Place, at_place, read_sentinels

WATCH_SECONDS = 1.0
"""Between two questions for the primary; until then a process may use one that was replaced."""
SENTINEL_SECONDS = 0.25
"""How long one Sentinel is waited for; then the next one is asked."""
_ROLE = pack(("ROLE",))


class PrimaryFinder:
    """Asks Sentinels for the primary of a service. Mutable: the one that answered last is asked first."""

    def __init__(self, sentinels: Sequence[ServerClient], service: str) -> None:
        self._sentinels = list(sentinels)
        self._service = service

    async def find(self) -> Place:
        """Return the place of the primary; raises ``OSError`` if no Sentinel knows one."""
        reason: BaseException | None = None
        for sentinel in list(self._sentinels):
            try:
                async with asyncio.timeout(SENTINEL_SECONDS):
                    answer = await sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            except FAILURES as error:
                reason = error
                continue
            if answer:
                self._sentinels.sort(key=lambda other: other is not sentinel)
                host, port = (part.decode() if isinstance(part, bytes) else part for part in answer)
                return host, int(port)
        raise ConnectionError(f"no Sentinel knows the primary of {self._service}: {reason!r}") from reason

    async def aclose(self) -> None:
        await asyncio.gather(*[sentinel.aclose() for sentinel in self._sentinels])


class PrimaryConnection(PipelinedConnection):
    """The connection to a primary, opened anew if another server has its place.

    Mutable beside what any connection has: the server in use, and the task that asks the Sentinels.
    """

    def __init__(self, server: StoreServer, finder: PrimaryFinder) -> None:
        """:param server: the login; its place is replaced by what the Sentinels say"""
        super().__init__(server)
        self._finder = finder
        self._watching: asyncio.Task[None] | None = None

    async def aclose(self) -> None:
        """Close all connections for good, and ask no Sentinel any more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await super().aclose()
        await self._finder.aclose()

    async def _call(self, data: bytes, *, is_asking: bool = False) -> Any:
        try:
            return await super()._call(data, is_asking=is_asking)
        except CommandRefused as error:
            if "READONLY" not in str(error):
                raise
            self._leave()  # it is a primary no more, and has run nothing
            return await super()._call(data, is_asking=is_asking)

    async def _connect(self) -> StoreSocket:
        async with asyncio.timeout(CONNECT_SECONDS):
            host, port = await self._finder.find()
        self._server = replace(self._server, host=host, port=port)
        connected = await super()._connect()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await _check_role(connected)
        except BaseException:  # cancelled, too: no other code has the socket
            connected.abandon()
            raise
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        return connected

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            with contextlib.suppress(OSError):
                if await self._finder.find() != (self._server.host, self._server.port):
                    self._leave()

    def _leave(self) -> None:
        """Let the next call open another connection."""
        if self._socket is not None:
            self._replace(self._socket)


async def _check_role(connected: StoreSocket) -> None:
    """Check that a server is a primary; raises ``OSError`` if it is none."""
    role = await connected.send(_ROLE)
    if isinstance(role, Exception) or role[0] != b"master":
        raise ConnectionError(f"the server is no primary: {role!r}")


class _Pool:
    """Sends commands to one primary by redis-py. Mutable: how many calls are under way."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def call(self, *command: Argument) -> Any:
        self._calls += 1
        self._idle.clear()
        try:
            return await self._client.call(*command)
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def aclose(self) -> None:
        """Close all connections: at once, and again after the calls under way, which redis-py sends on new ones."""
        await self._client.aclose()
        if self._calls:
            await self._idle.wait()
            await self._client.aclose()


class LibraryPrimary:
    """The same by redis-py, if there is TLS or an option: another pool for another primary.

    Mutable: the pool in use and its place, and the tasks that ask the Sentinels and close old pools.
    """

    def __init__(self, finder: PrimaryFinder, open_client: Callable[[Place], ServerClient]) -> None:
        self._finder = finder
        self._open_client = open_client
        self._client: _Pool | None = None
        self._place: Place | None = None
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self, *command: Argument) -> Any:
        client = self._client or await self._open()
        try:
            return await client.call(*command)
        except OUTAGES:
            self._leave(client)
            raise
        except FAILURES as error:
            if not words_of(error).startswith("READONLY"):
                raise
        self._leave(client)  # it is a primary no more, and has run nothing
        client = await self._open()
        return await client.call(*command)

    call_large = call

    async def aclose(self) -> None:
        if self._client is not None:
            self._leave(self._client)
        watching = [task for task in self._tasks if task.get_name() == "watch"]
        for task in watching:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._finder.aclose()

    async def _open(self) -> _Pool:
        async with self._opening:
            if self._client is not None:
                return self._client
            place = await self._finder.find()
            client = _Pool(self._open_client(place))
            try:
                _check_primary(place, await client.call("ROLE"))
            except BaseException:  # cancelled, too: no other code has the pool
                self._start(client.aclose(), "close")
                raise
            self._client, self._place = client, place
            if not any(task.get_name() == "watch" for task in self._tasks):
                self._start(self._watch(), "watch")
            return client

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            with contextlib.suppress(OSError):
                if await self._finder.find() != self._place and self._client is not None:
                    self._leave(self._client)

    def _leave(self, client: _Pool) -> None:
        if self._client is client:
            self._client = None
            self._start(client.aclose(), "close")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _check_primary(place: Place, role: Sequence[Any]) -> None:
    """Check the answer of ``ROLE``; raises ``OSError`` if the server is no primary."""
    if role[0] not in {b"master", "master"}:
        raise ConnectionError(f"{place} is no primary: {role!r}")


def connect_to_primary(url: str, *, library: bool = False, replication: Replication | None = None) -> StoreClient:
    """Make the client for an address of Sentinels. It opens nothing yet.

    :param library: use redis-py for a plain address too
    :param replication: which writes wait for replicas; None for none
    :raises ConfigError: the URL cannot be used
    """
    try:
        address = read_sentinels(url)
        server = None if library or replication else plain_server(address.primary)
    except ValueError as error:
        raise ConfigError(
            "store.url cannot be used: write redis+sentinel://host:26379,host:26379/SERVICE/0 with the name of the "
            "service that the Sentinels watch.",
            internal=str(error),
        ) from error
    sentinels = [connect(at_place(address.sentinel, place), library=library) for place in address.places]
    finder = PrimaryFinder(sentinels, address.service)
    if server is not None:
        return PrimaryConnection(server, finder)
    connect(address.primary, library=library)  # an option that does not fit shows here

    def open_client(place: Place) -> ServerClient:
        return connect_replicated(at_place(address.primary, place), replication, library=library)

    return LibraryPrimary(finder, open_client)
