"""A turn of stored history that cannot be written is never acknowledged: its client sees an error, and can go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.request.conftest import Bench, Client
from tests.request.talk import assistant, user
from tests.request.wire.test_streaming import events
from tests.support.scripted import Answer, Received, says, streamed, whole
from tests.support.waiting import wait_until
from tidemark.store.embedded.server import EmbeddedValkey

STORED = {"conversation": "talk", "history": "stored"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A store of the test's own, which it may stop and kill."""
    with EmbeddedValkey(tmp_path / "own") as running:
        yield running
        if running.pid is not None:
            os.kill(running.pid, signal.SIGCONT)


@pytest.fixture
def client(bench: Bench, server: EmbeddedValkey, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark on that store; one turn of the talk is stored."""
    made = bench.client(request.node.nodeid, store=server.url)
    assert made.chat([user("One.")], **STORED).status_code == 200
    return made


def meanwhile(bench: Bench, server: EmbeddedValkey, number: int) -> None:
    """Between the next question and its answer the store gets a signal."""

    def script(request: Received) -> Answer:
        assert server.pid is not None
        os.kill(server.pid, number)
        bench.upstream.script = says("Hello there.")
        return streamed("It is blue.") if request.json.get("stream") else whole("It is blue.")

    bench.upstream.script = script


def ask(client: Client, text: str, *, stream: bool, **headers: str) -> httpx.Response:
    """One turn."""
    body = {"model": "small", "messages": [user(text)], "max_tokens": 100, "stream": stream}
    return client.post(body, **headers)


def gone_on(client: Client, text: str) -> None:
    """Wait until the talk goes on: no conflict, and no store that is not there."""
    wait_until(lambda: client.chat([user(text)], **STORED).status_code == 200, 20)


def error_of(got: httpx.Response, *, stream: bool) -> Any:
    """The error that the client sees: before a stream's last byte, or as the answer."""
    if stream:
        assert "[DONE]" not in got.text
        return events(got.content)[-1]["error"]
    assert got.status_code == 503
    assert got.headers["retry-after"] == "1"
    assert got.headers["x-tidemark-store"] == "degraded"
    return got.json()["error"]


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_turn_that_could_not_be_written_ends_with_an_error(
    bench: Bench,
    client: Client,
    server: EmbeddedValkey,
    *,
    stream: bool,
    number: signal.Signals,
) -> None:
    """The same question sent again is answered, stored, and stands once in what the model gets."""
    meanwhile(bench, server, number)
    got = ask(client, "What colour?", stream=stream, **STORED)
    assert error_of(got, stream=stream)["code"] == "turn_not_stored"
    if number == signal.SIGSTOP:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGCONT)
    else:
        server.stop()
        server.start()
    gone_on(client, "What colour?")
    assert [one["content"] for one in bench.upstream.last.messages] == ["One.", "Hello there.", "What colour?"]
    gone_on(client, "Sure?")
    assert [one["content"] for one in bench.upstream.last.messages][2:] == ["What colour?", "Hello there.", "Sure?"]


def test_a_store_that_is_back_in_time_costs_the_client_nothing(
    bench: Bench, client: Client, server: EmbeddedValkey
) -> None:
    """The write is tried for some seconds, so a short outage is no error."""

    def script(_: Received) -> Answer:
        server.stop()
        server.start()
        return streamed("It is blue.")

    bench.upstream.script = script
    got = ask(client, "What colour?", stream=True, **STORED)
    assert got.text.rstrip().endswith("[DONE]")
    bench.upstream.script = says("Hello there.")
    gone_on(client, "Sure?")
    assert bench.upstream.last.messages[2]["content"] == "What colour?"
    assert "blue" in bench.upstream.last.messages[3]["content"]


def test_a_refused_write_is_an_error_at_once(bench: Bench, client: Client, server: EmbeddedValkey) -> None:
    """The store answers, and will not take the turn however often it is asked."""
    with redis.Redis.from_url(server.url) as admin:

        def script(_: Received) -> Answer:
            admin.config_set("maxmemory", 1)
            return whole("It is blue.")

        bench.upstream.script = script
        got = ask(client, "What colour?", stream=False, **STORED)
        assert error_of(got, stream=False)["code"] == "turn_not_stored"
        assert len(bench.upstream.received) == 2
        admin.config_set("maxmemory", 0)
    bench.upstream.script = says("Hello there.")
    gone_on(client, "What colour?")
    assert [one["content"] for one in bench.upstream.last.messages] == ["One.", "Hello there.", "What colour?"]


def test_a_client_that_sends_all_is_answered_and_told_that_nothing_was_stored(
    bench: Bench, client: Client, server: EmbeddedValkey
) -> None:
    """Its next turn brings this one in, so the answer is whole; the header tells the truth."""
    meanwhile(bench, server, signal.SIGSTOP)
    said = [user("A talk of its own.")]
    got = client.chat(said)
    assert (got.status_code, got.headers["x-tidemark-store"]) == (200, "degraded")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGCONT)
    said += [assistant("It is blue."), user("And now?")]
    wait_until(lambda: client.chat(said).headers["x-tidemark-store"] == "ok", 20)


def test_an_answer_that_cannot_be_read_is_no_turn_of_a_stored_history(bench: Bench, client: Client) -> None:
    """An upstream that compresses although it was asked not to: the next request would lack the answer."""
    packed = Answer(
        [b"\x1f\x8b nobody's"], headers=[(b"content-type", b"text/event-stream"), (b"content-encoding", b"gzip")]
    )
    bench.upstream.script = lambda _: packed
    got = ask(client, "What colour?", stream=True, **STORED)
    assert (got.status_code, got.json()["error"]["code"]) == (503, "turn_not_stored")
    bench.upstream.script = says("Hello there.")
    gone_on(client, "What colour?")
    assert [one["content"] for one in bench.upstream.last.messages] == ["One.", "Hello there.", "What colour?"]


def test_a_client_that_left_finds_its_turn_when_the_store_is_back(
    bench: Bench, client: Client, server: EmbeddedValkey
) -> None:
    """Many clients do not wait for the last event; nobody can be told, so the turn is kept and written later."""

    def script(_: Received) -> Answer:
        server.stop()
        answer = streamed("It is blue.")
        answer.pieces = [*answer.pieces[:-1], 0.5, answer.pieces[-1]]
        return answer

    bench.upstream.script = script
    body = {"model": "small", "messages": [user("What colour?")], "max_tokens": 100, "stream": True}
    with client.http.stream("POST", "/v1/chat/completions", json=body, headers=client.headers(**STORED)) as response:
        for line in response.iter_lines():
            if "stop" in line:
                break
    bench.upstream.script = says("Hello there.")
    server.start()
    gone_on(client, "Sure?")
    said = [one["content"].strip() for one in bench.upstream.last.messages]
    assert said == ["One.", "Hello there.", "What colour?", "It is blue.", "Sure?"]
