"""What carries the store's commands: a line of our own to one server at a plain address, redis-py to all else.

Below the adapter; the one door to redis-py. A cluster, TLS and every option of a URL are the library's matter. Both
carriers answer alike, by RESP3, and fail with ``FAILURES``.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, Protocol

import redis.exceptions
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, SSLConnection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig

from proxy.core.errors import ConfigError
from proxy.store.connection.pipelined import Argument, CommandRefused, PipelinedConnection, StoreServer, UnknownScript
from proxy.store.connection.url import read_address

_CONNECTIONS = 64
"""At most so many to one server; further calls wait for a free one, within their time."""
_LINE_OPTIONS = {one.name for one in fields(StoreServer)}

OUTAGES = (
    OSError,  # TimeoutError is one, and what a line is lost by
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.RedisClusterException,
)
"""The server is not there: the next calls would fail as well."""
FAILURES = (*OUTAGES, redis.exceptions.RedisError, CommandRefused)
UNKNOWN_SCRIPT = (UnknownScript, redis.exceptions.NoScriptError)
_NO_WRITES = (redis.exceptions.ReadOnlyError, redis.exceptions.OutOfMemoryError)
"""The library takes the first word off these."""
_NO_WRITES_SAID = re.compile(r"(?:^|-)(?:MISCONF|NOPERM|NOREPLICAS|OOM|READONLY)\b|ACL failure in script")
"""How a server says that it takes no writes, or not all; Redis 6 quotes it within a script's own error."""
_BROKEN_SAID = re.compile(r"(?:^|-)WRONGTYPE\b|user_script")
"""How a server says that a key is of another type, or that a script failed over what it read."""


def refuses_writes(error: BaseException) -> bool:
    """Whether a server's error says that it takes no writes now, of anybody (disk, memory, replica, rights)."""
    return isinstance(error, _NO_WRITES) or _NO_WRITES_SAID.search(str(error)) is not None


def breaks_at_a_record(error: BaseException) -> bool:
    """Whether a server's error is about what is stored under one key, and says nothing of others."""
    return _BROKEN_SAID.search(str(error)) is not None


class StoreClient(Protocol):
    """Carries commands to the server and brings their answers back."""

    async def call(self, *command: Argument) -> Any:
        """Send one command; raises one of ``FAILURES``."""
        ...

    async def call_large(self, *command: Argument) -> Any:
        """The same of a command of megabytes, which is packed beside the event loop where that can be."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class _Library:
    """The same by redis-py, which pools connections."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        self.call = self.call_large = client.execute_command
        self.aclose = client.aclose


def connect(url: str, *, library: bool = False) -> StoreClient:
    """Make the client for a store's address. It opens nothing yet.

    :param library: use redis-py for a plain address too
    :raises ConfigError: the URL cannot be used
    """
    plain, cluster = read_address(url)
    # One retry at once: a restart may have closed a pooled connection. Every operation bears that
    # (``PipelinedConnection.call``).
    retry = Retry(NoBackoff(), 1, supported_errors=(redis.exceptions.ConnectionError,))
    options: dict[str, Any] = {
        "protocol": 3,
        "retry": retry,
        "socket_timeout": None,
        "socket_connect_timeout": None,
    }
    options["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
    try:
        if cluster:
            return _Library(RedisCluster.from_url(plain, **options))
        server = None if library else _plain_server(plain)
        if server is not None:
            return PipelinedConnection(server)
        pool = BlockingConnectionPool.from_url(plain, max_connections=_CONNECTIONS, timeout=None, **options)
        pool.connection_class(**pool.connection_kwargs)  # an unknown option in the URL shows here, not at a request
        return _Library(Redis.from_pool(pool))
    except (ValueError, TypeError, *FAILURES) as error:
        raise ConfigError(
            "store.url cannot be used: write redis://, rediss://, redis+cluster:// or unix://.",
            internal=f"{type(error).__name__}: {error}",
        ) from error


def _plain_server(url: str) -> StoreServer | None:
    """The server, where a URL says no more than a line needs to know.

    :raises ValueError: it is no URL of a Redis
    """
    said: dict[str, Any] = dict(parse_url(url))
    if said.pop("connection_class", None) is SSLConnection or said.keys() - _LINE_OPTIONS:
        return None
    return StoreServer(**said)
