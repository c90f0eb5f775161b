"""Encrypted items that the upstream refuses leave: once with a warning, and in later turns before they are refused."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.providers.openai_responses import EnforcingOpenAI, message_of
from tests.request.conftest import Bench, Client
from tests.request.talk import long
from tests.support.answers import Answer, Received
from tests.support.scripted import refuses

Json = dict[str, Any]
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/gpt-5.5, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
  - model_name: other
    litellm_params: {{model: openai/gpt-6, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 400, min_tokens: 300}}
"""
READ = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}
TRIGGER = {"type": "compaction_trigger"}
NOTICE = "the upstream cannot read"


def user(text: str) -> Json:
    """A message of the user."""
    return {"type": "message", "role": "user", "content": text}


def calls_first(body: Json) -> Sequence[Json]:
    """Think and call two tools at once, and think and answer when their results are there."""
    place = len(body["input"])
    if body["input"][-1]["type"] == "function_call_output":
        return [{"type": "reasoning", "summary": []}, message_of(f"Read {place}.")]
    calls = [
        {"type": "function_call", "call_id": f"call_{place}_{n}", "name": "read", "arguments": "{}"} for n in range(2)
    ]
    return [{"type": "reasoning", "summary": []}, *calls]


class Talker:
    """A client of the Responses API that keeps its history: its state is the items, and each answer."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.items: list[Json] = []
        self.members: Json = {"model": "small", "tools": [READ]}
        self.answers: list[httpx.Response] = []

    def post(self, path: str = "/v1/responses", **members: Any) -> httpx.Response:
        """Send the history as it is."""
        include = ["reasoning.encrypted_content"]
        body = {"input": self.items, "store": False, "include": include, **self.members, **members}
        return self.client.http.post(path, json=body, headers=self.client.headers())

    def say(self, text: str) -> httpx.Response:
        """Say something, answer the calls that come back, and keep everything."""
        self.items.append(user(text))
        while True:
            answer = self.post()
            self.answers.append(answer)
            if answer.status_code != 200:
                return answer
            self.items += answer.json()["output"]
            names = [item["call_id"] for item in answer.json()["output"] if item["type"] == "function_call"]
            self.items += [{"type": "function_call_output", "call_id": name, "output": "Read."} for name in names]
            if not names:
                return answer

    def talk(self, turns: int) -> None:
        """Several turns; every one must be answered."""
        for number in range(turns):
            answer = self.say(f"Question {number}?")
            assert answer.status_code == 200, answer.text

    @property
    def warned(self) -> list[str]:
        """The warnings about items that could not be read."""
        warnings = [answer.headers.get("x-tidemark-warning", "") for answer in self.answers]
        return [warning for warning in warnings if NOTICE in warning]


@pytest.fixture
def api(bench: Bench) -> EnforcingOpenAI:
    """OpenAI's API behind the bench."""
    bench.upstream.script = made = EnforcingOpenAI(say=calls_first)
    bench.upstream.others.counts = bench.upstream.others.compacts = made
    bench.upstream.others.kept = None
    return made


@pytest.fixture
def talker(bench: Bench, api: EnforcingOpenAI, request: pytest.FixtureRequest) -> Talker:
    """A client of a Tidemark before it."""
    assert bench.upstream.script is api
    return Talker(bench.client(request.node.nodeid, config=CONFIG, window=2400))


def count_sent(bench: Bench, kind: str = "reasoning") -> int:
    """How many items of a type the last request had."""
    return sum(item["type"] == kind for item in bench.upstream.last.json["input"])


def test_a_talk_goes_on_under_another_organizations_key(bench: Bench, api: EnforcingOpenAI, talker: Talker) -> None:
    """Its reasoning leaves with a warning, once; what the new organization makes stays."""
    talker.talk(3)
    talker.client.key += " of another organization"
    talker.talk(3)
    assert len(api.refusals) == 1
    assert "organization_id did not match" in api.refusals[0]
    assert len(talker.warned) == 1
    assert talker.warned[0].startswith("the upstream cannot read 6 encrypted items of this conversation")
    assert count_sent(bench) == 5
    calls = [item for item in bench.upstream.last.json["input"] if item["type"] == "function_call"]
    assert ["id" in call for call in calls] == [False] * 6 + [True] * 6


def test_a_client_may_switch_between_models_for_the_price_of_one_refusal_each(
    bench: Bench, api: EnforcingOpenAI, talker: Talker
) -> None:
    """Each model gets what its own family has made, whatever another one has refused."""
    for model in ("small", "other", "small", "other"):
        talker.members["model"] = model
        talker.talk(2)
    assert len(api.refusals) == len(talker.warned) == 3
    assert all("cannot read 4 encrypted items" in warning for warning in talker.warned)
    assert count_sent(bench) == 7
    del api.refusals[:]
    talker.talk(2)
    assert api.refusals == []


@pytest.mark.parametrize("has_ids", [True, False])
def test_items_without_ids_as_codex_sends_them_are_refused_once_too(
    api: EnforcingOpenAI,
    talker: Talker,
    has_ids: bool,  # noqa: FBT001
) -> None:
    """Such a refusal names an item by its first and last letters."""
    talker.talk(2)
    if not has_ids:
        talker.items = [{name: value for name, value in item.items() if name != "id"} for item in talker.items]
    talker.members["model"] = "other"
    talker.talk(2)
    assert len(api.refusals) == len(talker.warned) == 1


def test_another_worker_knows_what_was_refused_and_so_does_one_that_was_restarted(
    bench: Bench, api: EnforcingOpenAI, talker: Talker
) -> None:
    """The store has it."""
    talker.talk(2)
    talker.members["model"] = "other"
    talker.talk(2)
    bench.settle()
    talker.client = bench.client(talker.client.key, config=CONFIG, window=2400)
    talker.talk(2)
    assert len(api.refusals) == 1


def test_a_foreign_compaction_leaves_and_the_warning_counts_it(
    bench: Bench, api: EnforcingOpenAI, talker: Talker
) -> None:
    """What it stands for is lost, so the client must hear of it; the conversation goes on."""
    talker.talk(1)
    compacted = json.loads(bytes(api(compaction_of(talker.items, "sk-elsewhere")).pieces[0]))  # type: ignore[arg-type]
    talker.items = compacted["output"]
    talker.talk(2)
    assert len(api.refusals) == len(talker.warned) == 1
    assert talker.warned[0].startswith("the upstream cannot read 1 encrypted item of this conversation")
    assert talker.warned[0].endswith("sent again without it")
    assert count_sent(bench, "compaction") == 0
    assert count_sent(bench) == 3


def compaction_of(items: list[Json], key: str) -> Received:
    """A request to compact the user's messages for another organization."""
    users = [item for item in items if item.get("role") == "user"]
    body = {"model": "gpt-5.5", "input": users}
    return Received("/v1/responses/compact", json.dumps(body).encode(), {"authorization": f"Bearer {key}"})


def test_a_compaction_that_the_upstream_reads_stays(bench: Bench, api: EnforcingOpenAI, talker: Talker) -> None:
    """Reasoning that is refused behind it takes none of it along."""
    own = json.loads(bytes(api(compaction_of([user("Hi.")], talker.client.key)).pieces[0]))  # type: ignore[arg-type]
    talker.items = own["output"]
    talker.talk(1)
    cut = talker.items[-2]
    assert cut["type"] == "reasoning"
    cut["encrypted_content"] = cut["encrypted_content"][:40]
    talker.talk(2)
    assert len(api.refusals) == len(talker.warned) == 1
    assert count_sent(bench, "compaction") == 1


def test_a_compaction_that_was_taken_for_read_leaves_with_a_second_try(
    bench: Bench, api: EnforcingOpenAI, talker: Talker
) -> None:
    """An upstream may name a later item first."""
    foreign = json.loads(bytes(api(compaction_of([user("Hi.")], "sk-elsewhere")).pieces[0]))  # type: ignore[arg-type]

    def names_the_last(received: Received) -> Answer:
        answer = api(received)
        last = next((item for item in reversed(received.json["input"]) if item["type"] == "reasoning"), None)
        if answer.status == 400 and last is not None:
            message = f"The encrypted content for item {last['id']} could not be verified."
            return refuses(400, message, code="invalid_encrypted_content")(received)
        return answer

    talker.talk(1)
    talker.items = [*foreign["output"], *talker.items]
    bench.upstream.script = names_the_last
    talker.talk(2)
    assert len(api.refusals) == 2
    assert len(talker.warned) == 1


def test_a_stream_is_sent_again_too(api: EnforcingOpenAI, talker: Talker) -> None:
    """Nothing has reached the client before."""
    talker.talk(1)
    talker.items.append(user("And now?"))
    answer = talker.post(model="other", stream=True)
    assert len(api.refusals) == 1
    assert NOTICE in answer.headers["x-tidemark-warning"]
    assert '"type": "response.completed"' in answer.text


def test_before_openais_own_address_counts_compactions_and_triggers_are_answered_too(
    bench: Bench, api: EnforcingOpenAI, talker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is asked again without what is refused. Counts and the endpoint are no turns, so they teach nothing."""
    resolve = socket.getaddrinfo

    def near(host: Any, *rest: Any, **more: Any) -> Any:
        return resolve("127.0.0.1" if host == "api.openai.com" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", near)
    base = f"http://api.openai.com:{bench.upstream_url.rpartition(':')[2]}/v1"
    monkeypatch.setattr("tidemark.app.application.COUNTING_BASES", {base})
    talker.client = bench.client(talker.client.key, config=CONFIG.replace("{base}", base), window=9000)
    talker.talk(1)
    talker.items.append(user("And now?"))
    for path, kind in (("/v1/responses/input_tokens", "input_tokens"), ("/v1/responses/compact", "compaction")):
        answer = talker.post(path, model="other")
        assert answer.status_code == 200, answer.text
        assert answer.json()["object"] == f"response.{kind}"
    talker.items[-1] = TRIGGER
    answer = talker.post(model="other")
    assert [item["type"] for item in answer.json()["output"]] == ["compaction"]
    assert NOTICE in answer.headers["x-tidemark-warning"]
    assert len(api.refusals) == 3


def test_a_client_that_drops_its_own_reasoning_is_answered_as_it_would_be_straight(
    api: EnforcingOpenAI, talker: Talker
) -> None:
    """Without ids nothing is wrong; with the ids of what was made behind it the provider's own refusal says what is."""
    talker.talk(2)
    whole = list(talker.items)
    talker.items = [
        {name: value for name, value in item.items() if name != "id"} for item in whole if item["type"] != "reasoning"
    ]
    assert talker.say("And now?").status_code == 200
    assert api.refusals == []
    talker.items = [item for item in whole if item["type"] != "reasoning"]
    answer = talker.say("And now?")
    assert answer.status_code == 400
    assert "without its required 'reasoning' item" in answer.json()["error"]["message"]
    talker.items = whole
    assert talker.say("And now?").status_code == 200


def test_a_reasoning_item_that_was_cut_leaves(api: EnforcingOpenAI, talker: Talker) -> None:
    """Nobody can read it."""
    talker.talk(2)
    thought = next(item for item in talker.items if item["type"] == "reasoning")
    thought["encrypted_content"] = thought["encrypted_content"][:30]
    talker.talk(2)
    assert len(api.refusals) == len(talker.warned) == 1


def test_a_refusal_of_something_else_is_the_clients(bench: Bench, talker: Talker) -> None:
    """Also where it quotes words of the client's that speak of encrypted content; nothing is learned from it."""
    api = bench.upstream.script
    talker.talk(1)
    bench.upstream.script = refuses(400, "Your text 'invalid_encrypted_content' is not allowed here.")
    before = len(bench.upstream.received)
    answer = talker.say("Is invalid_encrypted_content an error?")
    assert answer.status_code == 400
    assert "is not allowed" in answer.json()["error"]["message"]
    assert len(bench.upstream.received) == before + 2
    bench.upstream.script = api
    del talker.items[-1]
    talker.talk(1)
    assert count_sent(bench) == 3


def test_where_nothing_would_be_left_the_refusal_is_the_clients(api: EnforcingOpenAI, talker: Talker) -> None:
    """A compaction alone cannot be answered without it."""
    foreign = json.loads(bytes(api(compaction_of([user("Hi.")], "sk-elsewhere")).pieces[0]))  # type: ignore[arg-type]
    talker.items = foreign["output"][-1:]
    answer = talker.post()
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_encrypted_content"


def test_a_talk_that_is_compacted_by_tidemark_loses_no_pair(api: EnforcingOpenAI, talker: Talker) -> None:
    """Under two models in turn, with calls whose reasoning was refused."""
    for number in range(30):
        talker.members["model"] = ("small", "other")[number // 8 % 2]
        answer = talker.say(long(number, 90))
        assert answer.status_code == 200, answer.text
    assert len(api.refusals) == len(talker.warned) <= 3
    assert "compacted" in {answer.headers["x-tidemark-action"] for answer in talker.answers}


def test_tidemarks_own_compaction_that_is_foreign_is_refused_and_the_conversation_goes_on_without(
    api: EnforcingOpenAI, talker: Talker
) -> None:
    """As a client's trigger with it is; the refusal names the place and what to send."""
    talker.talk(2)
    talker.items.append(TRIGGER)
    item = talker.post().json()["output"][0]
    talker.items[-1] = item
    talker.client.key += " of somebody else"
    for more in (user("And now?"), TRIGGER):
        talker.items[len(talker.items) - 1 :] = [item, more] if talker.items[-1] is item else [more]
        error = talker.post().json()["error"]
        assert (error["code"], error["param"]) == ("invalid_encrypted_content", f"input[{talker.items.index(item)}]")
        assert "Send the conversation itself in its place." in error["message"]
    talker.items = [each for each in talker.items if each not in (item, TRIGGER)]
    assert talker.say("And now?").status_code == 200
    assert len(api.refusals) == 1
