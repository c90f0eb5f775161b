"""Fills a store with every kind of record, and compares two stores."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import redis

from tests.store.test_stored_responses import answered
from tests.store.turns import Client, assistant, dialogue, raws, summary_of, system, turn_of
from tidemark.core.bill import BillFigures
from tidemark.core.conversation.kept import PREFIX, KeptConversation, KeptItem
from tidemark.core.conversation.prefix import chain_of, conversation_id
from tidemark.core.models import ModelObservation
from tidemark.core.planning.budget import ModelWindow
from tidemark.core.planning.calibration import CalibrationKey
from tidemark.core.ports import FlushEntry
from tidemark.core.traffic import TrafficCell, TrafficFigures
from tidemark.delivery.queue import QueueBounds, RedisFlushQueue
from tidemark.features.bill.store import RedisDays
from tidemark.features.settings.store import RedisSettings
from tidemark.features.traffic.store import RedisTraffic
from tidemark.store.calibrations import RedisCalibrations
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.lessons import RedisLearnedWindows
from tidemark.store.models import RedisModels

BOUNDS = QueueBounds(1000, 10**9)
WEEK_SECONDS = 7 * 86_400.0


def open_store(url: str, codec: Codec | None = None) -> RedisStore:
    """A store with time to spare."""
    return RedisStore(
        url,
        codec or Codec(),
        ttl_seconds=WEEK_SECONDS,
        recall_timeout_seconds=10,
        record_timeout_seconds=10,
    )


async def fill(url: str, conversations: int = 3, codec: Codec | None = None) -> Mapping[str, list[bytes]]:
    """Store something of every kind; return the messages of the conversations by their ids."""
    store, codec = open_store(url, codec), codec or Codec()
    tenant = uuid.uuid4().hex
    client = Client(store, tenant)
    stored: dict[str, list[bytes]] = {}
    try:
        await store.check_schema()
        talk = []
        for number in range(conversations):
            talk = [system("Be brief."), *dialogue(6, f"talk {number}")]
            stored[await client.send(talk, assistant("and so on"))] = raws([*talk, assistant("and so on")])
        chain = chain_of(tenant, talk)
        await store.keep_summary(tenant, next(reversed(stored)), chain, summary_of(chain, 4))
        await store.keep_summary(tenant, next(reversed(stored)), chain, summary_of(chain, 5), waiting=True)
        named = turn_of(tenant, dialogue(2, "named"))
        named = replace(named, owner=f"{tenant}-owner", name="my talk", conversation=conversation_id(named.chain, 0))
        named = replace(named, sender="messages a-program/1.0")
        stored[await store.record(named)] = raws(dialogue(2, "named"))
        turn = answered(tenant)
        stored[await store.record(turn)] = raws(turn.messages)
        forking = [*dialogue(2, "talk 0"), *dialogue(3, "another way")]
        stored[await client.send(forking, assistant("yes"))] = raws([*forking, assistant("yes")])
        conversation = KeptConversation(PREFIX + tenant, time.time(), b'{"ship":"Argo"}', tenant)
        await store.kept_conversations.create(
            tenant, conversation, [KeptItem("msg_1", b'{"role":"user","content":"Hi."}')]
        )
        await _fill_beside(store, codec, tenant)
    finally:
        await store.close()
    return stored


async def _fill_beside(store: RedisStore, codec: Codec, tenant: str) -> None:
    """What stands beside the conversations."""
    queue = RedisFlushQueue(store.ask, codec, ttl_seconds=WEEK_SECONDS, bounds=BOUNDS)
    for number in range(4):
        await queue.add(FlushEntry(uuid.uuid4().hex, tenant, "c" * 48, b"what left %d" % number, at=float(number)))
    await RedisCalibrations(store.ask, codec, ttl_seconds=WEEK_SECONDS).learn(
        CalibrationKey(tenant, "openai:small", "u", "t"), 100, 120, time.time()
    )
    await RedisLearnedWindows(store.ask, codec, ttl_seconds=WEEK_SECONDS).keep_lesson(tenant, "small", b"8192")
    window = ModelWindow(8192, 8192, 500, "default")
    await RedisModels(store.ask, codec).sight(
        ModelObservation("openai", tenant, "small", window, 0.95, 1000), time.time()
    )
    await RedisSettings(store.ask, codec).change(lambda _: {"compaction.defaults.threshold": 0.5})
    figures = TrafficFigures()
    figures.requests = 3
    await RedisTraffic(store.ask).add(tenant, 1, {TrafficCell(int(time.time()) // 60, "small", tenant): figures})
    await RedisDays(store.ask).add(tenant, 1, {(int(time.time()) // 86_400, "small"): BillFigures(requests=3)})


def contents(servers: Iterable[redis.Redis]) -> dict[bytes, Any]:
    """Everything that a store holds for good, by key: type, content, and whether it expires."""
    held: dict[bytes, Any] = {}
    for server in servers:
        admin: Any = server
        for name in admin.scan_iter(match="tm:*"):
            kind = admin.type(name).decode()
            held[name] = (kind, _content(admin, kind, name), admin.pttl(name) > 0)
    return held


def _content(admin: Any, kind: str, name: bytes) -> Any:
    match kind:
        case "string":
            return admin.get(name)
        case "list":
            return admin.lrange(name, 0, -1)
        case "hash":
            return admin.hgetall(name)
        case "set":
            return admin.smembers(name)
        case "zset":
            return sorted(map(tuple, admin.zrange(name, 0, -1, withscores=True)))
        case _:
            return admin.xrange(name), admin.xinfo_groups(name)
