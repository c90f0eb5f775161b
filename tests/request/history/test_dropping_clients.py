"""Clients that drop their oldest messages wait for few summaries, and other clients notice nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import httpx
import pytest

from tests.request.compaction.test_summarizers import is_summary_call
from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, long, system, user
from tests.support.scripted import Answer, Received, says
from tidemark.core.conversation.messages import Message
from tidemark.dialects.chat.dialect import ChatDialect

HEAD = system("You are a friendly companion.")
Send = Callable[[list[Said]], list[Said]]
"""What a client sends of all its messages."""
ALL_SIZES = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: '{base}'}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction: {{defaults: {{strategy: {strategy}, min_tokens: 300}}}}
"""


ANSWERS: dict[str, Callable[[Said], str]] = {
    "chat": lambda body: str(body["choices"][0]["message"]["content"]),
    "messages": lambda body: str(body["content"][0]["text"]),
    "responses": lambda body: str(body["output"][0]["content"][0]["text"]),
}
"""The text of an answer in each dialect."""


def last(count: int) -> Send:
    """The newest messages alone."""
    return lambda said: said[-count:]


def first_and_last(count: int) -> Send:
    """A front end's first line always, and the newest messages."""
    return lambda said: [*said[:1], *said[1:][-count:]]


def with_a_note(count: int) -> Send:
    """The newest messages, with a note of the user's that always stands four from the end."""
    return lambda said: [*said[-count:-4], user("[Style: calm and slow.]"), *said[-4:]] if len(said) > 4 else said


def with_context(count: int) -> Send:
    """The newest messages, the newest one with a text that was looked up for it."""
    return lambda said: [*said[-count:-1], user(f"Context: {long(len(said) + 5_000)}\n\n{said[-1]['content']}")]


@dataclass
class FrontEnd:
    """A front end that has all messages, and sends some."""

    bench: Bench
    client: Client
    send: Send
    dialect: str = "chat"
    said: list[Said] = field(default_factory=list)
    sent: list[Said] = field(default_factory=list)
    asked: int = 0
    """Summaries that a model was asked for."""
    waited: int = 0
    """Those that the client waited for."""
    is_answered: bool = False
    """Whether the upstream has answered the newest question."""

    def turn(self, words: int = 60) -> httpx.Response:
        """Ask, be answered, and wait until everything behind the answer has happened."""
        self.said.append(user(long(len(self.said), words)))
        self.sent = self.send(self.said)
        self.is_answered = False
        self.bench.upstream.script = self._answer
        got = self._ask()
        assert got.status_code == 200, got.text
        self.said.append(assistant(ANSWERS[self.dialect](got.json())))
        self.bench.settle()
        return got

    def _ask(self) -> httpx.Response:
        """Send what the front end sends, with the system text where the dialect has it."""
        if self.dialect == "chat":
            return self.client.chat([HEAD, *self.sent])
        if self.dialect == "messages":
            asked: Said = {"system": HEAD["content"], "messages": self.sent, "max_tokens": 100}
        else:
            asked = {"instructions": HEAD["content"], "input": self.sent, "max_output_tokens": 100, "store": False}
        headers = self.client.headers()
        return self.client.http.post(f"/v1/{self.dialect}", json={"model": "small", **asked}, headers=headers)

    def _answer(self, request: Received) -> Answer:
        if is_summary_call(request):
            self.asked += 1
            self.waited += not self.is_answered
            return says("## Context\nThe points were gone through, and both sides agreed upon each of them in turn.")(
                request
            )
        self.is_answered = True
        return says(long(len(self.said), 60))(request)

    def turns(self, count: int) -> Iterator[httpx.Response]:
        """Some turns, one after another."""
        for _ in range(count):
            yield self.turn()


def front_end(bench: Bench, key: str, send: Send, *, window: int = 2_000, strategy: str = "llm") -> FrontEnd:
    """A front end before a Tidemark of its own."""
    return FrontEnd(bench, bench.client(key, window=window, strategy=strategy, config=ALL_SIZES), send)


@pytest.mark.parametrize("dialects", [{"chat"}, {"chat", "messages", "responses"}], ids=["bridged", "native"])
@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_every_dialect_has_the_same_summaries(
    bench: Bench, request: pytest.FixtureRequest, dialect: str, dialects: set[str]
) -> None:
    """Forty messages never fit: few turns wait for a summary, and the client's own messages stand behind it."""
    bench.upstream.dialects = dialects
    talk = front_end(bench, request.node.nodeid, last(40))
    talk.dialect = dialect
    actions = [got.headers["x-tidemark-action"] for got in talk.turns(40)]
    assert actions.count("compacted") <= 6, actions
    assert actions[-15:].count("reused") >= 10
    assert talk.waited <= 6
    sent = json.dumps(bench.upstream.last.json)
    assert all(json.dumps(said["content"]) in sent for said in talk.sent[-3:])


def forwarded(bench: Bench) -> list[Said]:
    """What the upstream got of the newest request of a client."""
    return next(list(one.messages) for one in reversed(bench.upstream.received) if not is_summary_call(one))


@pytest.mark.parametrize(
    "send", [last(40), first_and_last(40), with_a_note(40), with_context(40)], ids=["last", "first", "note", "context"]
)
def test_a_client_whose_part_is_too_long_goes_on_with_its_summary(
    bench: Bench, send: Send, request: pytest.FixtureRequest
) -> None:
    """Forty of its messages never fit. Each turn waited for a summary; now few do, and nothing else changes.

    Behind the summary stand the client's own messages, the newest ones, as they came.
    """
    talk = front_end(bench, request.node.nodeid, send)
    actions = [got.headers["x-tidemark-action"] for got in talk.turns(60)]
    assert actions.count("compacted") <= 12, actions
    assert talk.waited <= 12
    got, summary, *rest = forwarded(bench)
    assert got == HEAD
    assert summary["content"].startswith("Summary of earlier turns")
    assert 1 < len(rest) < 40
    assert rest == talk.sent[-len(rest) :]


def test_its_talk_is_one_conversation(bench: Bench, request: pytest.FixtureRequest) -> None:
    """With its first messages, which the client has dropped long ago."""
    talk = front_end(bench, request.node.nodeid, last(40), strategy="extractive")
    ids = [got.headers["x-tidemark-conversation"] for got in talk.turns(60)]
    assert len(set(ids)) == 2  # one until it began to drop messages
    page = talk.client.http.get(f"/tidemark/conversations/{ids[-1]}?limit=200", headers=talk.client.headers())
    raws = [entry["message"] for entry in page.json()["data"]]
    assert [raw["content"] for raw in raws[-90:]] == [said["content"] for said in talk.said[-90:]]


def test_nothing_is_prepared_while_its_messages_fit(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Twenty-three messages are above the prepare mark. A summary of them would never be used."""
    talk = front_end(bench, request.node.nodeid, last(23))
    for got in talk.turns(30):
        assert got.headers["x-tidemark-action"] == "none"
        assert forwarded(bench) == [HEAD, *talk.sent]
    assert talk.asked <= 1


def test_other_clients_have_their_summaries_prepared(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Whoever sends everything waits for none, also after a message was deleted."""
    talk = front_end(bench, request.node.nodeid, list)
    for _ in talk.turns(5):
        pass
    del talk.said[:2]
    actions = [got.headers["x-tidemark-action"] for got in talk.turns(30)]
    assert "compacted" in actions
    assert talk.asked
    assert not talk.waited


def test_a_note_that_moves_has_no_summaries_prepared_in_vain(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Each turn changes the note's place, so a prepared summary reaches no further than what stays the same."""
    talk = front_end(bench, request.node.nodeid, with_a_note(1_000))
    actions = [got.headers["x-tidemark-action"] for got in talk.turns(50)]
    assert actions.count("compacted") >= 3
    assert talk.asked <= actions.count("compacted") + 3
    assert not talk.waited


def test_a_deleted_message_is_in_no_summary(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A person who deletes the first question once wants it forgotten: no habit is seen in that."""
    talk = front_end(bench, request.node.nodeid, list, strategy="extractive")
    talk.said += [user("SAFETY RULE: Never tell anybody that my name is Rumpelstiltskin."), assistant("I see.")]
    actions = [got.headers["x-tidemark-action"] for got in talk.turns(25)]
    assert actions[-1] == "reused"
    assert "Rumpelstiltskin" in str(forwarded(bench))
    del talk.said[:2]
    for _ in talk.turns(12):
        assert "Rumpelstiltskin" not in str(forwarded(bench))


def test_another_credential_gets_nothing_of_it(bench: Bench, request: pytest.FixtureRequest) -> None:
    """The same newest messages under another key are another talk."""
    talk = front_end(bench, request.node.nodeid, last(40), strategy="extractive")
    for _ in talk.turns(40):
        pass
    other = Client(talk.client.http, "another key")
    talk.said.append(user("And now?"))
    sent = talk.said[-40:]
    assert other.chat([HEAD, *sent]).headers["x-tidemark-conversation"]
    dropped = [said["content"] for said in talk.said[:-40]]
    assert not any(text in str(forwarded(bench)) for text in dropped)
    mine = talk.client.chat([HEAD, *sent])
    assert "x0" in str(forwarded(bench)[1]["content"])
    assert mine.headers["x-tidemark-action"] == "reused"


def test_a_deleted_conversation_is_not_gone_on_with(bench: Bench, request: pytest.FixtureRequest) -> None:
    """The client has sent enough for a turn without it, so nothing is refused."""
    talk = front_end(bench, request.node.nodeid, last(40), strategy="extractive")
    conversation = [got.headers["x-tidemark-conversation"] for got in talk.turns(40)][-1]

    gone = talk.client.http.delete(f"/tidemark/conversations/{conversation}", headers=talk.client.headers())
    assert gone.is_success
    assert talk.turn().headers["x-tidemark-action"] == "compacted"
    assert _digests(forwarded(bench)[2:]) <= _digests(talk.sent)


def test_an_answer_that_is_asked_for_again_stays_in_the_talk(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A client that regenerates drops nothing in that request, and what it dropped before is still known."""
    talk = front_end(bench, request.node.nodeid, last(40), strategy="extractive")
    for _ in talk.turns(40):
        pass
    again = talk.client.chat([HEAD, *talk.sent])
    assert again.headers["x-tidemark-action"] == "reused"
    bench.settle()
    assert talk.turn().headers["x-tidemark-action"] == "reused"


def _digests(said: Sequence[Said]) -> set[bytes]:
    parse = ChatDialect().parser.parse_now
    messages: Sequence[Message] = parse(json.dumps({"model": "small", "messages": said}).encode()).messages
    return {message.digest for message in messages}
