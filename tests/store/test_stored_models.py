"""The registry in a real server, and in a cluster: kept, bounded, and what was found apart from what was set."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from tidemark.core.errors import StoreUnavailable
from tidemark.core.models import NOTHING_SET, ModelObservation, ModelOverrides, ModelRecord
from tidemark.core.planning.budget import ModelWindow
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey, running_url
from tidemark.store.models import MOST_MODELS, TRIES, RedisModels

WINDOW = ModelWindow(272_000, 128_000, 400_000, "api")


def sighting(model: str, window: ModelWindow = WINDOW) -> ModelObservation:
    """A sighting of a model at OpenAI."""
    return ModelObservation("openai", model, f"my-{model}", window, 0.95, 1000)


def blank(model: str) -> ModelRecord:
    """A record of which nothing is stored."""
    return ModelRecord("openai", model, model)


def to(overrides: ModelOverrides) -> Callable[[ModelOverrides], ModelOverrides]:
    """A change to these, whatever was set before."""
    return lambda _: overrides


@pytest.fixture
def models(store: RedisStore) -> RedisModels:
    """The registry on one server, and on a cluster."""
    return RedisModels(store.ask, Codec())


@pytest.fixture
def name() -> str:
    """A model that no other test has, its name as odd as names get."""
    return f"org/modèle:{uuid.uuid4().hex} *"


async def test_a_sighting_is_kept_with_its_times(models: RedisModels, name: str) -> None:
    """FR-3.2.2: created once, updated with what is found."""
    await models.sight(sighting(name), 10.0)
    await models.sight(sighting(name), 20.0)
    await models.sight(sighting(name, ModelWindow()), 25.0)
    record = await models.record(f"openai:{name}")
    assert record == ModelRecord("openai", name, f"my-{name}", sighting(name), NOTHING_SET, 10.0, 10.0)
    await models.sight(sighting(name, ModelWindow(1000, None, None, "api")), 30.0)
    record = await models.record(f"openai:{name}")
    assert record is not None
    assert record.observation is not None
    assert (record.observation.window.window, record.created_at, record.updated_at) == (1000, 10.0, 30.0)


async def test_an_override_is_kept_beside_what_was_found_and_comes_off(models: RedisModels, name: str) -> None:
    """FR-3.2.4: a reset leads back to the found values; each change has a version of its own."""
    await models.sight(sighting(name), 10.0)
    versions = [await models.version()]
    record = await models.record(f"openai:{name}")
    assert record is not None
    own = ModelOverrides(max_input_tokens=5000, threshold=0.8)
    await models.override(record, to(own), 20.0)
    versions.append(await models.version())
    after = await models.record(f"openai:{name}")
    assert after == replace(record, overrides=own, updated_at=20.0)
    version, changed = await models.changed()
    assert version == versions[-1]
    assert [one.overrides for one in changed if one.model == name] == [own]
    assert after in await models.records()
    await models.override(after, to(NOTHING_SET), 30.0)
    versions.append(await models.version())
    assert await models.record(f"openai:{name}") == record
    assert len(set(versions)) == 3


async def test_changes_at_the_same_instant_are_made_one_upon_the_other(models: RedisModels, name: str) -> None:
    """As many as there are tries; each is asked again for what it makes of the others' word."""
    asked: list[ModelOverrides] = []

    def more(before: ModelOverrides) -> ModelOverrides:
        asked.append(before)
        return replace(before, retention_tokens=(before.retention_tokens or 0) + 1)

    await asyncio.gather(*(models.override(blank(name), more, 10.0 + number) for number in range(TRIES)))
    record = await models.record(f"openai:{name}")
    assert record is not None
    assert record.overrides == ModelOverrides(retention_tokens=TRIES)
    assert record.created_at is not None
    assert record.created_at < 10.0 + TRIES <= 10.0 + len(asked)


async def test_a_change_that_others_forestall_forever_changes_nothing(
    alone: RedisStore, admin: redis.Redis, name: str
) -> None:
    """It is given up after a bounded number of tries, and says so; what a change raises ends it as well."""
    models, tries = RedisModels(alone.ask, Codec()), itertools.count()

    def forestalled(before: ModelOverrides) -> ModelOverrides:
        admin.hset(keys.models_part("o"), f"openai:{name}", f"{{another hand's {next(tries)}")
        return replace(before, threshold=0.5)

    version = await models.version()
    with pytest.raises(StoreUnavailable, match="Nothing was changed"):
        await models.override(blank(name), forestalled, 1.0)
    assert next(tries) == TRIES
    with pytest.raises(ZeroDivisionError):
        await models.override(blank(name), lambda _: ModelOverrides(threshold=1 / 0), 1.0)
    assert await models.record(f"openai:{name}") is None
    assert await models.version() == version
    await models.override(blank(name), to(ModelOverrides(threshold=0.6)), 1.0)
    assert (await models.record(f"openai:{name}") or blank(name)).overrides == ModelOverrides(threshold=0.6)


async def test_a_sighting_changes_no_version(models: RedisModels, name: str) -> None:
    """Or every new model would make every worker read all overrides anew."""
    before = await models.version()
    await models.sight(sighting(name), 10.0)
    assert await models.version() == before


async def test_sightings_are_bounded_and_overrides_stay(alone: RedisStore, admin: redis.Redis, name: str) -> None:
    """Clients choose names; the one seen longest ago goes, what a person set does not."""
    models = RedisModels(alone.ask, Codec())
    await models.override(blank(name), to(ModelOverrides(threshold=0.5)), 1.0)
    await models.sight(sighting(name), 2.0)
    for number in range(5):
        await models.sight(sighting(f"{name}-{number}"), 1e9 + number)
    admin.zadd(keys.models_part("t"), {f"filler-{number}": 5e9 for number in range(MOST_MODELS - 3)})
    await models.sight(sighting(f"{name}-last"), 2e9)
    assert admin.zcard(keys.models_part("t")) == MOST_MODELS
    assert await models.record(f"openai:{name}-0") is None
    kept = await models.record(f"openai:{name}")
    assert kept is not None
    assert kept.overrides == ModelOverrides(threshold=0.5)
    admin.zremrangebyscore(keys.models_part("t"), 5e9, 5e9)


async def test_what_is_used_stays_though_nothing_of_it_changes(
    alone: RedisStore, admin: redis.Redis, name: str
) -> None:
    """The one that goes was seen longest ago, whenever it was found; a record that went comes back when it is seen."""
    admin.delete(keys.models_part("r"), keys.models_part("t"))
    models = RedisModels(alone.ask, Codec())
    for number in range(3):
        await models.sight(sighting(f"{name}-{number}"), 10.0 + number)
    await models.sight(sighting(f"{name}-0"), 20.0)
    admin.zadd(keys.models_part("t"), {f"filler-{number}": 5e9 for number in range(MOST_MODELS - 3)})
    await models.sight(sighting(f"{name}-last"), 30.0)
    kept = await models.record(f"openai:{name}-0")
    assert kept is not None
    assert (kept.created_at, kept.updated_at) == (10.0, 10.0)
    assert await models.record(f"openai:{name}-1") is None
    assert await models.record(f"openai:{name}-2") is not None
    await models.sight(sighting(f"{name}-1"), 40.0)
    assert await models.record(f"openai:{name}-1") is not None
    admin.zremrangebyscore(keys.models_part("t"), 5e9, 5e9)


async def test_an_emptied_store_has_another_epoch_and_a_change_has_not(short_folder: Path) -> None:
    """The first who reads it begins one, also where nobody has ever set anything; all others read the same."""
    with EmbeddedValkey(short_folder) as server, redis.Redis.from_url(server.url) as emptying:
        store = RedisStore(server.url, Codec(), ttl_seconds=None, record_timeout_seconds=5)
        models, epochs = RedisModels(store.ask, Codec()), []
        for _ in range(2):
            begun = [(await models.changed())[0] for _ in range(2)]
            await models.override(blank("m"), to(ModelOverrides(threshold=0.5)), 1.0)
            then = await models.version()
            assert begun[0] == begun[1]
            assert (then.epoch, then != begun[0]) == (begun[0].epoch, True)
            epochs.append(then.epoch)
            emptying.flushall()
            assert await models.version() != then
        await models.override(blank("m"), to(ModelOverrides(threshold=0.5)), 1.0)
        epochs.append((await models.changed())[0].epoch)
        assert len({"", *epochs}) == 4
        emptying.config_set("min-replicas-to-write", 1)  # nothing may be written, and yet reading goes on
        emptying.config_set("min-replicas-max-lag", 1)
        assert [one.model for one in (await models.changed())[1]] == ["m"]
        await store.close()


async def test_what_cannot_be_read_is_as_if_it_were_not_there(alone: RedisStore, admin: redis.Redis, name: str) -> None:
    """Another version's record, or a hand's: nothing fails, and the others are read."""
    models = RedisModels(alone.ask, Codec())
    await models.sight(sighting(name), 1.0)
    for number, junk in enumerate(["", "{", "[]", "7", '{"told": {}}', '{"told": {"a": 1}, "provider": "x"}']):
        admin.hset(keys.models_part("r"), f"junk-{number}", junk)
        admin.hset(keys.models_part("o"), f"junk-{number}", junk)
    assert [one.model for one in await models.records() if "junk" in one.id] == []
    assert await models.record("junk-0") is None
    assert await models.record(f"openai:{name}") is not None
    for kind in ("r", "o"):
        admin.hdel(keys.models_part(kind), *(f"junk-{number}" for number in range(6)))


async def test_a_running_server_is_found_by_its_folder(tmp_path: Path) -> None:
    """For the command line, which must not start a second one."""
    assert running_url(tmp_path / "data") is None
    with EmbeddedValkey(tmp_path / "data") as server:
        assert await asyncio.to_thread(running_url, tmp_path / "data") == server.url
    assert running_url(tmp_path / "data") is None
