"""Calibrations in a real server, and in a cluster: kept apart, bounded, losing nothing, and never waited for long."""

from __future__ import annotations

import asyncio
import socket
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from tests.support.clock import JUMPING, jumping_loop
from tidemark.core.errors import StoreUnavailable
from tidemark.core.planning.calibration import ANY_TOOLS, UNCALIBRATED, CalibrationKey
from tidemark.store import keys
from tidemark.store.calibrations import LEARN_SECONDS, MOST_TOOL_SETS, RedisCalibrations
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.models import RedisModels


@pytest.fixture
def calibrations(store: RedisStore) -> RedisCalibrations:
    """The calibrations on one server, and on a cluster."""
    return RedisCalibrations(store.ask, Codec(), ttl_seconds=100, learn_timeout_seconds=5)


@pytest.fixture
def name() -> str:
    """A model that no other test has, its name as odd as names get."""
    return f"org/modèle:{uuid.uuid4().hex} *"


async def test_a_calibration_is_learned_for_the_tool_set_and_for_the_model(
    calibrations: RedisCalibrations, name: str, tenant: str
) -> None:
    """A tool set that is new starts from its model's calibration; another credential from nothing."""
    key = CalibrationKey(tenant, f"openai:{name}", "u", "t1")
    assert await calibrations.calibration(key) == UNCALIBRATED
    await calibrations.learn(key, 1000, 1460, 5.0)
    own = await calibrations.calibration(key)
    assert (own.factor, own.replies, own.updated_at) == (1.46, 1, 5.0)
    assert (await calibrations.calibration(replace(key, tools="t2"))).factor == 1.46
    for other in (replace(key, owner=tenant[::-1] + "x"), replace(key, upstream="v"), replace(key, model="openai:o")):
        assert await calibrations.calibration(other) == UNCALIBRATED
    readings = (await calibrations.readings(tenant))[key.model]
    assert [(one.tools, one.calibration.factor) for one in readings] == [("*", 1.46), ("t1", 1.46)]
    assert (await calibrations.readings(None))[key.model][0].calibration.factor == 1.46
    assert await calibrations.readings("nobody") == {}


async def test_calibrations_expire_and_are_bounded(alone: RedisStore, admin: redis.Redis, name: str) -> None:
    """A client that makes up tool sets fills its own hash only, and no further than to its bound."""
    calibrations = RedisCalibrations(alone.ask, Codec(), ttl_seconds=100, learn_timeout_seconds=5)
    owner = uuid.uuid4().hex
    for number in range(MOST_TOOL_SETS + 3):
        await calibrations.learn(CalibrationKey(owner, f"openai:{name}", "u", f"t{number}"), 10, 12, 1.0)
    assert admin.hlen(keys.calibrations(owner)) == MOST_TOOL_SETS
    assert 0 < int(admin.ttl(keys.calibrations(owner))) <= 100
    late = await calibrations.calibration(CalibrationKey(owner, f"openai:{name}", "u", f"t{MOST_TOOL_SETS + 2}"))
    assert late.factor == pytest.approx(1.2)
    another = CalibrationKey(owner, f"openai:{name}-b", "u", "t")
    await calibrations.learn(another, 100, 146, 2.0)
    assert (await calibrations.calibration(another)).factor == pytest.approx(1.46), "a model has a bound of its own"


async def test_without_the_store_the_last_calibration_holds(tmp_path: Path) -> None:
    """And goes on learning in memory; the registry's reading says that the store is gone."""
    key = CalibrationKey("o", "openai:m", "u", "")
    with EmbeddedValkey(tmp_path / "data") as server:
        store = RedisStore(
            server.url,
            Codec(),
            ttl_seconds=None,
            record_timeout_seconds=5,
        )
        calibrations = RedisCalibrations(store.ask, Codec(), ttl_seconds=None)
        await calibrations.learn(key, 100, 200, 1.0)
    assert (await calibrations.calibration(key)).factor == 2.0
    await calibrations.learn(key, 100, 200, 2.0)
    assert (await calibrations.calibration(key)).replies == 2
    assert await calibrations.calibration(replace(key, owner="p")) == UNCALIBRATED
    with pytest.raises(StoreUnavailable):
        await calibrations.readings("o")
    with pytest.raises(StoreUnavailable):
        await RedisModels(store.ask, Codec()).version()
    await store.close()


async def test_replies_that_end_at_once_teach_all_their_lessons(
    calibrations: RedisCalibrations, store: RedisStore, name: str, tenant: str
) -> None:
    """Of two workers, of one tool set and of several: no lesson is written over by another that began earlier."""
    other = RedisCalibrations(store.ask, Codec(), ttl_seconds=100, learn_timeout_seconds=5)
    keys_of = [CalibrationKey(tenant, f"openai:{name}", "u", tools) for tools in ("t1", "t2")]
    lessons = [(worker, key) for worker in (calibrations, other) for key in keys_of]
    await asyncio.gather(*(worker.learn(key, 1000, 1460, 5.0) for worker, key in lessons))
    readings = {one.tools: one.calibration for one in (await calibrations.readings(tenant))[keys_of[0].model]}
    assert {tools: one.replies for tools, one in readings.items()} == {ANY_TOOLS: 4, "t1": 2, "t2": 2}
    assert readings[ANY_TOOLS].local_tokens == 1000 * (1 + 0.5 + 0.25 + 0.125)


async def test_a_value_that_cannot_be_read_is_learned_over(alone: RedisStore, admin: redis.Redis, tenant: str) -> None:
    """Another version's, or a hand's: it is as if it were not there, and does not stay for good."""
    calibrations = RedisCalibrations(alone.ask, Codec(), ttl_seconds=100, learn_timeout_seconds=5)
    key = CalibrationKey(tenant, "openai:m", "u", "t")
    admin.hset(keys.calibrations(tenant), "openai:m\0u\0t", "{")
    assert await calibrations.calibration(key) == UNCALIBRATED
    await calibrations.learn(key, 1000, 1200, 5.0)
    assert (await calibrations.calibration(key)).factor == 1.2


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_a_silent_store_is_waited_for_no_longer_than_for_recall() -> None:
    """The read stands before the request is forwarded; the write, all its tries together, before the last byte."""
    key = CalibrationKey("o", "openai:m", "u", "")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        store = RedisStore(
            url, Codec(), ttl_seconds=None, recall_timeout_seconds=0.1, record_timeout_seconds=2 * LEARN_SECONDS
        )
        calibrations = RedisCalibrations(store.ask, Codec(), ttl_seconds=None)
        begun = jumping_loop().time()
        assert await calibrations.calibration(key) == UNCALIBRATED
        assert jumping_loop().time() - begun == pytest.approx(0.1, abs=0.01)
        await store.close()
        store = RedisStore(
            url,
            Codec(),
            ttl_seconds=None,
            record_timeout_seconds=2 * LEARN_SECONDS,
        )
        calibrations, begun = RedisCalibrations(store.ask, Codec(), ttl_seconds=None), jumping_loop().time()
        await calibrations.learn(key, 100, 146, 1.0)
        assert jumping_loop().time() - begun == pytest.approx(LEARN_SECONDS, abs=0.01)
        assert (await calibrations.calibration(key)).factor == 1.46
        await store.close()
