"""Responses that the upstream makes in the background: the poll that finds one finished completes its turn."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from tests.request.conftest import Bench, Client
from tests.support.answers import SSE_HEADERS, Answer
from tests.support.keeping import items, response

INSTRUCTIONS = "Answer as a harbour master would."


@dataclass
class Background:
    """An upstream that takes a while: its responses are finished once ``finish`` was called."""

    bench: Bench

    def finish(self, text: str) -> None:
        """Finish every response with this text."""
        for body in self.kept.values():
            body |= {"status": "completed", "output": items(text, 1)}

    def forget(self) -> None:
        """Forget every response."""
        self.kept.clear()

    @property
    def kept(self) -> dict[str, Any]:
        """The responses by their ids."""
        kept = self.bench.upstream.others.kept
        assert kept is not None
        return kept


@pytest.fixture
def upstream(bench: Bench) -> Background:
    """The bench's upstream."""
    numbers = count(1)
    bench.upstream.script = lambda _: Answer(
        [json.dumps(response(next(numbers), [], status="queued", background=True)).encode()]
    )
    return Background(bench)


def begin(client: Client, text: str, **asked: str) -> tuple[str, str]:
    """Begin a response in the background; return its id and its conversation's."""
    body = {"model": "small", "input": text, "background": True, "instructions": INSTRUCTIONS}
    answer = client.http.post("/v1/responses", json=body, headers=client.headers(**asked))
    assert answer.json()["status"] == "queued", answer.text
    return answer.json()["id"], answer.headers["x-tidemark-conversation"]


def poll(client: Client, name: str) -> dict[str, Any]:
    """Ask for a response."""
    answer = client.http.get(f"/v1/responses/{name}", headers=client.headers())
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def messages(client: Client, conversation: str) -> list[str]:
    """The roles of a stored conversation."""
    page = client.http.get(f"/tidemark/conversations/{conversation}", headers=client.headers()).json()
    return [entry["message"]["role"] for entry in page["data"]]


@pytest.mark.parametrize("name", [None, "harbour"])
def test_a_poll_that_finds_the_answer_completes_the_conversation(
    bench: Bench, client: Client, upstream: Background, name: str | None
) -> None:
    """Once, however often the client asks; named conversations, too."""
    identifier, conversation = begin(client, "When is high water?", **({"conversation": name} if name else {}))
    assert poll(client, identifier)["status"] == "queued"
    bench.settle()
    assert messages(client, conversation) == ["user"]
    upstream.finish("At seven.")
    assert poll(client, identifier)["output"][0]["content"][0]["text"] == "At seven."
    polls = len(bench.upstream.received)
    assert poll(client, identifier)["status"] == "completed"
    assert len(bench.upstream.received) == polls, "the second answer is Tidemark's own"
    assert messages(client, conversation) == ["user", "assistant"]


def test_many_polls_at_once_store_one_answer(bench: Bench, client: Client, upstream: Background) -> None:
    """As agents poll from several places."""
    identifier, conversation = begin(client, "When is high water?")
    upstream.finish("At seven.")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: poll(client, identifier)["status"], range(16)))
    assert answers == ["completed"] * 16
    bench.settle()
    assert messages(client, conversation) == ["user", "assistant"]


def test_a_polled_answer_can_be_gone_on_from(bench: Bench, client: Client, upstream: Background) -> None:
    """The conversation goes on behind the answer, and stays one."""
    identifier, conversation = begin(client, "When is high water?")
    upstream.finish("At seven.")
    poll(client, identifier)
    body = {"model": "small", "input": "And low water?", "previous_response_id": identifier, "background": True}
    answer = client.http.post("/v1/responses", json=body, headers=client.headers())
    assert answer.headers["x-tidemark-conversation"] == conversation
    bench.settle()
    assert messages(client, conversation)[:3] == ["user", "assistant", "user"]


def test_an_answer_that_is_gone_changes_nothing(bench: Bench, client: Client, upstream: Background) -> None:
    """The upstream has forgotten it."""
    identifier, conversation = begin(client, "When is high water?")
    upstream.forget()
    assert client.http.get(f"/v1/responses/{identifier}", headers=client.headers()).status_code == 404
    bench.settle()
    assert messages(client, conversation) == ["user"]


def test_somebody_elses_poll_stores_nothing(bench: Bench, client: Client, upstream: Background) -> None:
    """For them the response does not exist in the store."""
    identifier, conversation = begin(client, "When is high water?")
    upstream.finish("At seven.")
    other = {"authorization": "Bearer another-key-altogether"}
    client.http.get(f"/v1/responses/{identifier}", headers=other)
    bench.settle()
    assert messages(client, conversation) == ["user"]


def test_a_stream_that_its_client_leaves_is_completed_by_a_poll(
    bench: Bench, client: Client, upstream: Background
) -> None:
    """The upstream goes on in the background; the first event has the id."""
    began = response(7, [], status="in_progress", background=True)
    event = {"type": "response.created", "sequence_number": 0, "response": began}
    never = threading.Event()
    pieces = [b"event: response.created\ndata: " + json.dumps(event).encode() + b"\n\n", b": more\n\n"]
    bench.upstream.script = lambda _: Answer(pieces, headers=list(SSE_HEADERS), waits=[never])
    body = {"model": "small", "input": "When is high water?", "background": True, "stream": True}
    with client.http.stream("POST", "/v1/responses", json=body, headers=client.headers()) as answer:
        conversation = answer.headers["x-tidemark-conversation"]
        assert b"resp_7" in next(answer.iter_raw())
    never.set()
    bench.settle()
    upstream.kept["resp_7"] = {**began, "input_items": []}
    upstream.finish("At seven.")
    assert poll(client, "resp_7")["status"] == "completed"
    assert messages(client, conversation) == ["user", "assistant"]
