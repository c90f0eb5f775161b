"""Servers whose chat templates take one system message, or want a user's turn first (docs/adr/0049)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.providers.anthropic_messages import EnforcingAnthropic
from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, long, system, user
from tests.support.scripted import SSE_HEADERS, Answer, Received, Script, error, refuses, says
from tests.support.strict_templates import ALTERNATING, DROPPING, LENIENT, alternates, in_streams
from tidemark.codings import opened_reply

OPENING = "Summary of earlier turns"
TURNS = 45
NOTED = says("Noted.")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on a busy machine is waited for."""
    monkeypatch.setattr(opened_reply, "HOLD_SECONDS", 20.0)


def talk(client: Client, turns: int = TURNS, rules: str = "Be brief.", **asked: Any) -> list[str]:
    """Hold a conversation that crosses its window; return what was done at each turn."""
    said: list[Said] = [system(rules)] if rules else []
    actions: list[str] = []
    for number in range(turns):
        said.append(user(long(number)))
        got = client.post({"model": "small", "messages": said, "max_tokens": 100, **asked})
        assert (got.status_code, "event: error" in got.text) == (200, False), got.text
        actions.append(got.headers["x-tidemark-action"])
        said.append(assistant(f"Noted {number}."))
    assert actions.count("compacted") >= 2
    return actions


def places(received: Sequence[Received]) -> list[list[str]]:
    """The role of the message that begins with a summary in each request that has one."""
    return [
        [said["role"] for said in request.messages if str(said["content"]).startswith(OPENING)]
        for request in received
        if OPENING in request.body.decode()
    ]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("rules", ["Be brief.", ""], ids=["with rules", "without"])
@pytest.mark.parametrize("script", [alternates, in_streams(alternates)], ids=["status 400", "in the stream"])
def test_after_one_refusal_the_summary_stands_in_the_users_turn(
    bench: Bench, script: Script, rules: str, *, stream: bool
) -> None:
    """The client notices nothing, and the server is asked in vain once; the prefix stays frozen."""
    bench.upstream.script = script
    client = bench.client("k", more=", keep_last_messages: 3")
    actions = talk(client, rules=rules, stream=stream)
    received = bench.upstream.received
    refused = len(received) - len(actions)
    assert refused <= 1
    roles = places(received)
    assert all(role == ["user"] for role in roles[refused:])
    bodies = [request.body for request in received]
    for turn, action in enumerate(actions):
        if action == "reused" and turn > actions.index("compacted") + 1:
            before = bodies[turn + refused - 1].split(b'],"max_tokens"')[0]
            assert bodies[turn + refused].startswith(before)


def test_minimax_takes_one_system_message_and_does_not_say_so(bench: Bench) -> None:
    """Its words name no role; the talk goes on after one refusal."""

    def script(request: Received) -> Answer:
        if [said["role"] for said in request.messages].count("system") > 1:
            return error(400, "invalid params, invalid chat setting (2013)")
        return NOTED(request)

    bench.upstream.script = script
    actions = talk(bench.client("k", more=", keep_last_messages: 3"))
    assert len(bench.upstream.received) == len(actions) + 1
    assert all(roles == ["user"] for roles in places(bench.upstream.received)[1:])


@pytest.mark.parametrize("template", [ALTERNATING, DROPPING], ids=["refusing", "dropping"])
def test_a_server_that_shows_its_template_refuses_nothing(bench: Bench, template: str) -> None:
    """llama.cpp does; a template that drops the summary without a word would lose it for good."""
    bench.upstream.script = alternates
    bench.upstream.others.props = {"chat_template": template}
    talk(bench.client("k"))
    assert len(bench.upstream.received) == TURNS
    assert set(map(tuple, places(bench.upstream.received))) == {("user",)}


def test_a_lenient_server_gets_a_system_message(bench: Bench) -> None:
    """As everybody does of whom nothing else is known."""
    bench.upstream.others.props = {"chat_template": LENIENT}
    talk(bench.client("k"))
    assert set(map(tuple, places(bench.upstream.received))) == {("system",)}


def test_a_model_whose_template_drops_system_messages_is_known_by_name(bench: Bench) -> None:
    """gpt-oss, wherever it runs."""
    config = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/gpt-oss-20b, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 200, min_tokens: 300}}
"""
    talk(bench.client("k", config=config))
    assert set(map(tuple, places(bench.upstream.received))) == {("user",)}


def test_what_the_second_attempt_meets_is_told(bench: Bench) -> None:
    """A limit of the provider, say, so that the client waits and tries again; the order of roles is known by then."""
    client = bench.client("k")
    bench.upstream.script = lambda got: busy if (answer := alternates(got)).status == 200 else answer
    busy = error(429, "Too many requests.")
    said = [said for number in range(40) for said in (user(long(number)), assistant(f"Noted {number}."))]
    got = client.chat([system("Be brief."), *said, user("And now?")])
    assert (got.status_code, "Too many" in got.text, len(bench.upstream.received)) == (429, True, 2)
    client.chat([system("Be brief."), *said, user("And now?")])
    assert len(bench.upstream.received) == 3


def test_a_refusal_of_something_else_is_the_clients(bench: Bench) -> None:
    """In its own words, though they name a system message, after the request was sent twice at most."""
    client = bench.client("k")
    talk(client)
    count = len(bench.upstream.received)
    bench.upstream.script = refuses(400, "This account may send no system message.")
    said = [said for number in range(40) for said in (user(long(number)), assistant(f"Noted {number}."))]
    got = client.chat([system("Be brief."), *said, user("And now?")])
    assert (got.status_code, "may send no system" in got.text) == (400, True)
    assert len(bench.upstream.received) - count == 2


def test_a_stream_that_refuses_something_else_is_the_clients(bench: Bench) -> None:
    """To the byte, though its event was looked at before the client got the status."""
    client = bench.client("k")
    talk(client, stream=True)
    told = b'event: error\ndata: {"error": {"message": "Cannot call something that is not a function"}}\n\n'
    bench.upstream.script = lambda _: Answer([told], headers=list(SSE_HEADERS))
    said = [said for number in range(40) for said in (user(long(number)), assistant(f"Noted {number}."))]
    body = {"model": "small", "messages": [system("Be brief."), *said, user("And now?")], "stream": True}
    assert client.post(body).content == told


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialects", [{"chat"}, {"chat", "responses"}], ids=["bridged", "native"])
def test_codex_before_a_strict_server_gets_answers(bench: Bench, dialects: set[str], *, stream: bool) -> None:
    """On the bridge its instructions and developer items become one system message; a native refusal leads there."""
    bench.upstream.dialects = dialects

    def answer(request: Received) -> Answer:
        if request.dialect == "chat":
            return alternates(request)
        is_strict = OPENING in request.body.decode()
        return error(400, "Jinja Exception: System message must be at the beginning.") if is_strict else NOTED(request)

    bench.upstream.script = in_streams(answer)
    client = bench.client("k")
    for _ in range(2):  # what a server takes without a summary says nothing of one
        body = {"model": "small", "instructions": "You code.", "input": "Hello.", "store": False, "stream": stream}
        assert client.http.post("/v1/responses", json=body, headers=client.headers()).status_code == 200
    items: list[Said] = [{"role": "developer", "content": "Sandbox: read only."}]
    for number in range(TURNS):
        items.append(user(long(number)))
        body = {"model": "small", "instructions": "You code.", "input": items, "store": False, "max_output_tokens": 100}
        got = client.http.post("/v1/responses", json={**body, "stream": stream}, headers=client.headers())
        assert (got.status_code, "event: error" in got.text) == (200, False), got.text
        items.append(assistant(f"Noted {number}."))
    last = bench.upstream.last
    assert (last.dialect, OPENING in last.body.decode()) == ("chat", True)
    assert last.messages[0]["role"] == "system"
    assert [text in last.messages[0]["content"] for text in ("You code.", "Sandbox: read only.")] == [True, True]


def test_behind_litellm_no_answer_comes_before_a_users_turn(bench: Bench) -> None:
    """Anthropic, Bedrock and Gemini refuse that, so the summary is a user message there."""
    config = """
model_list:
  - model_name: small
    litellm_params: {{model: anthropic/claude-haiku-4-5, api_base: "{base}", api_key: k}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 80, min_tokens: 300, keep_last_messages: 2}}
"""
    bench.upstream.script = EnforcingAnthropic()
    said = [said for number in range(20) for said in (user(long(number)), assistant(f"Noted {number}."))]
    got = bench.client("k", config=config).chat([system("Be brief."), *said, user("And now?")], summarize="force")
    assert (got.status_code, got.headers["x-tidemark-action"]) == (200, "forced")
    first, second, *_ = bench.upstream.last.messages
    assert (first["role"], OPENING in str(first), second["role"]) == ("user", True, "assistant")
