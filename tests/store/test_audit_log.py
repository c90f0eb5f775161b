"""The audit log in a real server, and in a cluster: appended only, by many at once, and every tampering is found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark.core.audit_chain import HEAD_LOST, TRIMMED, ChainHead, ChainKey
from tidemark.core.errors import StoreUnavailable
from tidemark.core.events import Audited
from tidemark.features.audit.reading import verify
from tidemark.store import keys
from tidemark.store.audit_log import DAY_MS, AuditLog
from tidemark.store.conversations import RedisStore

STREAM, HEAD = f"{keys.AUDIT}:s", f"{keys.AUDIT}:h"
SECRET = b"a secret"


class Clock:
    """Seconds that a test sets."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def log(store: RedisStore) -> AuditLog:
    """An empty log."""
    await store.ask("DEL", STREAM, HEAD)
    return another(store)


def another(store: RedisStore, secret: bytes = SECRET, **options: Any) -> AuditLog:
    """The log as another worker has it."""
    return AuditLog(store.ask, secret, worker="w", **{"clock": Clock(), **options})


def reading(number: int = 0) -> Audited:
    """An entry."""
    return Audited("conversation.read", "operator", "alice", "tenant", f"conversation {number}", "10.0.0.1")


async def test_entries_stay_as_they_were_appended(log: AuditLog) -> None:
    """In their order, with numbers from 1 on."""
    heads = [await log.append(reading(number)) for number in range(5)]
    entries = await log.newest(3)
    assert [(entry.number, entry.fact.subject) for entry in entries] == [
        (5, "conversation 4"),
        (4, "conversation 3"),
        (3, "conversation 2"),
    ]
    assert [entry.number for entry in await log.newest(9, before=3)] == [2, 1]
    verdict = await verify(log, noted=heads[-1])
    assert (verdict.is_whole, verdict.entries, verdict.head) == (True, 5, heads[-1])


async def test_several_workers_append_at_once(log: AuditLog, store: RedisStore) -> None:
    """Each entry is there once, and the chain is whole."""
    workers = [log, *(another(store) for _ in range(4))]
    await asyncio.gather(*(worker.append(reading(number)) for number in range(12) for worker in workers))
    verdict = await verify(log)
    assert (verdict.is_whole, verdict.entries) == (True, 60)
    subjects = [entry.fact.subject for entry in await log.newest(100)]
    assert sorted(subjects) == sorted(reading(number).subject for number in range(12) for _ in workers)


async def test_the_log_is_verified_while_it_is_appended_to(log: AuditLog, store: RedisStore) -> None:
    """No entry that comes meanwhile looks like a cut or a gap."""
    await log.append(reading())

    async def append() -> None:
        other = another(store)
        for number in range(40):
            await other.append(reading(number))

    appending = asyncio.create_task(append())
    while not appending.done():
        assert (await verify(log)).is_whole
    await appending


async def test_a_new_worker_goes_on_with_the_chain(log: AuditLog, store: RedisStore) -> None:
    """Its first entry follows the last one of before."""
    await log.append(reading(1))
    await another(store).append(reading(2))
    await log.append(reading(3))
    assert (await verify(log)).entries == 3
    assert (await verify(log)).is_whole


async def test_what_somebody_does_to_the_stream_is_found(log: AuditLog, store: RedisStore) -> None:
    """An entry less, the end cut with and without its head, an entry more, and everything deleted."""
    for number in range(6):
        await log.append(reading(number))
    heads = [await store.ask("GET", HEAD)]
    await store.ask("XDEL", STREAM, "3-0")
    assert {problem.kind for problem in (await verify(log)).problems} == {"missing"}
    await store.ask("XDEL", STREAM, "6-0", "5-0")
    assert "head" in {problem.kind for problem in (await verify(log)).problems}
    await store.ask("DEL", STREAM)
    assert not (await verify(log)).is_whole
    await store.ask("SET", HEAD, b"0:" + b"00" * 32 + heads[0][-65:])
    assert not (await verify(log)).is_whole


@pytest.mark.parametrize(
    "command", [("XDEL", STREAM, "4-0", "5-0", "6-0"), ("DEL", HEAD), ("XTRIM", STREAM, "MAXLEN", "=", "0")]
)
async def test_a_cut_is_found_also_after_others_went_on_appending(
    log: AuditLog, store: RedisStore, command: tuple[str, ...]
) -> None:
    """The next entry says that the head was lost, or leaves the gap."""
    for number in range(6):
        await log.append(reading(number))
    await store.ask(*command)
    await another(store).append(reading())
    verdict = await verify(log)
    assert not verdict.is_whole
    assert HEAD_LOST in [entry.fact.action for entry in await log.newest(9)]


async def test_a_worker_notices_that_the_whole_log_was_set_back(log: AuditLog, store: RedisStore) -> None:
    """It knows a newer head than the store, as after a failover to a replica that was behind."""
    for number in range(3):
        await log.append(reading(number))
    head, before = await store.ask("GET", HEAD), await store.ask("XRANGE", STREAM, "-", "+")
    newest = await log.append(reading(3))
    await store.ask("DEL", STREAM)
    for place, fields in before:
        await store.ask("XADD", STREAM, place, *fields)
    await store.ask("SET", HEAD, head)
    assert (await verify(log)).is_whole
    assert not (await verify(log, noted=newest)).is_whole
    await log.append(reading(5))
    assert [entry.fact.action for entry in await log.newest(2)] == ["conversation.read", HEAD_LOST]
    assert [problem.kind for problem in (await verify(log)).problems] == ["head"]


async def test_a_cut_with_an_older_head_is_found_by_the_next_entry(log: AuditLog, store: RedisStore) -> None:
    """The stream takes no number twice, so the next one leaves a gap; appending goes on."""
    for number in range(3):
        await log.append(reading(number))
    head = await store.ask("GET", HEAD)
    await log.append(reading(3))
    await store.ask("XDEL", STREAM, "4-0")
    await store.ask("SET", HEAD, head)
    await another(store).append(reading(5))
    assert {problem.kind for problem in (await verify(log)).problems} == {"missing", "head"}
    assert [entry.number for entry in await log.newest(9)] == [6, 5, 3, 2, 1]


async def test_old_entries_are_deleted_with_an_entry_that_says_so(store: RedisStore, log: AuditLog) -> None:
    """And the rest is verified by it; no other entry is ever deleted."""
    clock = Clock()
    aging = another(store, clock=clock, keep_days=30)
    for number in range(4):
        await aging.append(reading(number))
    clock.now += 31 * DAY_MS / 1000
    await aging.append(reading(4))
    entries = await aging.newest(9)
    assert [(entry.number, entry.fact.action) for entry in entries] == [(6, TRIMMED), (5, "conversation.read")]
    verdict = await verify(aging)
    assert (verdict.is_whole, verdict.first) == (True, 5)
    await store.ask("XDEL", STREAM, "5-0")
    assert not (await verify(aging)).is_whole


async def test_another_secret_can_neither_verify_nor_hide_its_entries(log: AuditLog, store: RedisStore) -> None:
    """Whoever has no secret may append, and is found; an earlier secret is given to verify."""
    await log.append(reading())
    other = another(store, b"another secret")
    await other.append(reading())
    assert {problem.kind for problem in (await verify(log)).problems} == {"other secret", "head"}
    await log.append(reading())
    assert not (await verify(log)).is_whole
    assert (await verify(log, [ChainKey(b"another secret")])).is_whole


async def test_a_store_that_does_not_answer_is_told_to_who_appends(log: AuditLog) -> None:
    """An entry counts only if the store has taken it."""

    async def away(*_: object) -> None:
        raise StoreUnavailable("The store is away.")

    with pytest.raises(StoreUnavailable):
        await AuditLog(away, SECRET, worker="w", clock=Clock()).append(reading())


async def test_an_empty_log_is_whole(log: AuditLog) -> None:
    """Unless a head was noted before."""
    assert (await verify(log)).is_whole
    assert not (await verify(log, noted=ChainHead(3, bytes(32)))).is_whole
