"""The figures of requests in the store: added over workers, once for each batch, and gone after their time."""

from __future__ import annotations

import time
import uuid

import pytest
import redis

from tests.store.conftest import admin, alone, anyio_backend, client, cluster_url, server, store, tenant, url
from tidemark.core.traffic import COUNTS, HOURS, LEVELS, MINUTES, QUARTERS, TrafficFigures
from tidemark.features.traffic.store import RedisTraffic
from tidemark.store import keys
from tidemark.store.conversations import RedisStore

__all__ = ["admin", "alone", "anyio_backend", "client", "cluster_url", "server", "store", "tenant", "url"]

pytestmark = pytest.mark.anyio
MINUTE = 20_000_000
"""Tests use minutes of their own, far from now: the figures are everybody's."""


def figures(requests: int, place: int = 3) -> TrafficFigures:
    """Some figures; all overheads lie at one place."""
    made = TrafficFigures(requests=requests, tokens_before=10 * requests, tokens_after=4 * requests, failed=1)
    made.overheads[place] = requests
    return made


def fresh() -> int:
    """The first minute of a day that no other test writes to."""
    return MINUTE + uuid.uuid4().int % 10**6 * 1440


async def test_workers_add_up_at_every_level(store: RedisStore) -> None:
    """Two minutes of two workers: each minute by itself, and both in their quarter and their hour."""
    traffic, minute = RedisTraffic(store.ask), fresh()
    await traffic.add(uuid.uuid4().hex, 1, {minute: figures(2), minute + 1: figures(5, place=7)})
    await traffic.add(uuid.uuid4().hex, 1, {minute: figures(3)})
    by_minute = await traffic.read(MINUTES, minute - 5, minute + 5)
    assert {period: one.requests for period, one in by_minute.items()} == {minute: 5, minute + 1: 5}
    for level in (QUARTERS, HOURS):
        period = minute * 60 // level.seconds
        (read,) = (await traffic.read(level, period, period)).values()
        assert (read.requests, read.tokens_before, read.tokens_after, read.failed) == (10, 100, 40, 3)
        assert (read.overheads[3], read.overheads[7], sum(read.overheads)) == (5, 5, 10)


async def test_a_batch_that_is_sent_again_counts_once(store: RedisStore) -> None:
    """Its answer was lost; the next one counts."""
    traffic, minute, writer = RedisTraffic(store.ask), fresh(), uuid.uuid4().hex
    for number in (1, 1, 2, 1):
        await traffic.add(writer, number, {minute: figures(1)})
    assert (await traffic.read(MINUTES, minute, minute))[minute].requests == 2


async def test_every_key_expires(alone: RedisStore, admin: redis.Redis) -> None:
    """Minutes after hours, hours after days; nothing stays for ever."""
    minute, writer = fresh(), uuid.uuid4().hex
    await RedisTraffic(alone.ask).add(writer, 1, {minute: figures(1)})
    for level in LEVELS:
        key = f"{keys.TRAFFIC}:{level.name}:{minute * 60 // level.seconds}"
        assert 0 < int(admin.ttl(key)) <= level.keep_seconds
    assert int(admin.ttl(f"{keys.TRAFFIC}:b:{writer}")) > 0


async def test_a_field_of_a_newer_version_is_left_out(alone: RedisStore, admin: redis.Redis) -> None:
    """So two versions may share a store."""
    minute = fresh()
    await RedisTraffic(alone.ask).add(uuid.uuid4().hex, 1, {minute: figures(1)})
    admin.hset(f"{keys.TRAFFIC}:m:{minute}", mapping={"newer": 5, "o999": 5, "ox": 5})
    assert (await RedisTraffic(alone.ask).read(MINUTES, minute, minute))[minute] == figures(1)


async def test_a_week_is_one_answer(alone: RedisStore) -> None:
    """168 full hours are read in one round trip; the figure is in ADR 0021."""
    traffic, minute = RedisTraffic(alone.ask), fresh()
    full = TrafficFigures(overheads=[10**6] * len(figures(1).overheads))
    for name in COUNTS:
        setattr(full, name, 10**9)
    for hour in range(168):
        await traffic.add(uuid.uuid4().hex, 1, {minute + 60 * hour: full})
    started = time.perf_counter()
    week = await traffic.read(HOURS, minute // 60, minute // 60 + 167)
    print(f"a week: {(time.perf_counter() - started) * 1000:.1f} ms")
    assert len(week) == 168
    assert all(one == full for one in week.values())
