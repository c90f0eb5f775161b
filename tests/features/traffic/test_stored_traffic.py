"""The figures of requests in the store: added over workers, once for each batch, and gone after their time."""

from __future__ import annotations

import time
import uuid

import pytest
import redis

from tests.store.conftest import admin, alone, anyio_backend, client, cluster_url, server, store, tenant, url
from tidemark.core.traffic import (
    COUNTS,
    HOURS,
    LEVELS,
    MAX_NAMES,
    MINUTES,
    OTHER,
    QUARTERS,
    TrafficCell,
    TrafficFigures,
)
from tidemark.features.traffic.store import Part, RedisTraffic
from tidemark.store import keys
from tidemark.store.conversations import RedisStore

__all__ = ["admin", "alone", "anyio_backend", "client", "cluster_url", "server", "store", "tenant", "url"]

pytestmark = pytest.mark.anyio
MINUTE = 20_000_000
"""Tests use minutes of their own, far from now: the figures are everybody's."""


def figures(requests: int, place: int = 3) -> TrafficFigures:
    """Some figures; all overheads lie at one place."""
    made = TrafficFigures(requests=requests, tokens_before=10 * requests, tokens_after=4 * requests, failed=1)
    made.overheads[place] = made.first_bytes[place] = requests
    return made


def fresh() -> int:
    """The first minute of a day that no other test writes to."""
    return MINUTE + uuid.uuid4().int % 10**6 * 1440


async def test_workers_add_up_at_every_level(store: RedisStore) -> None:
    """Two minutes of two workers: each minute by itself, and both in their quarter and their hour."""
    traffic, minute = RedisTraffic(store.ask), fresh()
    await traffic.add(
        uuid.uuid4().hex, 1, {TrafficCell(minute): figures(2), TrafficCell(minute + 1): figures(5, place=7)}
    )
    await traffic.add(uuid.uuid4().hex, 1, {TrafficCell(minute): figures(3)})
    by_minute = (await traffic.read(MINUTES, minute - 5, minute + 5)).periods
    assert {period: one.requests for period, one in by_minute.items()} == {minute: 5, minute + 1: 5}
    for level in (QUARTERS, HOURS):
        period = minute * 60 // level.seconds
        (read,) = (await traffic.read(level, period, period)).periods.values()
        assert (read.requests, read.tokens_before, read.tokens_after, read.failed) == (10, 100, 40, 3)
        for times in (read.overheads, read.first_bytes):
            assert (times[3], times[7], sum(times)) == (5, 5, 10)


async def test_a_batch_that_is_sent_again_counts_once(store: RedisStore) -> None:
    """Its answer was lost; the next one counts."""
    traffic, minute, writer = RedisTraffic(store.ask), fresh(), uuid.uuid4().hex
    for number in (1, 1, 2, 1):
        await traffic.add(writer, number, {TrafficCell(minute): figures(1)})
    assert (await traffic.read(MINUTES, minute, minute)).periods[minute].requests == 2


async def test_every_key_expires(alone: RedisStore, admin: redis.Redis) -> None:
    """Minutes after hours, hours after days; nothing stays for ever."""
    minute, writer = fresh(), uuid.uuid4().hex
    await RedisTraffic(alone.ask).add(writer, 1, {TrafficCell(minute, "model", "tenant"): figures(1)})
    for level in LEVELS:
        key = f"{keys.TRAFFIC}:{level.name}:{minute * 60 // level.seconds}"
        for row in ("", ":m:model", ":t:tenant"):
            assert 0 < int(admin.ttl(key + row)) <= level.keep_seconds
    for kind in "mt":
        assert 0 < int(admin.ttl(f"{keys.TRAFFIC}:n:{kind}")) <= HOURS.keep_seconds
    assert int(admin.ttl(f"{keys.TRAFFIC}:b:{writer}")) > 0


async def test_a_field_of_a_newer_version_is_left_out(alone: RedisStore, admin: redis.Redis) -> None:
    """So two versions may share a store."""
    minute = fresh()
    await RedisTraffic(alone.ask).add(uuid.uuid4().hex, 1, {TrafficCell(minute): figures(1)})
    admin.hset(f"{keys.TRAFFIC}:m:{minute}", mapping={"newer": 5, "o999": 5, "ox": 5, "f999": 5, "x1": 5})
    assert (await RedisTraffic(alone.ask).read(MINUTES, minute, minute)).periods[minute] == figures(1)


async def test_a_week_is_one_answer(alone: RedisStore) -> None:
    """168 full hours are read in one round trip; the figure is in ADR 0021."""
    traffic, minute = RedisTraffic(alone.ask), fresh()
    some = figures(1)
    full = TrafficFigures(overheads=[10**6] * len(some.overheads), first_bytes=[10**6] * len(some.first_bytes))
    for name in COUNTS:
        setattr(full, name, 10**9)
    for hour in range(168):
        await traffic.add(uuid.uuid4().hex, 1, {TrafficCell(minute + 60 * hour): full})
    started = time.perf_counter()
    week = (await traffic.read(HOURS, minute // 60, minute // 60 + 167)).periods
    print(f"a week: {(time.perf_counter() - started) * 1000:.1f} ms")
    assert len(week) == 168
    assert all(one == full for one in week.values())


async def test_figures_of_a_model_and_of_a_tenant_are_beside_those_of_all(store: RedisStore) -> None:
    """At every level; a name holds anything, and a model's cannot pass for a tenant's."""
    traffic, minute, tenant = RedisTraffic(store.ask), fresh(), uuid.uuid4().hex
    model = f"a model: {{with}}\n\N{SNOWMAN}:t:{tenant}"
    cells = {TrafficCell(minute, model, tenant): figures(2), TrafficCell(minute + 1, "", tenant): figures(3)}
    await traffic.add(uuid.uuid4().hex, 1, {**cells, TrafficCell(minute): figures(5)})
    for level in LEVELS:
        first, last = minute * 60 // level.seconds, (minute + 1) * 60 // level.seconds
        sums = []
        for part in (None, Part("m", model), Part("t", tenant), Part("t", model), Part("m", "unknown")):
            answer = await traffic.read(level, first, last, part)
            sums.append(sum(one.requests for one in answer.periods.values()))
            assert (model in answer.models, tenant in answer.tenants) == (True, True)
        assert sums == [10, 2, 5, 0, 0]
    assert tenant in await traffic.tenants()
    assert tenant not in (await traffic.read(MINUTES, minute + 2, minute + 2)).tenants


async def test_only_so_many_names_have_figures_of_their_own(alone: RedisStore, admin: redis.Redis) -> None:
    """The first ones; all others are one name, until one of the first was silent for as long as anything is stored."""
    traffic, minute = RedisTraffic(alone.ask), fresh()
    admin.delete(f"{keys.TRAFFIC}:n:m", f"{keys.TRAFFIC}:n:t")
    cells = {TrafficCell(minute, f"m{number}", f"t{number}"): figures(1) for number in range(MAX_NAMES + 3)}
    await traffic.add(uuid.uuid4().hex, 1, cells)
    for kind in ("m", "t"):
        answer = await traffic.read(MINUTES, minute, minute, Part(kind, OTHER))
        assert answer.periods[minute].requests == 3
        for names, letter in ((answer.models, "m"), (answer.tenants, "t")):
            assert names == sorted([*(f"{letter}{number}" for number in range(MAX_NAMES)), OTHER])
    assert (await traffic.read(MINUTES, minute, minute)).periods[minute].requests == MAX_NAMES + 3
    later = minute + HOURS.keep_seconds // 60 + 1
    await traffic.add(uuid.uuid4().hex, 1, {TrafficCell(later, "m0", "late"): figures(1)})
    answer = await traffic.read(MINUTES, later, later)
    assert (answer.models, answer.tenants) == (["m0"], ["late"])


async def test_figures_of_before_models_and_tenants_are_read_on(alone: RedisStore, admin: redis.Redis) -> None:
    """They have no first byte and no names."""
    minute = fresh()
    admin.hset(f"{keys.TRAFFIC}:m:{minute}", mapping={"requests": 7, "tokens_before": 9, "o3": 7})
    answer = await RedisTraffic(alone.ask).read(MINUTES, minute, minute)
    assert (answer.periods[minute].requests, answer.periods[minute].overheads[3]) == (7, 7)
    assert answer.periods[minute].first_byte_quantile(0.5) is None


async def test_an_erased_tenant_gets_no_figures_from_what_was_on_its_way(alone: RedisStore, admin: redis.Redis) -> None:
    """For ten minutes they are among those of all others."""
    traffic, minute, tenant = RedisTraffic(alone.ask), fresh(), uuid.uuid4().hex
    admin.set(keys.erased(keys.TRAFFIC, tenant), "1.0", ex=600)
    await traffic.add(uuid.uuid4().hex, 1, {TrafficCell(minute, "m", tenant): figures(4)})
    assert not admin.exists(f"{keys.TRAFFIC}:m:{minute}:t:{tenant}")
    assert (await traffic.read(MINUTES, minute, minute, Part("t", OTHER))).periods[minute].requests == 4
    assert tenant not in await traffic.tenants()
