"""The log in the store: bounded by requests and by time, each batch once, and read by parts."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
import redis

from tests.features.upkeep.stored import open_store
from tests.support.fresh_stores import fresh_store
from tidemark.core.errors import StoreUnavailable
from tidemark.core.events import Outcome, RequestServed, RequestShed
from tidemark.core.report import Usage
from tidemark.features.request_log.facts import facts_of
from tidemark.features.request_log.reader import MAX_SEARCHED, SPAN_MS, RequestConditions, RequestLogReader
from tidemark.features.request_log.store import MAX_ENTRY, RedisRequestLog
from tidemark.features.request_log.writer import RequestLogWriter
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.request_facts import RequestFacts, pack_requests

pytestmark = pytest.mark.anyio
OWNER = "ab" * 16


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A store of the test's own."""
    with fresh_store() as running:
        yield running


@pytest.fixture
async def store(server: EmbeddedValkey) -> AsyncIterator[RedisStore]:
    """The store as a worker has it."""
    opened = open_store(server.url)
    yield opened
    await opened.close()


def facts(at: float, model: str = "small") -> RequestFacts:
    """A request that ended at a time."""
    return facts_of(RequestServed("/v1/chat/completions", 200, "complete", 0.1, model=model), at)


async def settled() -> None:
    """Write nothing: the test has written."""


async def models(log: RedisRequestLog, limit: int = 1000) -> list[str]:
    """The models of the newest requests."""
    page = await RequestLogReader(log, settled).page(limit, None)
    return [request.facts.model for request in page.requests]


async def test_the_oldest_requests_leave(store: RedisStore, server: EmbeddedValkey) -> None:
    """By whole entries, so that at least as many as asked for stay; the count is that of the entries."""
    log, writer, now = RedisRequestLog(store.ask, Codec(), 10, 0), uuid.uuid4().hex, time.time()
    for number in range(1, 9):
        await log.add(writer, number, {OWNER: [facts(now + number, f"{number}-{place}") for place in range(3)]}, now)
    assert await models(log) == [f"{number}-{place}" for number in (8, 7, 6, 5) for place in (2, 1, 0)]
    with redis.Redis.from_url(server.url) as admin:
        assert admin.get("tm:{requests}:n") == b"12"
        assert admin.ttl("tm:{requests}:s") == -1


async def test_requests_leave_after_their_time(store: RedisStore, server: EmbeddedValkey) -> None:
    """Those that were written before it, with the next write; without one, all of them."""
    log, writer, now = RedisRequestLog(store.ask, Codec(), 10, 3600), uuid.uuid4().hex, time.time()
    await log.add(writer, 1, {OWNER: [facts(now, "old")]}, now)
    await log.add(writer, 2, {OWNER: [facts(now, "new")]}, now + 3500)
    assert await models(log) == ["new", "old"]
    await log.add(writer, 3, {OWNER: [facts(now, "newest")]}, now + 3700)
    assert await models(log) == []  # a store whose clock is as far behind has no newer ones
    with redis.Redis.from_url(server.url) as admin:
        assert 0 < admin.ttl("tm:{requests}:n") <= 3600


async def test_a_batch_that_is_sent_again_counts_once(store: RedisStore) -> None:
    """Its answer was lost; the next one counts."""
    log, writer, now = RedisRequestLog(store.ask, Codec(), 100, 0), uuid.uuid4().hex, time.time()
    for number in (1, 1, 2, 1):
        await log.add(writer, number, {OWNER: [facts(now, str(number))]}, now)
    assert sorted(await models(log)) == ["1", "2"]


async def test_a_large_batch_is_of_several_entries(store: RedisStore) -> None:
    """So that the oldest leave in small pieces, and an id has four digits at most."""
    log, now = RedisRequestLog(store.ask, Codec(), 10_000, 0), time.time()
    await log.add("writer", 1, {OWNER: [facts(now + place, str(place)) for place in range(1000)]}, now)
    assert await models(log, 2000) == [str(place) for place in reversed(range(1000))]
    assert [entry.count for entry in await log.read("+", 10)] == [1000 % MAX_ENTRY, MAX_ENTRY, MAX_ENTRY, MAX_ENTRY]


async def test_a_page_looks_at_some_requests_only(store: RedisStore) -> None:
    """It says that older ones were left, and the next page goes on with them."""
    codec = Codec()
    for number in range(1 + MAX_SEARCHED // 1000):
        packed = pack_requests(codec, OWNER, [facts(number, "rare" if number == 0 else "usual")] * 1000)
        fields = ("o", OWNER, "c", 1000, "f", packed)
        await store.ask("XADD", f"{keys.REQUESTS}:s", f"{(number + 1) * SPAN_MS}-0", *fields)
    reader = RequestLogReader(RedisRequestLog(store.ask, codec, 10_000, 0), settled)
    page = await reader.page(10, None, RequestConditions(model="rare"))
    assert (list(page.requests), page.is_partial) == ([], True)
    page = await reader.page(10, page.next_cursor, RequestConditions(model="rare"))
    assert ([request.facts.model for request in page.requests], page.is_partial) == (["rare"] * 10, False)


async def test_another_tenants_request_is_not_found_by_its_id(store: RedisStore) -> None:
    """Its owner and the operator find it."""
    log, now = RedisRequestLog(store.ask, Codec(), 100, 0), time.time()
    await log.add("writer", 1, {OWNER: [facts(now)]}, now)
    reader = RequestLogReader(log, settled)
    (request,) = (await reader.page(10, None)).requests
    assert await reader.request(request.id) == await reader.request(request.id, OWNER) == request
    assert await reader.request(request.id, "cd" * 16) is None
    for other in ("", "x", "1-1-1", f"{request.id}0", request.id.replace("-0", "-1", 1)):
        assert await reader.request(other) is None


async def test_while_the_store_is_away_the_newest_requests_wait() -> None:
    """As many as the log has, and they are written once it is back, each once."""
    taken: list[str] = []
    is_away = True

    class Log(RedisRequestLog):
        """A log whose store is away at first."""

        async def add(self, writer: str, number: int, requests: object, now: float) -> None:
            if is_away:
                raise StoreUnavailable("It is away.")
            assert isinstance(requests, dict)
            taken.extend(one.model for of_owner in requests.values() for one in of_owner)

    async def ask(*_: object) -> None:
        """Nothing is asked."""

    writer = RequestLogWriter(Log(ask, Codec(), 5, 0), 5, time.time)
    for number in range(9):
        writer.on_event(RequestServed("/v1/responses", 200, "complete", 0.1, model=str(number), owner=OWNER))
    await writer.settle()
    for number in range(9, 12):
        writer.on_event(RequestServed("/v1/responses", 200, "complete", 0.1, model=str(number), owner=OWNER))
    is_away = False
    await writer.aclose()
    assert taken == ["4", "5", "6", "7", "8", "9", "10", "11"]


def refused(status: int, code: str | None, owner: str = "", model: str = "") -> RequestServed:
    """A request that ended before its conversation was known."""
    outcome: Outcome = "refused" if code is None else "rejected"
    return RequestServed("/v1/responses", status, outcome, 0.1, model=model, code=code, owner=owner)


async def test_a_flood_of_refusals_takes_two_requests_of_the_log_a_minute(store: RedisStore) -> None:
    """The first one is there at once, and then the number of the others; so no request of a tenant leaves for them."""
    now = [time.time()]
    log = RedisRequestLog(store.ask, Codec(), 20, 0)
    writer = RequestLogWriter(log, 20, lambda: now[0])
    writer.on_event(RequestServed("/v1/responses", 200, "complete", 0.1, model="small", owner=OWNER))
    for second in range(120):
        now[0] += 1
        for event in (refused(401, "invalid_api_key"), refused(429, "rate_limit_exceeded", OWNER)):
            writer.on_event(event)
        writer.on_event(RequestShed("streams", 9, 0))
        if not second % 4:
            await writer.settle()
    await writer.aclose()
    requests = (await RequestLogReader(log, settled).page(100, None)).requests
    counts: dict[tuple[str, str], list[int]] = {}
    for request in reversed(requests):
        counts.setdefault((request.owner, request.facts.code), []).append(request.facts.count)
    assert counts == {
        (OWNER, ""): [1],
        ("", "invalid_api_key"): [1, 59, 1, 59],
        (OWNER, "rate_limit_exceeded"): [1, 59, 1, 59],
        ("", "overloaded"): [1, 59, 1, 59],
    }


async def test_other_refusals_are_requests_of_their_own(store: RedisStore) -> None:
    """Another tenant's, one for what a body says, and a provider's."""
    log = RedisRequestLog(store.ask, Codec(), 100, 0)
    writer = RequestLogWriter(log, 100, time.time)
    for event in (
        refused(429, "rate_limit_exceeded", OWNER),
        refused(429, "rate_limit_exceeded", "cd" * 16),
        *[refused(400, "invalid_json", OWNER), refused(429, None, OWNER)] * 2,
    ):
        writer.on_event(event)
    await writer.aclose()
    assert [request.facts.count for request in (await RequestLogReader(log, settled).page(100, None)).requests] == [
        1
    ] * 6


def test_what_a_client_or_a_provider_sends_is_bounded() -> None:
    """Names are cut, halves of characters are replaced, and a count that is none is left out."""
    served = RequestServed(
        "/v1/" + "x" * 1000,
        200,
        "complete",
        0.1,
        model="m\ud800" * 500,
        client=b"y" * 9000,
        usage=Usage(cached_tokens=-1),
    )
    made = facts_of(served, 1.0)
    assert max(map(len, (made.path, made.model, made.program))) == 100
    assert made.model.startswith("m?m?")
    assert made.cached is None
    assert len(msgspec.msgpack.encode(made)) < 500
