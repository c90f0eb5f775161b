"""The log of requests: each one that ended is in it, whatever became of it, and no text of any."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.features.tenants.test_erasure import erase, owner_for
from tests.request.conftest import WINDOW, Bench, Client, benched
from tests.request.talk import history, user
from tests.support.fresh_stores import fresh_store
from tests.support.scripted import refuses, streamed
from tests.support.waiting import wait_until
from tidemark.store.embedded.server import EmbeddedValkey

KEY = "ab" * 32
STREAM = "tm:{requests}:s"


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server of the test's own: the log is everybody's."""
    with fresh_store() as server:
        yield server


@pytest.fixture
def bench(valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Bench]:
    """A bench before that server."""
    with benched(valkey.url, tmp_path) as made:
        yield made


def logged(client: Client, **asked: str) -> list[dict[str, Any]]:
    """The requests of the log, as the operator on this machine gets them."""
    answer = client.http.get("/tidemark/requests", params=asked)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["data"])


def test_every_request_is_in_the_log(bench: Bench) -> None:
    """Answered, compacted, refused, failed and only carried ones, the newest first."""
    client = bench.client("mine", config="server: {{max_body_mb: 1}}\n" + WINDOW)
    client.http.headers["user-agent"] = "claude-cli/2.1.0 (external, cli)"
    answer = client.chat([user("Hello.")])
    client.chat(history(12), summarize="force")
    client.chat([user("x")], model="nowhere")
    client.post(b"{")
    client.post(b" " * 1_100_000)
    bench.upstream.script = refuses(502, "It is away.")
    client.chat([user("And now?")])
    client.http.post("/v1/embeddings", json={"model": "small", "input": "x"}, headers=client.headers())
    requests = logged(client)
    assert [(one["status"], one["kind"], one["code"]) for one in requests] == [
        (502, "provider_error", None),
        (502, "provider_error", None),
        (413, "refused", "request_too_large"),
        (400, "refused", "invalid_json"),
        (404, "refused", "model_not_found"),
        (200, "forced", None),
        (200, "as_is", None),
    ]
    assert [one["path"] for one in requests[:2]] == ["/v1/embeddings", "/v1/chat/completions"]
    first, forced = requests[-1], requests[-2]
    assert {one["client"] for one in requests} == {"claude-cli/2.1.0"}
    assert {one["tenant"] for one in requests} == {owner_for("mine")}
    assert first["conversation"] == answer.headers["x-tidemark-conversation"]
    assert first["tokens_before"] == first["tokens_after"] == int(answer.headers["x-tidemark-tokens-before"])
    assert forced["tokens_before"] > forced["tokens_after"] > 0
    assert forced["summarized_messages"] > 0
    assert first["first_byte_seconds"] <= first["seconds"]


def test_a_request_without_a_key_that_is_accepted_is_in_the_log(bench: Bench) -> None:
    """Nobody owns it."""
    client = bench.client("unknown", config="auth: {{mode: keys}}\n" + WINDOW, environ={"TIDEMARK_SECRET": "s" * 40})
    assert client.chat([user("Hello.")]).status_code == 401
    (refused,) = logged(client)
    assert (refused["status"], refused["kind"], refused["tenant"], refused["model"]) == (401, "refused", "", "")


def test_a_request_beyond_the_limits_is_in_the_log(bench: Bench) -> None:
    """Nothing is known of it, since it was refused before that; further ones of a minute are counted with it."""
    client, free = bench.client("mine", config=WINDOW + "limits: {{max_streams: 1}}\n"), threading.Event()
    bench.upstream.script = lambda _: replace(streamed("Hello."), waits=[free])
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.post, {"model": "small", "messages": [user("Hello.")], "stream": True})
        wait_until(lambda: bench.upstream.received)
        assert [client.chat([user("Hello.")]).status_code for _ in range(3)] == [503] * 3
        free.set()
        assert answer.result().status_code == 200
    assert [(one["status"], one["kind"], one["code"], one["count"]) for one in logged(client)] == [
        (200, "as_is", None, 1),
        (503, "refused", "overloaded", 1),
    ]


def test_a_page_ends_where_the_next_one_begins(bench: Bench) -> None:
    """With and without conditions; a cursor of another list is refused."""
    client = bench.client("mine")
    for number in range(7):
        client.chat([user(f"Hello {number}.")], model="small" if number % 2 else "nowhere")
    whole = [one["id"] for one in logged(client)]
    assert len({*whole}) == 7
    for asked in ({}, {"model": "small"}, {"kind": "refused"}, {"status": "4xx"}, {"tenant": owner_for("mine")[:8]}):
        pages, cursor = list[str](), dict[str, str]()
        while True:
            answer = client.http.get("/tidemark/requests", params={"limit": "2", **asked, **cursor}).json()
            pages += [one["id"] for one in answer["data"]]
            if answer["next_cursor"] is None:
                break
            cursor = {"cursor": answer["next_cursor"]}
        assert pages == [one["id"] for one in logged(client, **asked)]
        assert len(pages) == {"model": 3, "kind": 4, "status": 4}.get(next(iter(asked), ""), 7)
    assert client.http.get("/tidemark/requests", params={"cursor": "x"}).status_code == 400


def test_workers_share_the_log(bench: Bench) -> None:
    """Each writes its own; their requests stand in the order in which they ended."""
    one, other = bench.client("mine"), bench.client("mine")
    for number in range(4):
        (one, other)[number % 2].chat([user("Hello.")], conversation=f"talk-{number}")
    assert len(logged(one)) in (2, 4)  # the other worker writes within two seconds
    logged(other)
    both = logged(one)
    assert len(both) == 4
    assert [entry["at"] for entry in both] == sorted((entry["at"] for entry in both), reverse=True)


def test_nothing_of_a_request_leads_to_it_if_nothing_is_stored(bench: Bench) -> None:
    """It has its figures only: no conversation, and no hash of a message."""
    client = bench.client("mine")
    client.chat([user("Hello.")], keep="none")
    (entry,) = logged(client)
    assert (entry["status"], entry["conversation"]) == (200, None)
    assert entry["tokens_before"] > 0


def test_no_name_that_a_client_chooses_stands_unsealed(bench: Bench, valkey: EmbeddedValkey) -> None:
    """With a master key; the log is read all the same."""
    client = bench.client("mine", environ={"TIDEMARK_ENCRYPTION_KEY": KEY})
    client.http.headers["user-agent"] = "zebra/1.0"
    client.chat([user("Hello.")], model="walrus")
    assert [one["model"] for one in logged(client)] == ["walrus"]
    with redis.Redis.from_url(valkey.url) as admin:
        stored = repr(admin.xrange(STREAM))
    assert "walrus" not in stored
    assert "zebra" not in stored
    assert owner_for("mine") in stored


@pytest.mark.parametrize("environ", [{}, {"TIDEMARK_ENCRYPTION_KEY": KEY}])
def test_an_erased_tenant_leaves_the_log(bench: Bench, valkey: EmbeddedValkey, environ: dict[str, str]) -> None:
    """Also with what its worker has not written yet, and one of whom nothing else is stored; others stay."""
    client = bench.client("mine", environ=environ)
    other = Client(client.http, "theirs")
    client.chat([user("x")], model="nowhere")
    other.chat([user("x")], model="elsewhere")
    assert len(logged(client)) == 2
    client.chat([user("y")], model="late")
    certificate = erase(client, owner_for("mine"))
    assert certificate.status_code == 200, certificate.text
    assert [one["model"] for one in logged(client)] == ["elsewhere"]
    with redis.Redis.from_url(valkey.url) as admin:
        assert owner_for("mine") not in repr(admin.xrange(STREAM))
        assert admin.get("tm:{requests}:n") == b"1"
    client.chat([user("z")], model="later")
    assert [one["model"] for one in logged(client)] == ["later", "elsewhere"]


def test_the_log_can_be_left_out(bench: Bench, valkey: EmbeddedValkey) -> None:
    """With no entries nothing is stored of a request."""
    client = bench.client("mine", config="request_log: {{entries: 0}}\n" + WINDOW)
    client.chat([user("Hello.")])
    assert logged(client) == []
    with redis.Redis.from_url(valkey.url) as admin:
        assert admin.keys("tm:{requests}:*") == []
