"""What a model wrote reaches the next one: every statement, byte for byte, if it kept to the space that it was told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.request.faithful import (
    FaithfulSummary,
    anthropic_turns,
    chat_turns,
    is_summary_call,
    names,
    obedient,
    response_items,
    summaries,
    talk,
)
from tests.support.scripted import Received

BOUNDS = (256, 500, 1000, 2000)
Send = Callable[[Client, str], httpx.Response]


def ask_chat(client: Client, name: str) -> httpx.Response:
    """Force a summary of a talk in chat completions."""
    return client.chat(chat_turns(talk(name)["messages"]), summarize="force", retention_tokens="1")


def ask_responses(client: Client, name: str) -> httpx.Response:
    """Force one in the Responses API."""
    body = {"model": "small", "input": response_items(talk(name)["messages"]), "store": False}
    headers = client.headers(summarize="force", retention_tokens="1")
    return client.http.post("/v1/responses", content=json.dumps(body).encode(), headers=headers)


def ask_messages(client: Client, name: str) -> httpx.Response:
    """Force one in Anthropic's API."""
    body = {"model": "small", "max_tokens": 100, "messages": anthropic_turns(talk(name)["messages"])}
    headers = client.headers(summarize="force", retention_tokens="1") | {"anthropic-version": "2023-06-01"}
    return client.http.post("/v1/messages", content=json.dumps(body).encode(), headers=headers)


ASK: dict[str, Send] = {"chat": ask_chat, "responses": ask_responses, "messages": ask_messages}


CASES = [*(("chat", bound) for bound in BOUNDS), ("responses", 500), ("messages", 500)]
"""A dialect changes the form of a request, and a bound what stands in it."""


def texts_in(value: Any) -> list[str]:
    """Return all texts of a JSON value."""
    if isinstance(value, str):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for inner in values for text in texts_in(inner)]


def model_text(request: Received, summary: FaithfulSummary) -> str:
    """Return what the obedient model wrote for a call."""
    pieces = [piece for piece in obedient(summary)(request).pieces if isinstance(piece, bytes)]
    told: str = json.loads(b"".join(pieces))["choices"][0]["message"]["content"]
    return told


def client_with(bench: Bench, key: str, strategy: str, bound: int) -> Client:
    """A client of a Tidemark whose summaries have a bound; another key is another tenant."""
    return bench.client(key, window=60_000, strategy=strategy, more=f", max_summary_tokens: {bound}")


@pytest.mark.parametrize(("dialect", "bound"), CASES)
@pytest.mark.parametrize("strategy", ["llm", "hybrid"])
def test_every_statement_of_a_model_reaches_the_upstream(
    bench: Bench, request: pytest.FixtureRequest, strategy: str, bound: int, dialect: str
) -> None:
    """50 faithful summaries of 25 talks in seven languages, 17 of them in other dialects: nothing is dropped or cut."""
    client = client_with(bench, request.node.nodeid, strategy, bound)
    arrived = 0
    chosen = summaries()[:: 1 if dialect == "chat" else 3]  # the other dialects differ in the request's form alone
    for number, summary in enumerate(chosen):
        client.key = f"{request.node.nodeid} {number}"
        bench.upstream.received.clear()
        bench.upstream.script = obedient(summary)
        got = ASK[dialect](client, summary.talk)
        where = f"{summary.talk}, {summary.style}"
        assert got.status_code == 200, (where, got.text)
        (asked,) = [one for one in bench.upstream.received if is_summary_call(one)]
        text = model_text(asked, summary)
        forwarded = [one for one in bench.upstream.received if not is_summary_call(one)][-1]
        (message,) = [one for one in texts_in(forwarded.json) if "Summary of earlier turns" in one]
        assert text in message, where
        assert got.headers["x-tidemark-strategy"] == strategy, where
        assert "x-tidemark-warning" not in got.headers, (where, got.headers["x-tidemark-warning"])
        assert "statements" not in got.headers.get("x-tidemark-kept", ""), where
        if strategy == "llm":
            assert message.partition("<<<\n")[2].rpartition("\n>>>")[0] == text, where
        arrived += sum(statement in text for statement in summary.statements)
    said = sum(len(summary.statements) for summary in chosen)
    assert arrived >= {256: 0.2, 500: 0.55, 1000: 0.95, 2000: 0.95}[bound] * said


def test_the_corpus_has_the_languages_and_kinds_that_it_should_have() -> None:
    """At least 20 talks in six languages and ten kinds."""
    talks = [talk(name) for name in names()]
    assert len(talks) >= 20
    assert len({one["language"] for one in talks}) >= 6
    assert len({one["kind"] for one in talks}) >= 10
