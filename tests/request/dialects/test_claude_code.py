"""Claude Code's requests: betas, cache marks that move, a system block that changes, and a reply of 32,000 tokens."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.dialects.messages.anthropic_talk import CACHED, assistant, calls, result, text, thinking, user, whole_reply
from tests.request.conftest import Bench, Client
from tests.request.talk import long
from tests.support.scripted import Answer, Received, error, says
from tidemark.core.conversation.summary import OPENING

BETAS = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24"
READ = {"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}}


def body_of(number: int, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The body of a request; the newest message has a cache mark, and the first block of ``system`` is new."""
    *before, newest = messages
    blocks = newest["content"] if isinstance(newest["content"], list) else [text(newest["content"])]
    marked = {**newest, "content": [*blocks[:-1], {**blocks[-1], "cache_control": CACHED}]}
    return {
        "model": "small",
        "messages": [*before, marked],
        "system": [
            text(f"x-anthropic-billing-header: cc_version=2.0; cch={number:05x};"),
            text("You are Claude Code.", cache_control=CACHED),
            text("Be brief.", cache_control=CACHED),
        ],
        "tools": [READ],
        "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "s"})},
        "max_tokens": 32_000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "stream": False,
    }


def send(client: Client, body: dict[str, Any]) -> httpx.Response:
    """Send a request as Claude Code does."""
    headers = {
        "authorization": f"Bearer {client.key}",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": BETAS,
        "x-claude-code-session-id": f"s-{len(body['messages'])}",
        "user-agent": "claude-cli/2.0 (external, cli)",
    }
    return client.http.post("/v1/messages?beta=true", json=body, headers=headers)


def reading(received: Received) -> Answer:
    """Reads a file after a question, and answers after the file."""
    newest = received.messages[-1]["content"]
    if newest[0]["type"] == "tool_result":
        return Answer([whole_reply(text("Fine."))])
    call = calls("Read", f"toolu_{len(received.body)}", path=f"f{len(received.messages)}.py")
    return Answer([whole_reply(thinking("Hm."), call, stop_reason="tool_use")])


def test_a_session_stays_one_conversation_and_is_compacted(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Ids stay, calls keep their results, members and betas pass, at most four marks go out."""
    bench.upstream.script = reading
    client = bench.client(request.node.nodeid)
    talk: list[dict[str, Any]] = []
    ids, actions = set(), []
    for number in range(24):
        if not talk or talk[-1]["role"] == "assistant":
            talk.append(user(long(number, 60)))
        answer = send(client, body_of(number, talk))
        assert answer.status_code == 200
        ids.add(answer.headers["x-tidemark-conversation"])
        actions.append(answer.headers["x-tidemark-action"])
        received = bench.upstream.last
        sent = received.json
        assert {**sent, "messages": ..., "model": "small"} == {**body_of(number, talk), "messages": ...}
        assert received.headers["anthropic-beta"] == BETAS
        assert received.body.count(b'"cache_control"') <= 4
        called = [
            block["id"]
            for each in sent["messages"]
            for block in each["content"]
            if isinstance(block, dict) and "input" in block
        ]
        answered = [
            block["tool_use_id"]
            for each in sent["messages"]
            for block in each["content"]
            if isinstance(block, dict) and "tool_use_id" in block
        ]
        assert called == answered
        content = answer.json()["content"]
        talk.append(assistant(*content))
        if content[-1]["type"] == "tool_use":
            talk.append(user(result(content[-1]["id"], long(number, 80))))
    assert len(ids) == 1
    assert {"compacted", "reused"} <= set(actions)
    first = bench.upstream.last.json["messages"][0]["content"][0]
    assert first["text"].startswith(OPENING)
    assert first["cache_control"] == CACHED


def test_what_stays_of_a_compacted_session_is_byte_for_byte_the_clients(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """Thinking with its signature, too."""
    bench.upstream.script = lambda _: Answer([whole_reply(text("Fine."))])
    client = bench.client(request.node.nodeid)
    talk: list[dict[str, Any]] = []
    for number in range(20):
        talk += [user(long(number, 90)), assistant(thinking("Hm.", f"c2ln{number}"), text("Fine."))]
    talk.append(user("And now?"))
    body = body_of(1, talk)
    assert send(client, body).headers["x-tidemark-action"] == "compacted"
    sent = bench.upstream.last.json["messages"]
    assert sent[1:] == body["messages"][-len(sent) + 1 :]
    assert len(sent) > 2


@pytest.mark.parametrize("stream", [False, True])
def test_reminders_reach_a_server_that_takes_one_system_message(
    bench: Bench, request: pytest.FixtureRequest, *, stream: bool
) -> None:
    """Claude Code tells reminders as system messages; where a chat template refuses them, they are the user's."""

    def strict(received: Received) -> Answer:
        later = [said["role"] for said in received.json["messages"][1:]]
        if "system" in later:
            return error(400, "Jinja Exception: System message must be at the beginning.")
        return says("Fine.")(received)

    bench.upstream.script, bench.upstream.dialects = strict, {"chat"}
    client = bench.client(request.node.nodeid)
    reminder = {"role": "system", "content": "The date has changed."}
    messages = [
        user("Hello."),
        assistant(calls("Read", "toolu_1", path="a.py")),
        user(result("toolu_1", "x")),
        reminder,
    ]
    for _ in range(2):
        answer = send(client, {**body_of(1, messages[:3]), "messages": messages, "stream": stream})
        assert answer.status_code == 200, answer.text
        assert "Fine." in answer.text
    roles = [said["role"] for said in bench.upstream.last.json["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert bench.upstream.last.json["messages"][-1]["content"] == reminder["content"]
    sent = [received for received in bench.upstream.received if received.dialect == "chat"]
    assert len(sent) == 3, "the second request is not refused first"
