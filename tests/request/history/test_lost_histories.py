"""A store that has lost a stored conversation does not begin it anew without a word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from tests.request.conftest import Bench, Client
from tests.request.talk import system, user
from tests.support.fresh_stores import fresh_store
from tests.support.keeping import TWO_UPSTREAMS
from tests.support.scripted import error
from tests.support.waiting import wait_until
from tidemark.store.embedded.server import EmbeddedValkey

STORED = {"history": "stored"}
GAP, WARNING = "x-tidemark-history-gap", "x-tidemark-warning"


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A store that a test may empty."""
    with fresh_store() as server:
        yield server


@pytest.fixture
def admin(own_store: EmbeddedValkey) -> Iterator[redis.Redis]:
    """The store as its operator sees it."""
    with redis.Redis.from_url(own_store.url) as connection:
        yield connection


@pytest.fixture
def client(bench: Bench, own_store: EmbeddedValkey) -> Client:
    """A client with a stored conversation of four messages."""
    client = bench.client("losing", store=own_store.url)
    say(client, "One?", before=[system("Be brief.")])
    say(client, "Two?")
    return client


def say(
    client: Client, text: str, *, before: list[dict[str, str]] | None = None, history: str = "stored"
) -> httpx.Response:
    """Send one new message."""
    return client.chat([*(before or ()), user(text)], conversation="talk", history=history)


def keys_of(admin: redis.Redis, kind: str) -> list[bytes]:
    """The keys of one kind of the only conversation."""
    return list(admin.scan_iter(match=f"tm:{{*}}:{kind}*"))


def test_an_emptied_store_is_told_by_the_request_and_by_readiness(client: Client, admin: redis.Redis) -> None:
    """Nothing of the conversation is left, and this worker knows that there was one."""
    assert "replaced" not in client.http.get("/health/readiness").json()
    admin.flushall()
    got = say(client, "Three?")
    assert got.headers[GAP] == "lost=unknown"
    assert "lost earlier messages" in got.headers[WARNING]
    wait_until(lambda: "replaced" in client.http.get("/health/readiness").json())
    later = say(client, "Four?")
    assert GAP not in later.headers
    assert WARNING not in later.headers


def test_a_conversation_that_never_was_is_not_told_as_lost(bench: Bench, client: Client, admin: redis.Redis) -> None:
    """Its only turn failed before the store was emptied."""
    usual = bench.upstream.script
    bench.upstream.script = lambda _: error(500, "Down.")
    assert client.chat([user("One?")], conversation="other", **STORED).status_code == 500
    admin.flushall()
    bench.upstream.script = usual
    assert GAP not in client.chat([user("One?")], conversation="other", **STORED).headers


def test_a_loss_is_told_until_a_turn_was_answered(bench: Bench, client: Client, admin: redis.Redis) -> None:
    """A client may not look at the headers of a refusal that it tries again."""
    admin.flushall()
    usual = bench.upstream.script
    bench.upstream.script = lambda _: error(500, "Down.")
    assert say(client, "Three?").status_code == 500
    bench.upstream.script = usual
    assert say(client, "Three?").headers[GAP] == "lost=unknown"
    assert GAP not in say(client, "Four?").headers


@pytest.mark.parametrize(("kinds", "gap"), [("mh", "lost=4"), ("c", "lost=unknown"), ("chmtynd", "lost=unknown")])
def test_a_conversation_of_which_parts_are_gone_is_told_by_another_worker_too(
    bench: Bench, client: Client, admin: redis.Redis, *, kinds: str, gap: str
) -> None:
    """A store that evicts takes keys one by one; what is left tells."""
    bench.settle()
    client.http.get("/tidemark/conversations/talk", headers=client.headers())  # the list has the name by now
    for kind in kinds:
        admin.delete(*keys_of(admin, kind))
    other = bench.client("losing", store=f"unix://{admin.get_connection_kwargs()['path']}")
    got = say(other, "Three?")
    assert got.headers[GAP] == gap
    assert "lost earlier messages" in got.headers[WARNING]


@pytest.mark.parametrize(("kind", "gap"), [("y", "system=1"), ("t", "system=unknown")])
def test_lost_system_messages_are_told(bench: Bench, client: Client, admin: redis.Redis, kind: str, gap: str) -> None:
    """They are keys of their own. A request that brings its own needs none, and they are stored again."""
    admin.delete(*keys_of(admin, kind))
    assert GAP not in say(client, "Three?", before=[system("Be brief.")]).headers
    assert GAP not in say(client, "Three and a half?").headers
    assert bench.upstream.last.messages[0] == system("Be brief.")
    admin.delete(*keys_of(admin, kind))
    got = say(client, "Four?")
    assert got.headers[GAP] == gap
    assert "lost earlier messages" in got.headers[WARNING]


def test_a_client_that_knows_of_more_messages_is_refused(bench: Bench, client: Client, admin: redis.Redis) -> None:
    """Nothing is forwarded or stored, and the turn is free again."""
    before = len(bench.upstream.received)
    refused = say(client, "Three?", history="stored; known=5")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "history_lost")
    assert len(bench.upstream.received) == before
    assert say(client, "Three?", history="stored; known=4").status_code == 200
    admin.flushall()
    assert say(client, "Four?", history="stored;known=6").status_code == 409
    assert say(client, "Four?", history="stored; known=0").status_code == 200


@pytest.mark.parametrize("value", ["stored; known=", "stored; known=-1", "stored; all=3", "client; known=x"])
def test_a_number_that_is_none_is_refused(client: Client, value: str) -> None:
    """With the header's name."""
    refused = say(client, "Three?", history=value)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_header")


def test_what_was_never_there_or_was_forgotten_is_no_loss(bench: Bench, client: Client) -> None:
    """A new name begins a conversation, and so does the name of a deleted one."""
    assert GAP not in client.chat([user("Hi.")], conversation="another", **STORED).headers
    gone = client.http.delete("/tidemark/conversations/talk", headers=client.headers())
    assert gone.status_code in (200, 204)
    begun = say(client, "Three?")
    assert GAP not in begun.headers
    assert len(bench.upstream.last.messages) == 1


def test_the_same_name_at_another_upstream_is_no_loss(bench: Bench) -> None:
    """A name is one credential's at one upstream; at another one it begins a conversation of its own."""
    client = bench.client("elsewhere", config=TWO_UPSTREAMS)
    for model in ("small", "other"):
        assert client.chat([user("Hi.")], model=model, conversation="talk", **STORED).headers.get(GAP) is None
