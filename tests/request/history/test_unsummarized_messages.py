"""A turn of a stored history reads what follows the summary and nothing older (FR-4.3.1)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, long, system, user
from tests.support.scripted import Answer, Received, error, says
from tidemark.core.conversation.records import MessageRecord
from tidemark.store.codec import Codec
from tidemark.worker.dialects import build_dialects

STORED = {"history": "stored"}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
COMPARED = ("action", "tokens-before", "tokens-after", "summarized", "limit", "history-gap", "warning")


class CountingCodec(Codec):
    """The usual codec, which also counts the messages that are read."""

    read = 0

    def readable_message(self, packed: bytes, position: int, chain_hash: bytes, family: str) -> MessageRecord:
        """Count one message more."""
        self.read += 1
        return super().readable_message(packed, position, chain_hash, family)


def counting_codec() -> CountingCodec:
    """A codec as a worker's own."""
    checks = [dialect.is_message for dialect in build_dialects().values()]
    return CountingCodec(is_message=lambda raw: any(check(raw) for check in checks))


def imported(client: Client, name: str, count: int) -> None:
    """Store a conversation of so many messages, whose next turn makes a summary."""
    client.chat([user("Hello.")])  # an upstream has answered this credential, so it may import
    lines = [
        json.dumps({"role": "assistant" if number % 2 else "user", "content": long(number, 40)})
        for number in range(count)
    ]
    got = client.http.post(
        "/tidemark/conversations/import",
        params={"model": "small", "name": name},
        content="\n".join(lines),
        headers=client.headers(),
    )
    assert got.status_code == 201, got.text


def send(client: Client, dialect: str, messages: list[Said], **controls: str) -> httpx.Response:
    """A request in any dialect."""
    member = "input" if dialect == "responses" else "messages"
    limit = "max_output_tokens" if dialect == "responses" else "max_tokens"
    body = {"model": "small", member: messages, limit: 100}
    got = client.http.post(PATHS[dialect], json=body, headers=client.headers(**controls))
    assert got.status_code == 200, got.text
    return got


def answered(dialect: str, got: httpx.Response) -> list[Said]:
    """The answer, as a client sends it back."""
    body = got.json()
    if dialect == "chat":
        return [{"role": "assistant", "content": body["choices"][0]["message"]["content"]}]
    if dialect == "responses":
        return list(body["output"])
    return [{"role": "assistant", "content": body["content"]}]


@pytest.mark.parametrize("cold", [False, True], ids=["the same worker", "another worker"])
def test_a_turn_reads_as_many_messages_however_long_the_conversation_is(bench: Bench, *, cold: bool) -> None:
    """Only what follows the summary is read, also by a worker that never saw the conversation."""
    reads: list[int] = []
    for count in (100, 2000):
        codec = counting_codec()
        client = bench.client(f"reads-{cold}", codec=codec)
        imported(client, f"of {count}", count)
        for turn in range(3):
            client.chat([user(long(10_000 + turn, 40))], conversation=f"of {count}", **STORED)
        if cold:
            client = bench.client(f"reads-{cold}", codec=codec)
        codec.read = 0
        got = client.chat([user("And now?")], conversation=f"of {count}", **STORED)
        assert got.headers["x-tidemark-action"] == "reused"
        reads.append(codec.read)
    assert 0 < reads[1] <= 1.5 * reads[0]


@pytest.mark.parametrize("dialect", PATHS)
def test_what_is_forwarded_and_told_is_that_of_a_client_with_all_messages(bench: Bench, dialect: str) -> None:
    """Over several summaries, prepared ones too, in every dialect."""
    seen: dict[str, list[Any]] = {}
    for kind in ("whole", "new"):
        client = bench.client(f"{dialect}-{kind}")
        numbers = iter(range(1000))

        def script(request: Received, numbers: Any = numbers) -> Answer:
            return says(f"Answer {next(numbers)}: " + long(7, 40))(request)

        bench.upstream.script = script
        said: list[Said] = []
        seen[kind] = []
        for turn in range(40):
            said.append(user(long(turn, 60)))
            sent = said if kind == "whole" else said[-1:]
            more = STORED if kind == "new" else {}
            got = send(client, dialect, sent, conversation="talk", **more)
            body = bench.upstream.last.json
            if dialect == "responses":  # a client that sends all repeats the members of an output item
                texts = [item["content"] for item in body["input"]]
                body = [text if isinstance(text, str) else text[0]["text"] for text in texts]
            told = {name: got.headers.get(f"x-tidemark-{name}") for name in COMPARED}
            seen[kind].append((body, told))
            said += answered(dialect, got)
            bench.settle()
    assert seen["new"] == seen["whole"]
    actions = [told["action"] for _, told in seen["new"]]
    assert actions.count("compacted") > 1
    assert actions.count("reused") > 10


@pytest.mark.parametrize("asked_for", [{"summarize": "off"}, {"summarize": "force"}, {"retention-tokens": "400"}])
def test_all_messages_are_read_where_they_are_asked_for(bench: Bench, asked_for: dict[str, str]) -> None:
    """Without summary or with another retention the request is that of a client with all messages."""
    client = bench.client(f"all-{asked_for}")
    imported(client, "talk", 60)
    client.chat([user("First?")], conversation="talk", **STORED)
    copy = client.http.get("/tidemark/conversations/talk/export", headers=client.headers()).text.splitlines()
    all_messages = [*map(json.loads, copy), user("Second?")]
    stored = client.chat([user("Second?")], conversation="talk", **STORED, **asked_for)
    sent = bench.upstream.last.messages
    other = client.chat(all_messages, conversation="talk", **asked_for)
    assert [one["content"] for one in sent] == [one["content"] for one in bench.upstream.last.messages]
    assert stored.headers["x-tidemark-tokens-before"] == other.headers["x-tidemark-tokens-before"]


def test_a_request_that_the_upstream_refuses_is_made_again(bench: Bench) -> None:
    """The upstream refuses the request as too long; it is planned anew with all messages, and stored once."""
    client = bench.client("refusing")
    imported(client, "talk", 60)
    client.chat([user("First?")], conversation="talk", **STORED)
    refusals = iter([True])

    def script(request: Received) -> Answer:
        if next(refusals, False):
            message = (
                "This model's maximum context length is 900 tokens. However, your messages resulted in 1400 tokens."
            )
            return error(400, message, code="context_length_exceeded")
        return says("Fine.")(request)

    bench.upstream.script = script
    got = client.chat([user("Second?")], conversation="talk", **STORED)
    assert got.status_code == 200, got.text
    shown = client.http.get("/tidemark/conversations/talk/export", headers=client.headers()).text
    assert shown.count("Second?") == 1


def test_system_messages_and_results_of_calls_stay(bench: Bench) -> None:
    """The last request's system message goes out behind a summary too, and messages keep their positions."""
    client = bench.client("systems")
    imported(client, "talk", 60)
    client.chat([system("Be brief."), user("First?")], conversation="talk", **STORED)
    for number in range(3):
        client.chat([user(f"More {number}?")], conversation="talk", **STORED)
    sent = bench.upstream.last.messages
    assert sent[0] == system("Be brief.")
    listed = client.http.get("/tidemark/conversations/talk", headers=client.headers(), params={"limit": "200"}).json()
    assert [one["message"]["content"] for one in listed["data"]][-2:] == ["More 2?", "Hello there."]
    context = client.http.get("/tidemark/conversations/talk/context", headers=client.headers()).json()
    assert context["exact"] is True


def test_a_continued_response_reads_what_follows_the_summary(bench: Bench) -> None:
    """By ``previous_response_id``: what is forwarded is that of a client with all messages, and little is read."""
    codec = counting_codec()
    seen: dict[str, list[Any]] = {}
    reads: list[int] = []
    for kind in ("all", "by id"):
        client = bench.client(f"continuing {kind}", codec=codec)
        numbers = iter(range(1000))

        def script(request: Received, numbers: Any = numbers) -> Answer:
            return says(f"Answer {next(numbers)}: " + long(7, 40))(request)

        bench.upstream.script = script
        said: list[Said] = [system("Be brief.")]
        earlier: dict[str, str] = {}
        seen[kind] = []
        for turn in range(40):
            said.append(user(long(turn, 60)))
            sent = said if kind == "all" or not turn else said[-1:]
            body = {"model": "small", "input": sent, "max_output_tokens": 100, **earlier}
            codec.read = 0
            got = client.http.post("/v1/responses", json=body, headers=client.headers())
            assert got.status_code == 200, got.text
            if kind == "by id":
                earlier = {"previous_response_id": got.json()["id"]}
                reads.append(codec.read)
            texts = [item["content"] for item in bench.upstream.last.json["input"]]
            told = {name: got.headers.get(f"x-tidemark-{name}") for name in COMPARED}
            seen[kind].append(([text if isinstance(text, str) else text[0]["text"] for text in texts], told))
            said += answered("responses", got)
            bench.settle()
    assert seen["by id"] == seen["all"]
    assert [told["action"] for _, told in seen["all"]].count("compacted") > 1
    assert sum(reads[-5:]) < 5 * 40  # of 80 messages


def test_an_answer_behind_a_summary_names_the_response_that_it_goes_on_from(bench: Bench) -> None:
    """As one without a summary does, where the upstream has no Responses API and its answer is translated."""
    client = bench.client("naming")
    bench.upstream.dialects = {"chat"}
    bench.upstream.script = says(long(7, 40))
    earlier: list[str | None] = [None]
    named: list[str | None] = []
    actions: list[str] = []
    for turn in range(24):
        body = {"model": "small", "input": [user(long(turn, 60))], "max_output_tokens": 100}
        got = client.http.post(
            "/v1/responses", json=body | {"previous_response_id": earlier[-1]}, headers=client.headers()
        )
        assert got.status_code == 200, got.text
        named.append(got.json()["previous_response_id"])
        actions.append(got.headers["x-tidemark-action"])
        earlier.append(got.json()["id"])
    assert named == earlier[:-1]
    assert "reused" in actions
