"""What carries the store's commands: a line of our own to one server at a plain address, redis-py to all else.

Below the adapter; the one door to redis-py. A cluster, TLS and every option of a URL are the library's matter. Both
carriers answer alike, by RESP3, and fail with ``FAILURES``.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol

import redis.exceptions
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, SSLConnection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig

from proxy.core.errors import ConfigError
from proxy.store.connection.pipelined import Argument, Line, Refused, Server, UnknownScript
from proxy.store.connection.url import read_address

_CONNECTIONS = 64
"""At most so many to one server; further calls wait for a free one, within their time."""
_LINE_OPTIONS = {one.name for one in fields(Server)}

OUTAGES = (
    OSError,  # TimeoutError is one, and what a line is lost by
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.RedisClusterException,
)
"""The server is not there: the next calls would fail as well."""
FAILURES = (*OUTAGES, redis.exceptions.RedisError, Refused)
UNKNOWN_SCRIPT = (UnknownScript, redis.exceptions.NoScriptError)


class Carrier(Protocol):
    """Carries commands to the server and brings their answers back."""

    async def call(self, *command: Argument) -> Any:
        """Send one command; raises one of ``FAILURES``."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class _Library:
    """The same by redis-py, which pools connections."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        self.call = client.execute_command
        self.aclose = client.aclose


def connect(url: str) -> Carrier:
    """What carries commands to a store's address. Nothing is opened yet.

    :raises ConfigError: the URL cannot be used
    """
    plain, cluster = read_address(url)
    # One retry at once: a restart may have closed a pooled connection. Every operation bears that (``Line.call``).
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
        server = _plain_server(plain)
        if server is not None:
            return Line(server)
        pool = BlockingConnectionPool.from_url(plain, max_connections=_CONNECTIONS, timeout=None, **options)
        pool.connection_class(**pool.connection_kwargs)  # an unknown option in the URL shows here, not at a request
        return _Library(Redis.from_pool(pool))
    except (ValueError, TypeError, *FAILURES) as error:
        raise ConfigError(
            "store.url cannot be used: write redis://, rediss://, redis+cluster:// or unix://.",
            internal=f"{type(error).__name__}: {error}",
        ) from error


def _plain_server(url: str) -> Server | None:
    """The server, where a URL says no more than a line needs to know.

    :raises ValueError: it is no URL of a Redis
    """
    said: dict[str, Any] = dict(parse_url(url))
    if said.pop("connection_class", None) is SSLConnection or said.keys() - _LINE_OPTIONS:
        return None
    return Server(**said)
