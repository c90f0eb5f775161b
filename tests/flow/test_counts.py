"""Counts are kept with the stored messages, so that another worker need not count them again."""

from __future__ import annotations

import asyncio

import redis

from proxy.core.conversation import TurnRecord
from proxy.core.messages import ChatRequest
from proxy.core.prefix import chain_of
from proxy.store.redis import RedisStore
from proxy.tokens import LocalTokenCounter
from tests.core.histories import message
from tests.flow.conftest import Bench
from tests.flow.talk import assistant, user

LONG = "a sentence of some length that repeats itself. " * 900


def test_a_worker_takes_over_the_counts_of_another(bench: Bench, store_url: str) -> None:
    """A count that is stored beside the message is believed, where the rules are the same and the bytes, too."""
    client = bench.client("counts", window=20_000)
    first = client.chat([user("hi")]).headers["x-tidemark-conversation"]

    async def plant(text: str, tokens: int) -> None:
        store = RedisStore(store_url, ttl_seconds=60)
        told = await store.conversation(first)
        assert told is not None
        said = [message(**user(text)), message(**assistant("Fine."))]
        mark = (await LocalTokenCounter().count(ChatRequest(b"", {}, "m", tuple(said)), "scripted")).scheme
        chain = chain_of(told.tenant, said)
        await store.record(
            TurnRecord(
                told.tenant,
                "",
                chain,
                0,
                said,
                (tokens, 6),
                complete=True,
                model="small",
                action="none",
                tokens_before=0,
                tokens_after=0,
                summarized=0,
                created_at=1.0,
                scheme=mark,
            )
        )
        await store.close()

    asyncio.run(plant(LONG, 777))
    got = client.chat([user(LONG), assistant("Fine."), user("Go on.")])
    assert int(got.headers["x-tidemark-tokens-before"]) == 777 + 6 + 7 + 3
    asyncio.run(plant(LONG + "!", 1))
    got = client.chat([user(LONG + "!"), assistant("Fine."), user("Go on.")])
    assert int(got.headers["x-tidemark-tokens-before"]) > 5000, "a count below the least is not believed"


def test_a_long_new_message_reads_nothing_of_what_is_remembered(bench: Bench, store_url: str) -> None:
    """Work grows with the new messages only: what is new is not stored yet, and what is stored is remembered."""
    client = bench.client("warm", window=60_000)
    said = [user(LONG)]
    reads = []
    with redis.Redis.from_url(store_url) as server:
        for text in (LONG, LONG, "short", LONG):
            before = server.info("commandstats").get("cmdstat_lrange", {}).get("calls", 0)
            assert client.chat(said).status_code == 200
            reads.append(server.info("commandstats").get("cmdstat_lrange", {}).get("calls", 0) - before)
            said += [assistant("Hello there."), user(f"{len(said)} {text}")]
    assert len(set(reads[1:])) == 1, "a turn reads as much of lists whether its newest message is long or short"
