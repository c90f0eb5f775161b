"""Chooses the client that carries commands to one server: Tidemark's own at a plain address, else redis-py.

``tidemark/store/commands.py`` calls it for a single server, ``cluster.py`` for each server of a cluster. No other
module imports redis-py. TLS and every option of a URL need redis-py, and ``transport.store: library`` uses it for all.
Both clients speak RESP3 and fail with ``FAILURES``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Protocol

import redis
import redis.exceptions
from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.maint_notifications import MaintNotificationsConfig

from tidemark import __version__
from tidemark.core.errors import ConfigError
from tidemark.store.connection.faults import CLOSED_AT_ONCE, NO_TLS, fault_of, words_within
from tidemark.store.connection.pipelined import (
    Argument,
    CommandRefused,
    PipelinedConnection,
    StoreServer,
    UnknownScript,
    client_name,
)

_CONNECTIONS = 64
"""The most that redis-py opens to one server; further calls wait for a free one, within their time."""
_PLAIN_OPTIONS = {field.name for field in fields(StoreServer)}

OUTAGES = (
    OSError,  # TimeoutError is one, and so are the errors of a lost connection
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.RedisClusterException,
)
"""Errors of a server that is away: the next calls would fail as well."""
FAILURES = (*OUTAGES, redis.exceptions.RedisError, CommandRefused)
UNKNOWN_SCRIPT = (UnknownScript, redis.exceptions.NoScriptError)
_NO_WRITES = (redis.exceptions.ReadOnlyError, redis.exceptions.OutOfMemoryError)
"""redis-py removes the first word of these."""
_NO_WRITES_WORDS = re.compile(
    r"(?:^|-)(?:MISCONF|NOPERM|NOREPLICAS|OOM|READONLY)\b|ACL failure in script|can't run this command"
)
"""A server's words for taking no writes, or not all.

Redis 6 quotes them within a script's own error. Before 7.2 a script that lacks a right has words of its own."""
_BROKEN_WORDS = re.compile(r"(?:^|-)WRONGTYPE\b|user_script")
"""A server's words for a key of another type, or for a script that failed over what it read."""

_REMOVED_WORDS: dict[type[BaseException], str] = {
    redis.exceptions.MovedError: "MOVED",
    redis.exceptions.AskError: "ASK",
    redis.exceptions.TryAgainError: "TRYAGAIN",
    redis.exceptions.ReadOnlyError: "READONLY",
}
"""redis-py removes the first word of these, too."""


def blocking_client(url: str, seconds: float) -> Any:
    """Return a client whose calls block, for keys, which are needed in the middle of a step.

    :raises ConfigError: the URL cannot be used
    """
    try:
        return redis.Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds)
    except ValueError as error:
        raise ConfigError(f"The address of the keys cannot be used: {error}.") from error


def words_of(error: BaseException) -> str:
    """Return an error as the server said it."""
    word = _REMOVED_WORDS.get(type(error))
    return f"{word} {error.args[0] if error.args else ''}" if word else str(error)


def refuses_writes(error: BaseException) -> bool:
    """Whether an error means that the server takes no writes now (disk, memory, replica, rights)."""
    return isinstance(error, _NO_WRITES) or _NO_WRITES_WORDS.search(str(error)) is not None


def breaks_at_a_record(error: BaseException) -> bool:
    """Whether an error is about what is stored under one key, and means nothing for others."""
    return _BROKEN_WORDS.search(str(error)) is not None


class StoreClient(Protocol):
    """Sends commands to one server, or to a cluster, and returns their answers."""

    async def call(self, *command: Argument) -> Any:
        """Send one command and return its answer; raises one of ``FAILURES``."""
        ...

    async def call_large(self, *command: Argument) -> Any:
        """Send a command of megabytes, which Tidemark's own client packs in a thread."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class ServerClient(StoreClient, Protocol):
    """Sends commands to one server, which may be one of a cluster."""

    async def call_asking(self, *command: Argument) -> Any:
        """Send ``ASKING`` and a command over one connection: it is about a slot that moves to this server."""
        ...


class ClosedAtOnce(redis.exceptions.ConnectionError):
    """A server with TLS closed a connection, which named no certificate of the client, before its first answer."""


class TlsConnection(SSLConnection):
    """Redis-py's connection with TLS. It says that a server may want a certificate of the client, or speak no TLS.

    With TLS 1.3 such a server refuses the client after the handshake. Its alert is often lost with the connection, and
    only a reset is left.
    """

    async def connect_check_health(self, *arguments: bool, **options: bool) -> None:
        """Connect, and say what was waited for if whoever bounds the call in time ends it."""
        try:
            await super().connect_check_health(*arguments, **options)
        except asyncio.CancelledError as error:
            raise asyncio.CancelledError(NO_TLS) from error

    async def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT001, FBT002  # as in redis-py
        """Log in, and send what else stands before the first command.

        :raises ClosedAtOnce: the server closed the connection meanwhile
        """
        try:
            await super().on_connect_check_health(check_health)
        except redis.exceptions.AuthenticationError:
            raise  # the server did answer
        except redis.exceptions.ConnectionError as error:
            if self.certfile is not None or fault_of(words_within(error)) is not None:
                raise
            raise ClosedAtOnce(f"{CLOSED_AT_ONCE}: {error}") from error


class PooledClient:
    """Sends commands by redis-py, which pools connections."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client
        self.call = self.call_large = client.execute_command
        self.aclose = client.aclose

    async def call_asking(self, *command: Argument) -> Any:
        _, answer = await self.call_all(("ASKING",), command)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def call_all(self, *commands: Sequence[Argument]) -> list[Any]:
        """Send commands over one connection, one directly behind the other; a server's errors come as values."""
        async with self._client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers


async def _log_in(connection: AbstractConnection) -> None:
    """Send what stands before the first command, and the client's name, which redis-py would not go on without."""
    await connection.on_connect_check_health()
    await connection.send_command("CLIENT", "SETNAME", client_name(), check_health=False)
    with contextlib.suppress(redis.exceptions.ResponseError):  # Redis 6 has no right for it alone
        await connection.read_response()


def _options() -> dict[str, Any]:
    # One retry at once: a restart may have closed a pooled connection. Every command may be sent twice
    # (``PipelinedConnection.call``).
    retry = Retry(NoBackoff(), 1, supported_errors=(redis.exceptions.ConnectionError,))
    options: dict[str, Any] = {
        "protocol": 3,
        "retry": retry,
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "driver_info": DriverInfo().add_upstream_driver("tidemark", __version__),
        "redis_connect_func": _log_in,
    }
    options["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
    return options


def connect(url: str, *, library: bool = False) -> ServerClient:
    """Make the client for one server's address. It opens nothing yet.

    :param library: use redis-py for a plain address too
    :raises ConfigError: the URL cannot be used
    """
    try:
        server = None if library else plain_server(url)
        if server is not None:
            return PipelinedConnection(server)
        return connect_pool(url)
    except (ValueError, TypeError, *FAILURES) as error:
        raise ConfigError(
            "store.url cannot be used: write redis://, rediss://, redis+cluster://, redis+sentinel:// or unix://.",
            internal=f"{type(error).__name__}: {error}",
        ) from error


def connect_pool(url: str) -> PooledClient:
    """Make redis-py's client for one server's address, whatever the address is.

    :raises ValueError: the URL cannot be used, and so do ``TypeError`` and ``FAILURES``
    """
    pool = BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, timeout=None, **_options())
    if pool.connection_class is SSLConnection:
        pool.connection_class = TlsConnection
    pool.connection_class(**pool.connection_kwargs)  # an unknown option in the URL shows here, not at a request
    return PooledClient(Redis.from_pool(pool))


def plain_server(url: str) -> StoreServer | None:
    """Return the server of a URL that has no options; None if redis-py is needed.

    :raises ValueError: it is no URL of a Redis
    """
    options: dict[str, Any] = dict(parse_url(url))
    if options.pop("connection_class", None) is SSLConnection or options.keys() - _PLAIN_OPTIONS:
        return None
    return StoreServer(**options)
