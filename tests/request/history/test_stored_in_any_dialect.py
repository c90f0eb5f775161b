"""A conversation begins in one dialect and goes on in another, and the archive reads it whichever it came in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.request.history.test_changed_answers import CHANGES, Change
from tests.support.scripted import Answer, Call, Received, Turn, tells
from tidemark.core.conversation.messages import Message
from tidemark.dialects.chat.jsonl import read_lines
from tidemark.worker.dialects import build_dialects

Item = dict[str, Any]
DIALECTS = {dialect.name: (path, dialect) for path, dialect in build_dialects().items()}
NAMES = ["chat", "responses", "messages"]
PAIRS = list(permutations(NAMES, 2))
PIXEL = "iVBORw0KGgo="
FIRST = Turn("I look it up.", thought="What is asked?", calls=(Call("look", '{"at": "harbour", "n": 1}'),))
THEN = Turn("The blue ferry leaves at seven.", thought="Now I know.")
SAYS_NOTHING: dict[str, Any] = dict.fromkeys(NAMES, "(no content)") | {
    "messages": [{"type": "text", "text": "(no content)"}]
}
STORED = {"conversation": "a talk", "history": "stored"}


def answering(request: Received) -> Answer:
    """An upstream that calls a tool at first."""
    answers = b"harbour" in request.body and b"look" in request.body
    return tells(THEN if answers else FIRST)(request)


@dataclass
class Speaker:
    """A client of one dialect that keeps what it was answered."""

    client: Client
    name: str
    items: list[Item] = field(default_factory=list)
    """The conversation, as this dialect tells it."""

    def ask(self, items: Sequence[Item], **asked: str) -> httpx.Response:
        """Send items, and keep the answer."""
        path, dialect = DIALECTS[self.name]
        limit = "max_output_tokens" if self.name == "responses" else "max_tokens"
        body = {"model": "small", dialect.messages_member: list(items), limit: 100}
        answer = self.client.http.post(path, content=json.dumps(body).encode(), headers=self.client.headers(**asked))
        assert answer.status_code == 200, answer.text
        return answer

    def say(self, *items: Item) -> httpx.Response:
        """Send the whole conversation with something new, and keep the answer."""
        self.items += items
        answer = self.ask(self.items)
        self.items += self.answered(answer)
        return answer

    def answered(self, answer: httpx.Response) -> list[Item]:
        """The answer, as a client sends it back."""
        body = answer.json()
        if self.name == "chat":
            return [body["choices"][0]["message"]]
        if self.name == "responses":
            return list(body["output"])
        return [{"role": "assistant", "content": body["content"]}]

    def picture(self, text: str) -> Item:
        """A question with an image before its text."""
        url = f"data:image/png;base64,{PIXEL}"
        match self.name:
            case "chat":
                parts: list[Item] = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
            case "responses":
                parts = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": text}]
            case _:
                source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
                parts = [{"type": "image", "source": source}, {"type": "text", "text": text}]
        return {"role": "user", "content": parts}

    def result(self, answer: httpx.Response, text: str) -> Item:
        """The result of the call that an answer makes."""
        body = answer.json()
        match self.name:
            case "chat":
                (call,) = body["choices"][0]["message"]["tool_calls"]
                return {"role": "tool", "tool_call_id": call["id"], "content": text}
            case "responses":
                (called,) = [item["call_id"] for item in body["output"] if item["type"] == "function_call"]
                return {"type": "function_call_output", "call_id": called, "output": text}
            case _:
                (block,) = [block for block in body["content"] if block["type"] == "tool_use"]
                content = [{"type": "tool_result", "tool_use_id": block["id"], "content": text}]
                return {"role": "user", "content": content}


def user(text: str) -> Item:
    """A question, which is the same in all dialects."""
    return {"role": "user", "content": text}


def forwarded(bench: Bench, name: str) -> Sequence[Message]:
    """The messages of the last request upstream, read in its dialect."""
    _, dialect = DIALECTS[name]
    assert bench.upstream.last.dialect == name
    parsed: Sequence[Message] = dialect.parser.parse_now(bench.upstream.last.body).messages  # type: ignore[attr-defined]  # each has one
    return parsed


def meaning(messages: Sequence[Message]) -> list[tuple[str, str, list[str], bool]]:
    """What a test compares of messages."""
    return [
        (message.role, message.text, [call.name for call in message.calls], "image" in str(message.media))
        for message in messages
    ]


TALK = [
    ("user", "What is on it?", [], True),
    ("assistant", "I look it up.", ["look"], False),
    ("tool", "A blue ferry, at the harbour.", [], False),
    ("assistant", "The blue ferry leaves at seven.", [], False),
]


def conversation_in(bench: Bench, client: Client, name: str, **asked: str) -> tuple[Speaker, str]:
    """A conversation of four messages in a dialect, and its id."""
    bench.upstream.script = answering
    speaker = Speaker(client, name)
    question = speaker.picture("What is on it?")
    if asked:
        first = speaker.ask([question], **asked)
        last = speaker.ask([speaker.result(first, "A blue ferry, at the harbour.")], **asked)
    else:
        first = speaker.say(question)
        last = speaker.say(speaker.result(first, "A blue ferry, at the harbour."))
    bench.settle()
    conversation: str = last.headers["x-tidemark-conversation"]
    return speaker, conversation


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_stored_history_goes_on_in_another_dialect(
    bench: Bench, before: str, after: str, request: pytest.FixtureRequest
) -> None:
    """The upstream gets all messages in the new dialect, and the conversation stays one."""
    client = bench.client(request.node.nodeid)
    _, conversation = conversation_in(bench, client, before, **STORED)
    speaker = Speaker(client, after)
    for number in (1, 2):
        answer = speaker.ask([user(f"And later {number}?")], **STORED)
        assert answer.headers["x-tidemark-conversation"] == conversation
        sent = meaning(forwarded(bench, after))
        assert sent[:5] == [*TALK, ("user", "And later 1?", [], False)]
        assert len(sent) == 3 + 2 * number
        assert b"What is asked?" not in bench.upstream.last.body
        assert b"null" not in bench.upstream.last.body
        bench.settle()
    back = Speaker(client, before).ask([user("And back?")], **STORED)
    assert back.headers["x-tidemark-conversation"] == conversation
    assert meaning(forwarded(bench, before))[:4] == TALK
    bench.settle()
    (entry,) = client.http.get("/tidemark/conversations", headers=client.headers()).json()["data"]
    assert (entry["id"], entry["messages"]) == (conversation, 10)


@pytest.mark.parametrize("before", ["chat", "responses"])
def test_system_messages_of_another_dialect_are_system_in_messages(
    bench: Bench, before: str, request: pytest.FixtureRequest
) -> None:
    """Turn after turn, and they are system messages again where the conversation goes back."""
    bench.upstream.script = tells(THEN)
    client = bench.client(request.node.nodeid)
    heads = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}]
    Speaker(client, before).ask([*heads, user("When does it leave?")], **STORED)
    bench.settle()
    for number in (1, 2):
        Speaker(client, "messages").ask([user(f"And later {number}?")], **STORED)
        assert bench.upstream.last.json["system"] == "Be brief.\n\nBe kind."
        assert [message["role"] for message in bench.upstream.last.messages] == ["user", "assistant"] * number + [
            "user"
        ]
        bench.settle()
    Speaker(client, before).ask([user("And back?")], **STORED)
    first = forwarded(bench, before)[:3]
    assert [(message.role, message.text) for message in first] == [
        ("system", "Be brief."),
        ("system", "Be kind."),
        ("user", "When does it leave?"),
    ]


def test_a_clients_own_system_stays_its_own(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Nothing is put in its place, and not beside it."""
    bench.upstream.script = tells(THEN)
    client = bench.client(request.node.nodeid)
    Speaker(client, "chat").ask([{"role": "system", "content": "Be brief."}, user("When?")], **STORED)
    bench.settle()
    body = {"model": "small", "messages": [user("And?")], "max_tokens": 100, "system": "Be long."}
    assert client.http.post("/v1/messages", json=body, headers=client.headers(**STORED)).status_code == 200
    assert bench.upstream.last.json["system"] == "Be long."


@pytest.mark.parametrize("before", ["chat", "messages"])  # an empty answer of the Responses API has no items
def test_an_empty_answer_is_none_in_messages(bench: Bench, before: str, request: pytest.FixtureRequest) -> None:
    """Servers refuse an empty content; the conversation stays one, and the store keeps what was answered."""
    bench.upstream.script = tells(Turn(""))
    client = bench.client(request.node.nodeid)
    first = Speaker(client, before).ask([user("One?")], **STORED)
    bench.settle()
    bench.upstream.script = tells(THEN)
    ids = {first.headers["x-tidemark-conversation"]}
    for number in (1, 2):
        answer = Speaker(client, "messages").ask([user(f"And later {number}?")], **STORED)
        ids.add(answer.headers["x-tidemark-conversation"])
        assert bench.upstream.last.messages[1] == {"role": "assistant", "content": SAYS_NOTHING[before]}
        bench.settle()
    assert len(ids) == 1
    shown = client.http.get(f"/tidemark/conversations/{ids.pop()}", headers=client.headers()).json()["data"]
    assert len(shown) == 6
    assert not shown[1]["message"]["content"]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_client_that_sends_all_messages_goes_on_in_another_dialect(
    bench: Bench, before: str, after: str, request: pytest.FixtureRequest
) -> None:
    """Its messages are those of the store, whoever wrote them."""
    client = bench.client(request.node.nodeid)
    speaker, conversation = conversation_in(bench, client, before)
    _, dialect = DIALECTS[before]
    _, other = DIALECTS[after]
    body = json.dumps({"model": "small", dialect.messages_member: speaker.items}).encode()
    told = Speaker(client, after)
    question = told.picture("What is on it?")
    messages = dialect.parser.parse_now(body).messages[1:]  # type: ignore[attr-defined]  # each has one
    raws = b"[" + b",".join(other.write(message) for message in messages) + b"]"
    answer = told.say(question, *json.loads(raws), user("And later?"))
    assert answer.headers["x-tidemark-conversation"] == conversation


@pytest.mark.parametrize("name", NAMES)
def test_the_archive_reads_every_dialect(bench: Bench, name: str, request: pytest.FixtureRequest) -> None:
    """It shows and exports messages of chat completions; those of another dialect are readable as they came."""
    client = bench.client(request.node.nodeid)
    _, conversation = conversation_in(bench, client, name)

    def got(path: str) -> httpx.Response:
        answer = client.http.get(f"/tidemark/conversations/{conversation}{path}", headers=client.headers())
        assert answer.status_code == 200, answer.text
        return answer

    shown = got("").json()["data"]
    chat = DIALECTS["chat"][1]
    raws = [json.dumps(entry["message"]).encode() for entry in shown]
    assert meaning(chat.parse_messages(raws)) == TALK
    sources = [entry.get("source") for entry in shown]
    if name == "chat":
        assert sources == [None] * 4
    else:
        assert sources[0] == Speaker(client, name).picture("What is on it?")
        assert "What is asked?" in json.dumps(sources[1])
    (hit,) = got("/search?q=blue+leaves").json()["data"]
    assert (hit["position"], hit["message"]["content"]) == (4, "The blue ferry leaves at seven.")
    (call,) = got("/search?q=look+harbour").json()["data"]
    assert call["position"] == 2
    exported = got("/export").content
    assert meaning([line.message for line in read_lines(exported)]) == TALK
    now = got("/context").json()["messages"]
    assert meaning(chat.parse_messages([json.dumps(message).encode() for message in now])) == TALK
    before = got("/context?at=2").json()["messages"]
    assert meaning(chat.parse_messages([json.dumps(message).encode() for message in before])) == TALK[:1]
    imported = client.http.post(
        "/tidemark/conversations/import?model=small&name=again", content=exported, headers=client.headers()
    )
    assert imported.json()["messages"] == 4, imported.text


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_of_any_dialect_is_summarized_by_hand(
    bench: Bench, name: str, request: pytest.FixtureRequest
) -> None:
    """The next request of that dialect uses the summary."""
    bench.upstream.script = tells(Turn("The ferry leaves at seven. " * 30))
    client = bench.client(request.node.nodeid, window=20_000)
    speaker = Speaker(client, name)
    answers = [speaker.say(user(f"Question {n}? " + "The harbour master knows more. " * 20)) for n in range(6)]
    bench.settle()
    conversation = answers[-1].headers["x-tidemark-conversation"]
    made = client.http.post(
        f"/tidemark/conversations/{conversation}/summarize",
        content=b'{"retention_tokens": 200}',
        headers=client.headers(),
    )
    assert made.status_code == 200, made.text
    assert made.json()["summarized_messages"] > 0, made.text
    assert speaker.say(user("And now?")).headers["x-tidemark-action"] == "reused"


@pytest.mark.parametrize("name", ["responses", "messages"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_answer_goes_on_in_every_dialect(
    bench: Bench, name: str, change: Change, request: pytest.FixtureRequest
) -> None:
    """Fourteen turns have one id and one entry in the list."""

    def thinking_aloud(received: Received) -> Answer:
        count = received.body.count(b"Question")
        return tells(Turn(f"<think>Question {count}?</think>\n\nThe ferry leaves at {count}.\n" + "It is blue. " * 9))(
            received
        )

    bench.upstream.script = thinking_aloud
    client = bench.client(request.node.nodeid, window=20_000)
    speaker = Speaker(client, name)
    ids = set()
    for number in range(14):
        ids.add(speaker.say(user(f"Question {number}?")).headers["x-tidemark-conversation"])
        (part,) = [part for part in speaker.items[-1]["content"] if "text" in part]
        part["text"] = change(part["text"])
    bench.settle()
    (entry,) = client.http.get("/tidemark/conversations", headers=client.headers()).json()["data"]
    assert ids == {entry["id"]}
    assert entry["messages"] == 28


@pytest.mark.parametrize("name", ["responses", "messages"])
def test_forks_stay_forks_in_every_dialect(bench: Bench, name: str, request: pytest.FixtureRequest) -> None:
    """A rewind, an edited question and a regeneration begin conversations of their own, and the first one goes on."""

    def thinking_aloud(received: Received) -> Answer:
        count = len(bench.upstream.received)
        return tells(Turn(f"<think>{count}</think>At {count} the ferry leaves, and it is blue. " * 3))(received)

    bench.upstream.script = thinking_aloud
    client = bench.client(request.node.nodeid, window=20_000)
    speaker = Speaker(client, name)
    ids = set()
    for number in range(3):
        ids.add(speaker.say(user(f"Question {number}?")).headers["x-tidemark-conversation"])
        (part,) = [part for part in speaker.items[-1]["content"] if "text" in part]
        part["text"] = part["text"].replace("<think>", "").replace("</think>", " ")
    items = list(speaker.items)
    for fork in (
        [*items[:2], user("Otherwise?")],
        [*items[:2], user("Differently?"), *items[3:], user("On?")],
        items[:5],
    ):
        ids.add(speaker.ask(fork).headers["x-tidemark-conversation"])
    assert len(ids) == 4
    assert speaker.say(user("On?")).headers["x-tidemark-conversation"] in ids
    bench.settle()
    assert len(client.http.get("/tidemark/conversations", headers=client.headers()).json()["data"]) == 4


@pytest.mark.parametrize("at_once", [False, True], ids=["turn by turn", "all at once"])
def test_a_response_stays_what_it_was_although_its_client_changed_it(
    bench: Bench,
    at_once: bool,  # noqa: FBT001 - a case
    request: pytest.FixtureRequest,
) -> None:
    """It is shown, and gone on from, as it was answered."""

    def numbered(received: Received) -> Answer:
        return tells(Turn(f"<think>Hm.</think>The ferry leaves at {len(bench.upstream.received)}. " + "Blue. " * 9))(
            received
        )

    bench.upstream.script = numbered
    client = bench.client(request.node.nodeid, window=20_000)
    speaker = Speaker(client, "responses")
    answers: list[Any] = []

    def change(item: Item) -> None:
        (part,) = item["content"]
        part["text"] = part["text"].removeprefix("<think>Hm.</think>")

    for number in range(3):
        answers.append(speaker.say(user(f"Question {number}?")))
        if not at_once:
            change(speaker.items[-1])
    if at_once:
        for item in speaker.items[1::2]:
            change(item)
    last = speaker.say(user("And now?"))
    assert len({answer.headers["x-tidemark-conversation"] for answer in [*answers, last]}) == 1
    bench.settle()
    for answer in answers:
        body = answer.json()
        shown = client.http.get(f"/v1/responses/{body['id']}", headers=client.headers())
        assert shown.status_code == 200, shown.text
        assert [item["content"][0]["text"] for item in shown.json()["output"]] == [
            body["output"][0]["content"][0]["text"]
        ]
        asked = {"model": "small", "input": "Go on.", "previous_response_id": body["id"], "max_output_tokens": 100}
        on = client.http.post("/v1/responses", json=asked, headers=client.headers())
        assert on.status_code == 200, on.text
        assert bench.upstream.last.messages[-2]["content"] == body["output"][0]["content"][0]["text"]
