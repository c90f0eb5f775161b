"""What a client changes of what it sent before is told once a conversation, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.request.conftest import Bench, Client, benched
from tests.request.talk import long
from tests.support.scripted import Answer, Received, says
from tidemark.store.embedded.server import EmbeddedValkey

Json = dict[str, Any]
TOLD = "the client changed what it sent before: "
CACHED = {"type": "ephemeral"}


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """A store for these tests, which one of them looks into."""
    with EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def bench(valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Bench]:
    """The upstream numbers its answers, so that no two are the same."""
    with benched(valkey.url, tmp_path) as made:
        made.upstream.script = numbered(made)
        yield made


def numbered(bench: Bench) -> Any:
    """Answers that differ."""

    def answer(received: Received) -> Answer:
        return says(f"Answer {len(bench.upstream.received)}.")(received)

    return answer


def tool(name: str, **more: Any) -> Json:
    """A function that a model may call."""
    function = {"name": name, "description": f"It does {name}.", "parameters": {"type": "object", "properties": {}}}
    return {"type": "function", "function": function, **more}


class Talk:
    """A client of chat completions: its state is what it sends, and what was told of it."""

    def __init__(self, client: Client, system: str = "Be brief.", tools: Sequence[Json] = ()) -> None:
        self.client = client
        self.system = system
        self.tools = list(tools)
        self.messages: list[Json] = []
        self.told: list[str] = []
        self.conversations: set[str] = set()
        self.actions: set[str] = set()

    def ask(self, words: str, **asked: str) -> str:
        """Say something, keep the answer, and return what was told of a change; empty where nothing was."""
        self.messages.append({"role": "user", "content": words})
        first = [{"role": "system", "content": self.system}] if self.system else []
        body: Json = {"model": "small", "messages": [*first, *self.messages], "max_tokens": 100}
        if self.tools:
            body["tools"] = self.tools
        answer = self.client.post(body, **asked)
        assert answer.status_code == 200, answer.text
        self.messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
        self.conversations.add(answer.headers["x-tidemark-conversation"])
        self.actions.add(answer.headers["x-tidemark-action"])
        told = told_in(answer.headers.get("x-tidemark-warning", ""))
        self.told += [told] if told else []
        return told


def told_in(warning: str) -> str:
    """The change that a warning names."""
    return warning.partition(TOLD)[2].partition(", and")[0]


def test_a_clock_in_the_system_text_is_told_once_by_any_worker_and_after_a_restart(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """The text is new in each turn, and one warning of it is enough."""
    talk = Talk(bench.client(request.node.nodeid), system="It is 12:00:00.")
    assert talk.ask("one") == ""
    talk.system = "It is 12:00:09."
    assert talk.ask("two") == "system[0] changed"
    for turn in range(3):
        talk.system = f"It is 12:01:0{turn}."
        bench.settle()
        talk.client = bench.client(request.node.nodeid)  # another process would have as little of its own
        assert talk.ask(f"turn {turn}") == ""
    assert len(talk.conversations) == 1


def test_each_part_is_told_once(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Tools, then the system text; what follows in the same parts is known to the person by then."""
    talk = Talk(bench.client(request.node.nodeid), tools=[tool("read"), tool("write")])
    talk.ask("one")
    talk.tools.reverse()
    assert talk.ask("two") == "tools[0] moved"
    talk.tools.append(tool("run"))
    assert talk.ask("three") == ""
    talk.system = "Be long."
    assert talk.ask("four") == "system[0] changed"
    talk.tools, talk.system = [], "Be brief."
    assert talk.ask("five") == ""


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([tool("read"), tool("write"), tool("run")], "tools[2] added"),
        ([tool("read")], "tools[1] removed"),
        ([tool("read"), {**tool("write"), "strict": True}], "tools[1] changed"),
        ([tool("other"), tool("read"), tool("write")], "tools[0] added"),
    ],
)
def test_a_changed_tool_is_named(
    bench: Bench, request: pytest.FixtureRequest, tools: Sequence[Json], words: str
) -> None:
    """By its place in the request that comes first, counted from 0."""
    talk = Talk(bench.client(request.node.nodeid), tools=[tool("read"), tool("write")])
    talk.ask("one")
    talk.tools = list(tools)
    assert talk.ask("two") == words


def test_an_edited_message_is_told_once_though_each_edit_begins_a_fork(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """A client that writes the time into its second question does so in every turn."""
    talk = Talk(bench.client(request.node.nodeid))
    for words in ("one", "two", "three"):
        assert talk.ask(words) == ""
    talk.messages[2] = {"role": "user", "content": "two, at 12:00:00"}
    assert talk.ask("four") == "message 3 changed"
    for turn in range(3):
        talk.messages[2] = {"role": "user", "content": f"two, at 12:01:0{turn}"}
        bench.settle()
        assert talk.ask(f"turn {turn}") == ""
    assert len(talk.conversations) == 5


def test_an_edit_deep_in_a_compacted_talk_is_told(bench: Bench, request: pytest.FixtureRequest) -> None:
    """What is compared is what the client sends, not what goes out."""
    talk = Talk(bench.client(request.node.nodeid))
    for turn in range(14):
        assert talk.ask(long(turn, 180)) == ""
    assert "compacted" in talk.actions
    talk.messages[8] = {"role": "user", "content": "Something else."}
    assert talk.ask("And now?") == "message 9 changed"


def test_what_a_person_does_is_no_alarm(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Another question in place of an earlier one, an answer asked for again or repeated otherwise, a cache mark."""
    talk = Talk(bench.client(request.node.nodeid), tools=[tool("read")])
    for words in ("one", "two", "three"):
        talk.ask(words)
    whole = list(talk.messages)
    del talk.messages[2:]
    talk.ask("two, otherwise")
    talk.ask("three")
    talk.messages = whole[:-1]
    talk.messages.pop()
    talk.ask("three")  # again
    talk.messages[-1] = {"role": "assistant", "content": talk.messages[-1]["content"] + "\n"}
    talk.ask("four")
    talk.tools = [tool("read", cache_control=CACHED)]
    talk.messages[0] = {"role": "user", "content": [{"type": "text", "text": "one", "cache_control": CACHED}]}
    talk.ask("five")
    assert talk.told == []


def test_a_fork_has_tools_and_a_system_text_of_its_own(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A side question from the same beginning changes nothing of the conversation, nor is it changed by it."""
    talk = Talk(bench.client(request.node.nodeid), tools=[tool("read")])
    for words in ("one", "two", "three"):
        talk.ask(words)
    aside = Talk(talk.client, system="Find a title.")
    aside.messages = talk.messages[:2]
    assert aside.ask("What is this about?") == ""
    assert aside.ask("Shorter.") == ""
    assert talk.ask("four") == ""
    aside.system = "Find a longer title."
    assert aside.ask("Longer.") == "system[0] changed"


def test_a_system_text_that_is_sent_once_only_is_no_change(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Nor is the same text when it comes again; another one is."""
    talk = Talk(bench.client(request.node.nodeid))
    talk.ask("one")
    talk.system = ""
    talk.ask("two")
    talk.system = "Be brief."
    talk.ask("three")
    assert talk.told == []
    talk.system = "Be long."
    assert talk.ask("four") == "system[0] changed"


def test_a_conversation_of_an_earlier_version_is_read_as_before(
    bench: Bench, valkey: EmbeddedValkey, request: pytest.FixtureRequest
) -> None:
    """Nothing is known of what it sent, so its next request is what later ones are compared with."""
    talk = Talk(bench.client(request.node.nodeid))
    talk.ask("one")
    bench.settle()
    (identifier,) = talk.conversations
    with redis.Redis.from_url(valkey.url) as admin:
        (record,) = [key.decode() for key in admin.scan_iter(f"*{identifier[:32]}*:c:{identifier[32:]}")]
        assert admin.hdel(record, "sent") == 1  # all that this version adds: an earlier one asks for other fields
    talk.system = "Be long."
    assert talk.ask("two") == ""
    talk.system = "Be brief."
    assert talk.ask("three") == "system[0] changed"


def test_the_first_block_of_claude_code_is_told_with_its_switch(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Its other blocks stay, and its cache mark moves."""
    client, warnings, messages = bench.client(request.node.nodeid), [], []
    for turn in range(3):
        messages.append({"role": "user", "content": f"turn {turn}"})
        system = [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={turn:05x};"},
            {"type": "text", "text": "You are Claude Code.", **({"cache_control": CACHED} if turn else {})},
        ]
        body = {"model": "small", "max_tokens": 100, "system": system, "messages": messages}
        answer = client.http.post("/v1/messages", json=body, headers=client.headers())
        assert answer.status_code == 200, answer.text
        messages.append({"role": "assistant", "content": answer.json()["content"]})
        warnings.append(answer.headers.get("x-tidemark-warning", ""))
    assert warnings[0] == warnings[2] == ""
    assert told_in(warnings[1]) == "system[0] changed"
    assert "CLAUDE_CODE_ATTRIBUTION_HEADER=0" in warnings[1]


def test_instructions_and_tools_of_responses_are_compared(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Also where the earlier messages are named by an id."""
    client = bench.client(request.node.nodeid)
    read = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}
    body: Json = {"model": "small", "input": "one", "instructions": "Be brief.", "tools": [read]}
    told = []
    for change in (
        {},
        {"instructions": "Be long."},
        {"tools": [{"type": "web_search"}, read]},
        {"instructions": "Be."},
    ):
        body |= change
        answer = client.http.post("/v1/responses", json=body, headers=client.headers())
        assert answer.status_code == 200, answer.text
        body |= {"previous_response_id": answer.json()["id"], "input": "more"}
        told.append(told_in(answer.headers.get("x-tidemark-warning", "")))
    assert told == ["", "system[0] changed", "tools[0] added", ""]


def test_the_metric_the_log_and_the_console_have_it(
    bench: Bench, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the part that was changed; the words quote nothing of the client's."""
    talk = Talk(bench.client(request.node.nodeid), system="A secret.")
    talk.ask("one")
    talk.system = "Another secret."
    talk.ask("two")
    bench.settle()
    metrics = talk.client.http.get("/metrics").text
    assert 'tidemark_cache_breaks_total{part="system"} 1.0' in metrics
    logged = capfd.readouterr().out
    assert "cache_break='system[0] changed'" in logged
    (identifier,) = talk.conversations
    page = talk.client.http.get(f"/console/conversations/{identifier}").text
    assert "broken by the client: system[0] changed" in page
    assert not any("secret" in text for text in (metrics, logged))


@pytest.mark.parametrize("seed", range(8))
def test_random_talks_tell_what_was_changed_and_nothing_else(
    bench: Bench, request: pytest.FixtureRequest, seed: int
) -> None:
    """Questions, rewinds, repeats, compactions by hand; then one change, which is named."""
    chance = random.Random(seed)
    talk = Talk(bench.client(request.node.nodeid), tools=[tool("read"), tool("write")])
    for turn in range(12):
        if talk.messages and chance.random() < 0.3:
            del talk.messages[2 * chance.randrange(len(talk.messages) // 2 + 1) :]
        words = chance.choice(("go on", "yes", f"turn {turn}", long(turn, 60)))
        talk.ask(words, **({"summarize": "force"} if chance.random() < 0.1 else {}))
    while len(talk.messages) < 6:
        talk.ask(f"more {len(talk.messages)}")
    assert talk.told == []
    place = 2 * chance.randrange(1, len(talk.messages) // 2 - 1)
    change = chance.choice(("tools", "system", "message"))
    if change == "tools":
        talk.tools[1] = tool("append")
        expected = "tools[1] added"
    elif change == "system":
        talk.system, expected = "Be long.", "system[0] changed"
    else:
        talk.messages[place], expected = {"role": "user", "content": "edited"}, f"message {place + 1} changed"
    for turn in range(3):
        talk.ask(f"last {turn}")
    assert talk.told == [expected]
