"""Quotas in a real server, and in a cluster: no more than allowed passes, whoever asks, and the dead hold no places."""

from __future__ import annotations

import asyncio

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.conftest import keys_of
from tidemark.core.grants import Quota
from tidemark.core.ports import Bound
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.quotas import LEASE_SECONDS, RedisQuotas

TENANT, KEY = Bound("", Quota(requests_per_minute=5)), Bound("key", Quota(requests_per_minute=3))


@pytest.fixture
def quotas(store: RedisStore) -> RedisQuotas:
    """The quotas on one server, and on a cluster."""
    return RedisQuotas(store.ask)


async def test_a_refused_request_counts_against_no_bound(quotas: RedisQuotas, tenant: str) -> None:
    """A key that is used up does not use up its tenant."""
    answers = [await quotas.take(tenant, [TENANT, KEY], str(number)) for number in range(6)]
    assert [answer.used_up for answer in answers] == [""] * 3 + ["requests"] * 3
    assert answers[3].bound == 1
    assert 0 < answers[3].retry_after <= 60
    assert [use.requests for use in answers[3].uses] == [3, 3]
    assert [(await quotas.take(tenant, [TENANT], f"other {number}")).used_up for number in range(3)] == [
        "",
        "",
        "requests",
    ]


async def test_of_many_at_once_only_the_allowed_pass(quotas: RedisQuotas, tenant: str) -> None:
    """As if they came one after the other."""
    answers = await asyncio.gather(*(quotas.take(tenant, [TENANT], str(number)) for number in range(40)))
    assert sum(not answer.used_up for answer in answers) == 5


async def test_a_place_is_given_back_once(quotas: RedisQuotas, tenant: str) -> None:
    """By the request that has it; a second time changes nothing."""
    bounds = [Bound("", Quota(concurrent=2))]
    assert [(await quotas.take(tenant, bounds, lease)).used_up for lease in "abc"] == ["", "", "concurrent"]
    for _ in range(2):
        await quotas.give_back(tenant, bounds, "a", 0)
    assert [(await quotas.take(tenant, bounds, lease)).used_up for lease in "cd"] == ["", "concurrent"]


async def test_the_places_of_a_worker_that_died_are_free_after_its_leases(alone: RedisStore, tenant: str) -> None:
    """Those that another worker renews stay; one that is over is not renewed into being."""
    quotas, bounds = RedisQuotas(alone.ask), [Bound("", Quota(concurrent=2))]
    for lease in ("dead", "alive"):
        await quotas.take(tenant, bounds, lease)
    await alone.ask("ZADD", f"{keys.quotas(tenant)}:c", 1, "dead", 1, "alive")  # a minute has passed
    await quotas.renew(tenant, bounds, ["alive", "over"])
    assert (await quotas.take(tenant, bounds, "new")).used_up == ""
    assert (await quotas.take(tenant, bounds, "newer")).used_up == "concurrent"


async def test_the_minute_slides(alone: RedisStore, tenant: str) -> None:
    """A request is forgotten sixty seconds after its own second, and not at the turn of the minute."""
    quotas = RedisQuotas(alone.ask)
    second = int((await alone.ask("TIME"))[0])
    counts = f"{keys.quotas(tenant)}:r"
    await alone.ask("HSET", counts, second - 61, 4, second - 30, 2)
    first = await quotas.take(tenant, [TENANT], "a")
    assert (first.used_up, first.uses[0].requests) == ("", 3)
    await alone.ask("HSET", counts, second - 30, 5)
    refused = await quotas.take(tenant, [TENANT], "b")
    assert refused.used_up == "requests"
    assert 25 < refused.retry_after <= 30
    await alone.ask("HSET", counts, second + 5000, 99, second - 30, 0)  # the server's clock was ahead for a moment
    assert (await quotas.take(tenant, [TENANT], "c")).used_up == ""


async def test_tokens_are_those_of_the_day_that_a_request_ends_on(alone: RedisStore, tenant: str) -> None:
    """Yesterday's are forgotten, and a bound without tokens counts none."""
    quotas, bounds = RedisQuotas(alone.ask), [Bound("", Quota(tokens_per_day=100)), Bound("key", Quota(concurrent=9))]
    await quotas.give_back(tenant, bounds, "a", 70)
    assert (await quotas.take(tenant, bounds, "b")).uses[0].tokens == 70
    await quotas.give_back(tenant, bounds, "b", 70)
    refused = await quotas.take(tenant, bounds, "c")
    assert (refused.used_up, refused.uses[0].tokens) == ("tokens", 140)
    assert 0 < refused.retry_after <= 86_400
    await alone.ask("HSET", f"{keys.quotas(tenant)}:t", "day", 1)
    assert (await quotas.take(tenant, bounds, "d")).used_up == ""
    assert await alone.ask("EXISTS", f"{keys.quotas(tenant)}:t:key") == 0


async def test_everything_ends_by_itself(url: str, quotas: RedisQuotas, tenant: str) -> None:
    """Nothing of a tenant that never comes again stays in the store."""
    bounds = [Bound("", Quota(9, 9, 9)), Bound("key", Quota(9, 9, 9))]
    await quotas.take(tenant, bounds, "a")
    await quotas.give_back(tenant, bounds, "a", 5)
    await quotas.take(tenant, bounds, "b")
    names = keys_of(url, f"tm:{{limits:{tenant}}}:*")
    assert len(names) == 6
    plain = url.replace("redis+cluster", "redis")
    with redis.Redis.from_url(plain) as admin:
        assert all(0 < int(admin.ttl(name)) <= 172_800 for name in names)
    assert LEASE_SECONDS == 60


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bounds=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3),
    ends=st.lists(st.booleans(), max_size=12),
)
def test_no_bound_is_ever_exceeded(url: str, tenant: str, bounds: list[tuple[int, int]], ends: list[bool]) -> None:
    """Whatever comes and ends in between."""

    async def walk() -> None:
        store = RedisStore(url, Codec(), ttl_seconds=60, recall_timeout_seconds=5, record_timeout_seconds=5)
        quotas, owner = RedisQuotas(store.ask), f"{tenant}{bounds}{ends}".encode().hex()[:200]
        everything = [Bound(str(at) if at else "", Quota(rate, None, most)) for at, (rate, most) in enumerate(bounds)]
        await store.ask("DEL", *(f"{keys.quotas(owner)}:{kind}{tail}" for kind in "rc" for tail in _tails(everything)))
        running: list[str] = []
        passed = 0
        for number, is_end in enumerate(ends):
            if is_end and running:
                await quotas.give_back(owner, everything, running.pop(0), 0)
                continue
            answer = await quotas.take(owner, everything, str(number))
            may = passed < min(rate for rate, _ in bounds) and len(running) < min(most for _, most in bounds)
            assert (answer.used_up == "") == may
            if may:
                passed += 1
                running.append(str(number))
        await store.close()

    asyncio.run(walk())


def _tails(bounds: list[Bound]) -> list[str]:
    return [f":{bound.name}" if bound.name else "" for bound in bounds]
