"""A record is broken, or a newer version wrote it: it hides no other, and its place is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.features.conversations.readers import reader
from tests.request.conftest import Bench, Client
from tests.request.talk import user
from tests.store.turns import assistant, turn_of
from tests.store.turns import user as asked
from tests.support.scripted import says, whole
from tidemark.core.conversation.request import Dialect
from tidemark.core.events import Event, RecordBroken
from tidemark.dialects.message_formats import shapes
from tidemark.features.conversations.pages import Page
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.worker.dialects import build_dialects

STORED = {"conversation": "talk", "history": "stored"}


@pytest.fixture
def admin(store_url: str) -> Iterator[Any]:
    """A look behind the store's scenes."""
    with redis.Redis.from_url(store_url) as made:
        yield made


@pytest.fixture
def talk(client: Client) -> str:
    """The id of a stored talk of two turns."""
    client.chat([user("One.")], **STORED)
    got = client.chat([user("Two.")], **STORED)
    assert got.status_code == 200
    return str(got.headers["x-tidemark-conversation"])


def key(conversation: str, part: str) -> str:
    """Where a part of a conversation is."""
    return f"tm:{{{conversation[:32]}}}:{part}:{conversation[32:]}"


def newer(packed: bytes) -> bytes:
    """A record of a version that this program does not know."""
    return b"\x63" + packed[1:]


def torn(packed: bytes) -> bytes:
    """One that lost its end."""
    return packed[:-3]


def other(packed: bytes) -> bytes:
    """One whose message is none any more, while its frame is whole."""
    return packed.replace(b'"role"', b'"r\xffle"')


def undecodable(packed: bytes) -> bytes:
    """One whose text is no UTF-8, while its frame and its members are whole."""
    place = packed.index(b'"content"') + 12
    return packed[:place] + b"\xff" + packed[place + 1 :]


BREAKS = pytest.mark.parametrize("harm", [newer, torn, other, undecodable])


def break_message(admin: Any, conversation: str, position: int, harm: Any) -> None:
    """Harm one message's record."""
    at = key(conversation, "m")
    admin.lset(at, position - 1, harm(admin.lindex(at, position - 1)))


def got(client: Client, path: str) -> Any:
    """What an endpoint of conversations answers."""
    return client.http.get(f"/tidemark/conversations{path}", headers=client.headers())


@BREAKS
def test_a_stored_talk_goes_on_with_a_gap_that_is_told(
    bench: Bench, client: Client, admin: Any, talk: str, harm: Any
) -> None:
    """Once; what the name leads to from then on is whole, and what was stored can still be read by its id."""
    break_message(admin, talk, 2, harm)
    answer = client.chat([user("Three.")], **STORED)
    assert (answer.status_code, answer.headers["x-tidemark-history-gap"]) == (200, "unreadable=1")
    assert answer.headers["x-tidemark-store"] == "ok"
    assert [one["content"] for one in bench.upstream.last.messages] == ["One.", "Two.", "Hello there.", "Three."]
    again = client.chat([user("Four.")], **STORED)
    assert "x-tidemark-history-gap" not in again.headers
    assert [one["content"] for one in bench.upstream.last.messages][-3:] == ["Three.", "Hello there.", "Four."]
    assert [one["state"] for one in got(client, f"/{talk}").json()["data"]].count("unreadable") == 1


def test_a_talk_without_a_name_whose_first_message_is_broken_goes_on(bench: Bench, client: Client, admin: Any) -> None:
    """As another conversation, whose id the answer tells; the turn of the first one is free."""
    talk = client.chat([user("One.")]).headers["x-tidemark-conversation"]
    break_message(admin, talk, 1, torn)
    other_id = ""
    for _ in range(2):
        answer = client.chat([user("Two.")], conversation=talk, history="stored")
        other_id = answer.headers["x-tidemark-conversation"]
        assert (answer.status_code, answer.headers["x-tidemark-history-gap"]) == (200, "unreadable=1")
        assert [one["content"] for one in bench.upstream.last.messages] == ["Hello there.", "Two."]
    assert client.chat([user("Three.")], conversation=other_id, history="stored").status_code == 200
    assert len(bench.upstream.last.messages) == 4


def test_a_call_is_left_out_with_a_result_that_cannot_be_read(bench: Bench, client: Client, admin: Any) -> None:
    """No orphan is forwarded."""
    calls = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    bench.upstream.script = lambda _: whole("", content=None, tool_calls=calls)
    client.chat([user("Look.")], **STORED)
    bench.upstream.script = says("Done.")
    talk = client.chat([{"role": "tool", "tool_call_id": "call_1", "content": "It."}], **STORED).headers
    break_message(admin, talk["x-tidemark-conversation"], 3, torn)
    answer = client.chat([user("On.")], **STORED)
    assert answer.headers["x-tidemark-history-gap"] == "unreadable=2"
    assert [one["content"] for one in bench.upstream.last.messages] == ["Look.", "Done.", "On."]


@BREAKS
def test_what_can_be_read_is_shown_exported_and_found(client: Client, admin: Any, talk: str, harm: Any) -> None:
    """The broken one is told by its place, and no import takes it for a message."""
    break_message(admin, talk, 2, harm)
    shown = got(client, f"/{talk}").json()["data"]
    assert [one["position"] for one in shown if one["state"] == "unreadable"] == [2]
    assert [one["message"]["content"] for one in shown if one["message"]] == ["One.", "Two.", "Hello there."]
    lines = [json.loads(line) for line in got(client, f"/{talk}/export").text.splitlines()]
    assert lines[1]["unreadable"]["position"] == 2
    assert [one["content"] for one in lines if "role" in one] == ["One.", "Two.", "Hello there."]
    assert [one["position"] for one in got(client, f"/{talk}/search?q=two").json()["data"]] == [3]
    data = got(client, f"/{talk}/export").content
    refused = client.http.post("/tidemark/conversations/import?model=small", content=data, headers=client.headers())
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_import")
    context = got(client, f"/{talk}/context")
    assert (context.status_code, context.json()["error"]["code"]) == (503, "unreadable_record")
    assert "at 2" in context.json()["error"]["message"]


def test_a_broken_turn_does_not_stop_a_talk(bench: Bench, client: Client, admin: Any, talk: str) -> None:
    """Its list of turns tells which system messages stand at its beginning: of the newest that can be read."""
    admin.lset(key(talk, "t"), -1, b"\x63nonsense")
    assert client.chat([user("Three.")], **STORED).status_code == 200
    assert len(bench.upstream.last.messages) == 5
    assert got(client, f"/{talk}/export").status_code == 200


@pytest.mark.parametrize("count", ["", "many", "-", "1e999", "7", "3.5"])
def test_a_count_that_is_none_is_counted_anew(bench: Bench, client: Client, admin: Any, talk: str, count: str) -> None:
    """By the messages; the talk goes on and none of them is lost, and the list shows it."""
    admin.hset(key(talk, "c"), "count", count)
    assert [one["messages"] for one in got(client, "").json()["data"]] == [4]
    answer = client.chat([user("Three.")], **STORED)
    assert (answer.status_code, answer.headers["x-tidemark-store"]) == (200, "ok")
    assert len(bench.upstream.last.messages) == 5
    assert got(client, f"/{talk}").json()["messages"] == 6
    assert admin.hget(key(talk, "c"), "count") == b"6"


@pytest.mark.parametrize("field", ["tokens", "turns", "created", "updated", "summaries", "base"])
def test_a_number_that_is_none_hides_nothing(client: Client, admin: Any, talk: str, field: str) -> None:
    """The list and the conversation are shown without it."""
    admin.hset(key(talk, "c"), field, "\xff many")
    if field != "base":
        assert [one["id"] for one in got(client, "").json()["data"]] == [talk]
    assert client.chat([user("Another talk.")]).status_code == 200


def test_one_broken_record_hides_no_other_of_a_list(client: Client, admin: Any) -> None:
    """It is told by its id, and a page goes on behind it."""
    ids = [client.chat([user(f"Talk {number}.")]).headers["x-tidemark-conversation"] for number in range(3)]
    admin.delete(key(ids[1], "c"))
    admin.set(key(ids[1], "c"), "no record")
    listed = got(client, "").json()
    assert {one["id"] for one in listed["data"]} == {ids[0], ids[2]}
    assert listed["unreadable"] == [ids[1]]
    assert client.chat([user("Another talk.")]).headers["x-tidemark-store"] == "ok"
    admin.delete(key(ids[1], "c"))


async def test_one_broken_record_hides_no_other_of_the_operators_list(tmp_path: Path) -> None:
    """Nor does an entry that is no id. The list is everybody's, so the store is the test's own."""
    events: list[Event] = []
    with EmbeddedValkey(tmp_path / "store") as server, redis.Redis.from_url(server.url) as admin:
        store = RedisStore(
            server.url, Codec(), ttl_seconds=100, recall_timeout_seconds=5, record_timeout_seconds=5, emit=events.append
        )
        reading = reader(store)
        try:
            sound, broken = [await store.record(turn_of("lists", [asked(text), assistant("a")])) for text in "xy"]
            await store.listing.aclose()  # what waits is written
            admin.zadd("tm:i:all", {b"\xff no id": 4_000_000_000})
            admin.delete(key(broken, "c"))
            admin.set(key(broken, "c"), "no record")
            listed = await reading.conversations(None, Page(200))
        finally:
            await store.close()
            await asyncio.sleep(0)  # the connection's own end
    assert [record.id for record in listed.conversations] == [sound]
    assert listed.unreadable == (broken,)
    assert [(one.conversation, one.record) for one in events if isinstance(one, RecordBroken)] == [
        (broken, "conversation")
    ]


def test_a_broken_record_is_logged_with_its_place(client: Client, admin: Any, talk: str) -> None:
    """And counted."""
    break_message(admin, talk, 2, torn)
    got(client, f"/{talk}")
    metrics = client.http.get("/metrics").text
    assert "tidemark_store_broken_records_total 1.0" in metrics


def test_a_record_that_a_turn_mends_is_told_once(client: Client, admin: Any, talk: str) -> None:
    """A wrong number of messages: the answer is right, and the log and the metric say that something was damaged."""
    admin.hset(key(talk, "c"), "count", "many")
    for text in ("Three.", "Four."):
        assert client.chat([user(text)], **STORED).status_code == 200
    assert admin.hget(key(talk, "c"), "count") == b"8"
    assert "tidemark_store_broken_records_total 1.0" in client.http.get("/metrics").text


async def test_a_conversation_whose_hashes_were_cut_is_told_when_it_is_whole_again(tmp_path: Path) -> None:
    """The client sends all of it again, so nothing is lost."""
    events: list[Event] = []
    with EmbeddedValkey(tmp_path / "store") as server, redis.Redis.from_url(server.url) as admin:
        store = RedisStore(
            server.url, Codec(), ttl_seconds=100, recall_timeout_seconds=5, record_timeout_seconds=5, emit=events.append
        )
        try:
            said = [asked("x"), assistant("a")]
            id_ = await store.record(turn_of("cut", said))
            admin.set(key(id_, "h"), admin.get(key(id_, "h"))[:-5])
            for _ in range(2):
                said = [*said, asked("y"), assistant("b")]
                assert await store.record(turn_of("cut", said)) == id_
        finally:
            await store.close()
            await asyncio.sleep(0)
    assert [one.conversation for one in events if isinstance(one, RecordBroken)] == [id_]


@pytest.mark.parametrize("dialect", build_dialects().values(), ids=lambda dialect: dialect.name)
def test_bytes_that_are_no_utf_8_are_a_message_of_no_dialect(dialect: Dialect) -> None:
    """So they are an unreadable record, also for the check of the store, and no request fails over them."""
    assert dialect.is_message(b'{"role":"user","content":"a"}')
    assert not dialect.is_message(b'{"role":"user","content":"\xff"}')
    assert shapes(b'{"role":"user","content":"\xff"}')
