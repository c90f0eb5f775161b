"""Import beside what else goes on: the turn of its name is held and given back, and other requests are served."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from tests.features.conversations.readers import NOTHING, reader
from tests.features.conversations.test_archive import lines
from tests.request.talk import Said, long, user
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.records import ConversationRecord, TurnRecord
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import BadImport, ConversationConflict, StoreUnavailable
from tidemark.core.ports import Caller, RequestCount, Route, StartedTurn, Stored
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.message_formats import MessageFormats
from tidemark.features.conversations import transfer
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.pages import Page
from tidemark.features.conversations.transfer import Transfer
from tidemark.pipeline.identify import tenant_of
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.leases import RedisLeases
from tidemark.tokens import LocalTokenCounter

ROUTE = Route("wire", "gpt-4o", "gpt-4o", "openai", "https://upstream.example/v1")


class Troubled(RedisStore):
    """A store that may not take what is recorded."""

    full = False

    async def record(self, turn: TurnRecord) -> str:
        """Append it, or not."""
        if self.full:
            raise StoreUnavailable("The conversation store does not answer.")
        return await super().record(turn)


class Slow(LocalTokenCounter):
    """A counter that takes its time."""

    seconds = 0.0

    async def count(
        self, request: ModelRequest, model: str, *, stored_count: int = 0, stored: Stored | None = None
    ) -> RequestCount:
        """Count, after a while."""
        await asyncio.sleep(self.seconds)
        return await super().count(request, model, stored_count=stored_count, stored=stored)


class OneUpstream:
    """Serves every model by the same upstream."""

    async def resolve(self, _: str, **__: object) -> Route:
        """That one."""
        return ROUTE


class Watched(ChatDialect):
    """Chat completions; each list has the threads that stored messages, or lines, were parsed in."""

    def __init__(self, threads: list[threading.Thread], line_threads: list[threading.Thread]) -> None:
        super().__init__()
        self.threads = threads
        self.line_threads = line_threads

    def parse_messages(self, raws: Sequence[bytes]) -> tuple[Message, ...]:
        """Parse single messages."""
        self.threads.append(threading.current_thread())
        return super().parse_messages(raws)

    def parse_lines(self, data: bytes) -> list[Message]:
        """Parse an export."""
        self.line_threads.append(threading.current_thread())
        return super().parse_lines(data)


class Desk:
    """An archive with a store, and one caller; ``threads`` are those that stored messages were read in."""

    def __init__(self, store: Troubled) -> None:
        self.store = store
        self.caller = Caller(uuid.uuid4().bytes, ())
        self.counter = Slow()
        self.threads: list[threading.Thread] = []
        self.line_threads: list[threading.Thread] = []
        upstream = cast("Any", OneUpstream())
        dialect = Watched(self.threads, self.line_threads)
        self.reading = reader(store, upstream=upstream, dialect=dialect)
        self.transfer = Transfer(
            access=ArchiveAccess(store, upstream),
            store=store,
            heads=NOTHING,
            upstream=upstream,
            leases=RedisLeases(store.ask),
            counter=self.counter,
            dialect=dialect,
            formats=MessageFormats([dialect]),
            clock=lambda: 2_000_000_000.0,
            quota=store.usage,
        )

    async def bring_in(self, *said: Said, data: bytes = b"", name: str | None = "moved") -> ConversationRecord:
        """Import messages."""
        imported = await self.transfer.import_lines(data or lines(*said), self.caller, "gpt-4o", name)
        assert imported.record is not None
        return imported.record

    async def begun(self) -> StartedTurn:
        """What somebody finds who wants the turn of the name."""
        tenant = tenant_of(self.caller, ROUTE)
        family = chain_of(tenant, (), conversation="moved").family
        found = await self.store.turns.start_turn(family, "", tenant, 10)
        assert found is not None
        return found


@pytest.fixture
def anyio_backend() -> str:
    """The store belongs to asyncio."""
    return "asyncio"


@pytest.fixture
async def desk(store_url: str, anyio_backend: str) -> AsyncIterator[Desk]:
    """A desk of the test's own."""
    opened = Troubled(store_url, Codec(), ttl_seconds=100, recall_timeout_seconds=5, record_timeout_seconds=5)
    yield Desk(opened)
    await opened.close()


async def test_an_import_that_fails_gives_its_name_back(desk: Desk) -> None:
    """Whether the store failed or the lines are none: the same name can be imported at once."""
    desk.store.full = True
    with pytest.raises(StoreUnavailable):
        await desk.bring_in(user("Hi."))
    desk.store.full = False
    with pytest.raises(BadImport):
        await desk.bring_in(data=b"nonsense")
    assert (await desk.bring_in(user("Hi."))).message_count == 1


async def test_a_name_whose_turn_is_under_way_is_to_be_tried_again(desk: Desk) -> None:
    """There may be no conversation of it in the end, so it is not told that there is one."""
    assert (await desk.begun()).lease is not None
    with pytest.raises(ConversationConflict, match="is being answered") as refused:
        await desk.bring_in(user("Hi."))
    assert refused.value.retry_after == 1


async def test_a_name_that_is_taken_costs_no_work(desk: Desk) -> None:
    """It is looked up first: the lines are not even read. And its turn stays free."""
    await desk.bring_in(user("Hi."))
    with pytest.raises(ConversationConflict, match="There is a conversation 'moved' already") as refused:
        await desk.bring_in(data=b"nonsense")
    assert not refused.value.retry_after
    assert (await desk.begun()).lease is not None


async def test_the_name_is_held_as_long_as_an_import_takes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a lease lasts: nobody comes in between."""
    monkeypatch.setattr(transfer, "LEASE_SECONDS", 0.6)
    desk.counter.seconds = 1.5
    importing = asyncio.create_task(desk.bring_in(user("Hi.")))
    await asyncio.sleep(1.1)
    assert (await desk.begun()).lease is None
    id_ = (await importing).id
    after = await desk.begun()
    assert after.record is not None
    assert (after.record.id, after.lease is None) == (id_, False)


async def test_a_large_import_is_read_in_a_thread_and_once(desk: Desk) -> None:
    """Other requests go on meanwhile; the messages are those of its lines and are not parsed again."""
    told = await desk.bring_in(*[user(long(place)) for place in range(500)])
    assert (told.message_count, len(desk.line_threads), desk.threads) == (500, 1, [])
    assert desk.line_threads[0] is not threading.main_thread()


async def test_a_large_history_is_searched_in_a_thread(desk: Desk) -> None:
    """A small one is not worth the way there."""
    for name, count in (("small", 3), ("large", 500)):
        id_ = (await desk.bring_in(*[user(long(place)) for place in range(count)], name=name)).id
        found = await desk.reading.search(id_, desk.caller, '"Point 2"', Page(200))
        assert found.hits
    assert [thread is threading.main_thread() for thread in desk.threads] == [True, False]
