"""Thinking stays behind the prefix that it was made behind, and leaves where that has changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.providers.anthropic_messages import BETA, EnforcingAnthropic
from tests.request.conftest import Bench, Client
from tests.request.talk import long

Json = dict[str, Any]
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{{{model: openai/{model}, api_base: "{{base}}"}}}}
    model_info: {{{{max_input_tokens: {{window}}, max_output_tokens: 200{info}}}}}
compaction:
  defaults: {{{{strategy: extractive, retention_tokens: 400, min_tokens: 300{{more}}}}}}
"""
CHECKING = CONFIG.format(model="claude-opus-5-5", info="")
UNKNOWN = CONFIG.format(model="house-model", info="")
TOLD = CONFIG.format(model="house-model", info=", thinking_binding: true")
DENIED = CONFIG.format(model="claude-opus-5-5", info=", thinking_binding: false")


class Talker:
    """A client of the Messages API that keeps its history as the API wants it: append only."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.messages: list[Json] = []
        self.members: Json = {"thinking": {"type": "adaptive"}}
        self.answers: list[httpx.Response] = []

    def post(self, path: str = "/v1/messages", **asked: str) -> httpx.Response:
        """Send the history as it is."""
        body = {"model": "small", "max_tokens": 100, "system": "Be brief.", "messages": self.messages, **self.members}
        return self.client.http.post(path, json=body, headers=self.client.headers(**asked))

    def say(self, words: str | list[Json], **asked: str) -> httpx.Response:
        """Say something, and keep the answer."""
        self.messages.append({"role": "user", "content": words})
        answer = self.post(**asked)
        self.answers.append(answer)
        if answer.status_code == 200:
            self.messages.append({"role": "assistant", "content": answer.json()["content"]})
        return answer

    def talk(self, turns: int, start: int = 0) -> None:
        """Several turns; every one must be answered."""
        for number in range(start, start + turns):
            answer = self.say(long(number, 90))
            assert answer.status_code == 200, answer.text

    @property
    def actions(self) -> list[str]:
        """What was done to each request."""
        return [answer.headers["x-tidemark-action"] for answer in self.answers]


@pytest.fixture
def api(bench: Bench) -> EnforcingAnthropic:
    """Anthropic's API behind the bench."""
    bench.upstream.script = EnforcingAnthropic()
    return bench.upstream.script


@pytest.fixture
def talker_of(bench: Bench, api: EnforcingAnthropic, request: pytest.FixtureRequest) -> Callable[..., Talker]:
    """Makes a client of a Tidemark of its own."""
    assert bench.upstream.script is api
    return lambda config=CHECKING, **settings: Talker(bench.client(request.node.nodeid, config=config, **settings))


def thoughts_in(bench: Bench) -> list[list[bool]]:
    """For each request, whether each of its answers went out with its thinking."""
    return [
        [
            any(block["type"] == "thinking" for block in said["content"])
            for said in received.messages
            if said["role"] == "assistant"
        ]
        for received in bench.upstream.received
    ]


def test_a_talk_goes_on_after_its_compactions(
    bench: Bench, api: EnforcingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """No request is refused, thinking before the cut is gone for good, and thinking after it stays."""
    talker = talker_of()
    talker.talk(40)
    assert api.refusals == []
    assert talker.actions.count("compacted") >= 2
    sent = thoughts_in(bench)
    for before, after, action in zip(sent, sent[1:], talker.actions[1:], strict=False):
        if action != "compacted":
            assert after[: len(before)] == before, "what is left out stays left out"
            assert after[-1], "the newest answer's thinking stays"
    bodies = [received.json["messages"] for received in bench.upstream.received]
    for earlier, later, action in zip(bodies, bodies[1:], talker.actions[1:], strict=False):
        if action == "reused":
            assert later[: len(earlier)] == earlier


def test_without_the_rule_the_same_talk_ends(api: EnforcingAnthropic, talker_of: Callable[..., Talker]) -> None:
    """``thinking_binding: false`` leaves the thinking where it is: the first compaction is refused."""
    talker = talker_of(DENIED)
    with pytest.raises(AssertionError):
        talker.talk(40)
    assert "bound to a different conversation" in api.refusals[0]


def test_an_unknown_model_teaches_that_it_checks(
    bench: Bench, api: EnforcingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """Its refusal is answered by one more request without the thinking, and the client is warned, once."""
    talker = talker_of(UNKNOWN)
    talker.talk(40)
    assert len(api.refusals) == 1
    warned = [answer for answer in talker.answers if "refused thinking" in answer.headers.get("x-tidemark-warning", "")]
    assert len(warned) == 1
    assert len(bench.upstream.received) == 41


def test_the_configuration_says_that_a_model_checks(api: EnforcingAnthropic, talker_of: Callable[..., Talker]) -> None:
    """``thinking_binding: true``: nothing is refused and nothing has to be learned."""
    talker_of(TOLD).talk(30)
    assert api.refusals == []


def test_what_the_client_changes_is_refused_once_and_goes_on(
    bench: Bench, api: EnforcingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """The thinking behind an edited message leaves for good; that before it stays."""
    talker = talker_of(window=50_000)
    talker.talk(6)
    talker.messages[4]["content"] = "Something else."
    talker.talk(4, start=6)
    assert len(api.refusals) == 1
    assert thoughts_in(bench)[-1] == [True] * 2 + [False] * 4 + [True] * 3


def test_another_worker_knows_what_thinking_is_bound_to(
    bench: Bench, api: EnforcingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """The store has it, so every worker forwards the same bytes."""
    talker, other = talker_of(), talker_of()
    other.client.key = talker.client.key
    talker.talk(20)
    other.messages, other.answers = talker.messages, talker.answers
    before = bench.upstream.last.json["messages"]
    bench.settle()
    assert other.say("Go on.").status_code == 200
    assert api.refusals == []
    assert bench.upstream.last.json["messages"][: len(before)] == before
    assert bench.upstream.last.json["messages"][len(before)]["content"][0]["type"] == "thinking"


def test_a_summary_taken_back_by_a_rewind_takes_its_thinking_along(
    bench: Bench, api: EnforcingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """With compaction switched off the whole history goes out: what was made behind the summary leaves."""
    talker = talker_of()
    talker.talk(20)
    cut = talker.actions.index("compacted")
    assert talker.say("And now?", summarize="off").status_code == 200
    assert api.refusals == []
    assert thoughts_in(bench)[-1] == [True] * cut + [False] * (20 - cut)


def test_manual_thinking_in_a_tool_loop_is_dropped_by_the_provider(
    bench: Bench, api: EnforcingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """It demands the newest answer's thinking, so the request names the beta and asks for the drop."""
    talker = talker_of()
    talker.members = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "tools": [READ]}
    api.say = reading(4)
    for number in range(30):
        calls = [block for block in (talker.messages[-1]["content"] if talker.messages else []) if "input" in block]
        results = [{"type": "tool_result", "tool_use_id": each["id"], "content": long(number, 90)} for each in calls]
        answer = talker.say(results or long(number, 90))
        assert answer.status_code == 200, answer.text
    assert api.refusals == []
    assert api.dropped
    asked = [received for received in bench.upstream.received if b"drop_block" in received.body]
    assert all(BETA in received.headers["anthropic-beta"] for received in asked)
    assert 0 < len(asked) < 12


def test_counting_tokens_is_answered_after_a_compaction(
    api: EnforcingAnthropic, bench: Bench, talker_of: Callable[..., Talker]
) -> None:
    """The count of the whole history has thinking behind another prefix; it is asked again without."""
    talker = talker_of()
    talker.talk(20)
    bench.upstream.others.counts = api
    talker.messages.append({"role": "user", "content": "And now?"})
    assert talker.post("/v1/messages/count_tokens").status_code == 200
    assert len(api.refusals) == 1


READ: Json = {"name": "read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}


def reading(steps: int) -> Callable[[Json], list[Json]]:
    """Reads some files before each answer."""

    def say(body: Json) -> list[Json]:
        done = 0
        for said in reversed(body["messages"]):
            if said["role"] == "user" and not any(
                "tool_use_id" in block for block in said["content"] if isinstance(block, dict)
            ):
                break
            done += said["role"] == "user"
        mark = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()[:12]
        thought = {"type": "thinking", "thinking": f"Hm {mark}."}
        if done < steps:
            return [thought, {"type": "tool_use", "id": f"toolu_{mark}", "name": "read", "input": {"at": done}}]
        return [thought, {"type": "text", "text": f"Done {mark}."}]

    return say


OLD = CONFIG.format(model="claude-sonnet-4-5", info="")


@pytest.mark.parametrize(
    "config", [CHECKING, UNKNOWN, OLD], ids=["a checking model", "an unknown model", "an old model"]
)
@pytest.mark.parametrize("window", [2000, 50_000])
def test_thinking_with_an_invalid_signature_leaves_once(
    bench: Bench, api: EnforcingAnthropic, talker_of: Callable[..., Talker], config: str, window: int
) -> None:
    """One that was cut, or of another account: later turns leave it out at once, on another worker, too."""
    api.checks = config != OLD
    talker = talker_of(config, window=window)
    talker.talk(2)
    block = talker.messages[1]["content"][0]
    block["signature"] = block["signature"][:20]
    talker.talk(2, start=2)
    invalid = [answer for answer in talker.answers if "not valid" in answer.headers.get("x-tidemark-warning", "")]
    assert len(invalid) == len(api.refusals) == 1
    bench.settle()
    other = talker_of(config, window=window)
    other.client.key, other.messages = talker.client.key, talker.messages
    other.talk(2, start=4)
    assert len(api.refusals) == 1
    assert thoughts_in(bench)[-1] == [False] * 2 + [True] * 3
