"""Between the flow and the queue: bounded, tried again, and made up for where a process died in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.core.histories import message, size
from tests.features.memory_flush.conftest import TENANT
from tests.store.turns import Client
from tests.support.waiting import until, whole_lines
from tidemark.config import load
from tidemark.core.conversation.flush import Flush, leaving
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.summary import MaskedResults, PrefixSummary, SummaryRecipe
from tidemark.core.events import Event
from tidemark.core.flush_events import FlushDelayed, FlushDropped, FlushQueued
from tidemark.delivery.queue import RedisFlushQueue
from tidemark.delivery.recovery import ABANDON_SECONDS, SETTLED_SECONDS, Recovery
from tidemark.features.memory_flush import outbox as outbox_module
from tidemark.features.memory_flush.feature import MemoryFlushFeature
from tidemark.features.memory_flush.outbox import Outbox
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.worker.worker import Worker

NOW = 1_700_000_000.0
RECIPE = SummaryRecipe("extractive", "general", 1)


@pytest.fixture
def facts() -> list[Event]:
    """The facts that were emitted."""
    return []


@pytest.fixture
async def outbox(queue: RedisFlushQueue, store: RedisStore, facts: list[Event]) -> AsyncIterator[Outbox]:
    """An outbox whose clock stands still."""
    made = Outbox(queue, store, emit=facts.append, clock=lambda: NOW)
    yield made
    await made.aclose()


def talk(count: int, systems: int = 0) -> list[Message]:
    """A conversation, with system messages strewn in."""
    said = [message(role="user", content=f"message {number}") for number in range(count)]
    for number in range(systems):
        said.insert(2 * number + 1, message(role="system", content=f"rule {number}"))
    return said


def flush(messages: list[Message], covered: int, conversation: str = "", *, stored: bool = True) -> Flush:
    """What leaves when the first messages are summarized, the system messages among them."""
    chain = chain_of(TENANT, messages)
    absorbed = tuple(one.digest for one in messages if one.is_system)
    summary = PrefixSummary(
        chain.at(covered), covered, "It was.", RECIPE, "extractive", "automatic", NOW, absorbed=absorbed
    )
    first, gone = leaving(messages, [size(one) for one in messages], summary, None)
    return Flush(TENANT, conversation or chain.family, "m", chain, summary, first, gone, stored=stored)


async def test_a_summary_made_anew_does_not_silence_what_left_for_it_before(
    outbox: Outbox, queue: RedisFlushQueue, facts: list[Event]
) -> None:
    """Nothing leaves with it, and the first one's note stands: its process may have died, or not queued it yet."""
    whole = flush(talk(6), 4)
    anew = replace(whole, first=5, leaving=())
    await outbox.intend(whole)
    noted = await queue.intents()
    await outbox.intend(anew)
    outbox.put(whole)
    outbox.put(anew)
    assert await queue.intents() == noted
    await until(lambda: bool(facts))
    assert [(fact.key, fact.messages) for fact in facts if isinstance(fact, FlushQueued)] == [(whole.key, 4)]
    (kept,) = await queue.newest(10)
    assert json.loads(kept.body)["first"] == 1


async def test_system_messages_that_leave_later_for_the_same_prefix_are_told(
    outbox: Outbox, queue: RedisFlushQueue, facts: list[Event]
) -> None:
    """A summary of the same messages that takes them in as well: nothing else leaves with it."""
    both = flush(talk(6, systems=2), 4)
    plain = replace(both.summary, absorbed=())
    outbox.put(replace(both, summary=plain, leaving=tuple(one for one in both.leaving if not one.message.is_system)))
    outbox.put(replace(both, first=5, leaving=tuple(one for one in both.leaving if one.message.is_system)))
    await until(lambda: len(facts) == 2)
    found = [json.loads(one.body)["messages"] for one in await queue.newest(10)]
    assert [len(one) for one in found] == [4, 2]
    assert {one["role"] for one in found[1]} == {"system"}


async def test_what_waits_is_bounded_and_what_makes_way_is_told(
    outbox: Outbox, valkey: EmbeddedValkey, facts: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store is away; the newest are queued when it is back, and no request was failed by it."""
    monkeypatch.setattr(outbox_module, "MAX_WAITING", 3)
    valkey.stop()
    for number in range(5):
        outbox.put(flush([message(role="user", content=f"talk {number}"), *talk(3)], 2))
    await until(lambda: any(isinstance(fact, FlushDelayed) for fact in facts))
    assert len([fact for fact in facts if isinstance(fact, FlushDropped)]) == 2
    await asyncio.to_thread(valkey.start)
    await until(lambda: len([fact for fact in facts if isinstance(fact, FlushQueued)]) == 3)


async def test_a_store_that_does_not_come_back_does_not_keep_the_process(
    outbox: Outbox, valkey: EmbeddedValkey, facts: list[Event]
) -> None:
    """The end says what was not queued."""
    valkey.stop()
    outbox.put(flush(talk(4), 3))
    async with asyncio.timeout(20):
        await outbox.aclose()
    assert [type(fact) for fact in facts if isinstance(fact, FlushDropped)] == [FlushDropped]


async def test_a_note_is_made_up_for_from_the_history(
    outbox: Outbox, queue: RedisFlushQueue, store: RedisStore, facts: list[Event]
) -> None:
    """Word for word what the dead process would have queued, system messages in their places, under the same key."""
    said = talk(8, systems=2)
    conversation = await Client(store, TENANT).send(said, None)
    about = flush(said, 5, conversation)
    await store.keep_summary(TENANT, conversation, about.chain, about.summary)
    await outbox.intend(about)
    recovery = Recovery(queue, store, emit=facts.append, clock=lambda: NOW + SETTLED_SECONDS - 1)
    assert await recovery.sweep() == 0, "its process may still be at it"
    recovery = Recovery(queue, store, emit=facts.append, clock=lambda: NOW + SETTLED_SECONDS)
    assert await recovery.sweep() == 1
    assert await recovery.sweep() == 0
    (recovered,) = await queue.newest(9)
    outbox.put(about)
    await outbox.aclose()
    assert len(await queue.newest(9)) == 1, "the dead process was not dead: the key is known"
    assert json.loads(recovered.body)["messages"] == [json.loads(one.message.raw) for one in about.leaving]
    assert recovered.key == about.key


async def test_a_note_is_not_made_up_for_if_the_record_of_its_prefix_masks_results(
    outbox: Outbox, queue: RedisFlushQueue, store: RedisStore, facts: list[Event]
) -> None:
    """The process died before it stored the summary, so all messages still go out, with lines among them."""
    said = talk(8)
    conversation = await Client(store, TENANT).send(said, None)
    about = flush(said, 5, conversation)
    masks = replace(about.summary, text="", made_by="mask", masked=MaskedResults(None, ((1, "a line"),)))
    await store.keep_summary(TENANT, conversation, about.chain, masks)
    await outbox.intend(about)
    settled = Recovery(queue, store, emit=facts.append, clock=lambda: NOW + SETTLED_SECONDS)
    assert await settled.sweep() == 0
    late = Recovery(queue, store, emit=facts.append, clock=lambda: NOW + ABANDON_SECONDS + 1)
    assert await late.sweep() == 0
    assert await queue.newest(9) == []
    assert facts == [], "nothing was lost"


async def test_a_note_without_its_messages_waits_for_them_and_is_given_up_in_the_end(
    outbox: Outbox, queue: RedisFlushQueue, store: RedisStore, facts: list[Event]
) -> None:
    """They come with the client's next request, or its answer never came, so that it has them itself."""
    said = talk(8)
    about = flush(said, 5, chain_of(TENANT, said).family + "0" * 16)
    await outbox.intend(about)
    await store.keep_summary(TENANT, about.conversation, about.chain, about.summary)
    never = flush([message(role="user", content="another"), *said], 5)
    await outbox.intend(never)  # its summary was not kept, so nothing left
    soon = Recovery(queue, store, emit=facts.append, clock=lambda: NOW + SETTLED_SECONDS)
    assert await soon.sweep() == 0
    assert len(await queue.intents()) == 2
    await queue.intend(TENANT, "odd", b"not json")
    late = Recovery(queue, store, emit=facts.append, clock=lambda: NOW + ABANDON_SECONDS + 1)
    assert await late.sweep() == 0
    assert await queue.intents() == {}
    assert [fact.conversation for fact in facts if isinstance(fact, FlushDropped)] == [about.conversation]


async def test_what_is_forgotten_is_gone_from_queue_notes_and_files(valkey: EmbeddedValkey, tmp_path: Path) -> None:
    """Of that conversation only."""
    path = tmp_path / "tidemark.yaml"
    path.write_text("memory_flush: {enabled: true, entry_points: false}\n")
    facts: list[Event] = []
    settings = load(path, {"TIDEMARK_DATA_DIR": str(tmp_path)})
    worker = Worker(settings, pytest.fail, store_url=valkey.url, codec=Codec())
    worker.emit.listeners.append(facts.append)
    flushing = MemoryFlushFeature(worker)
    await flushing.start()
    gone, kept = flush(talk(4), 3, "a" * 48), flush(talk(6), 5, "b" * 48)
    for one in (gone, kept):
        flushing.outbox.put(one)

    def lines() -> list[str]:
        files = (tmp_path / "flush").glob("*/*.jsonl")
        return [json.loads(line)["conversation"] for file in files for line in whole_lines(file)]

    await until(lambda: len(lines()) == 2)
    await flushing.forget(TENANT, "a" * 48)
    assert lines() == ["b" * 48]
    assert [one.conversation for one in await flushing.queue.newest(9)] == ["b" * 48]
    await flushing.aclose()
