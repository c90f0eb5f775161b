"""A client's cache marks on their way to Claude behind litellm, which takes them in chat messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.upstream.bridges.test_bridge_limits import OddUpstream
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.upstream.bridges.asking import ChatGoal
from tidemark.upstream.bridges.bridge import ChatBridge

CLAUDE = "anthropic.claude-3-5-sonnet-20241022-v2:0"
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
TALK = [
    {"role": "user", "content": [{"type": "text", "text": "Hi.", "cache_control": MARK}]},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": f"t{n}", "name": "look", "input": {}} for n in (1, 2)],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "Ebb."},
            {"type": "tool_result", "tool_use_id": "t2", "content": "Flood.", "cache_control": MARK},
            {"type": "text", "text": "Go on.", "cache_control": HOUR},
        ],
    },
]
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("see", "look")]


async def asked_of_claude(model: str = CLAUDE, goal: ChatGoal = "litellm", **members: Any) -> Any:
    """The chat request that a request of messages becomes."""
    upstream = OddUpstream(b'{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"Hi."}}]}')
    body = {"model": model, "max_tokens": 9, "messages": TALK, **members}
    request = await MessagesDialect().parse(json.dumps(body).encode())
    await ChatBridge(ChatDialect().write).send(request, upstream.answer, goal)
    return upstream.body_sent


async def test_each_mark_stands_at_the_message_that_it_ended() -> None:
    """On the system text and on tools, too; nothing else has one."""
    system = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind.", "cache_control": MARK}]
    request = await asked_of_claude(system=system, tools=[TOOLS[0], {**TOOLS[1], "cache_control": HOUR}])
    marks = [(message["role"], message.get("cache_control")) for message in request["messages"]]
    assert marks == [
        ("system", MARK),
        ("user", MARK),
        ("assistant", None),
        ("tool", None),
        ("tool", MARK),
        ("user", HOUR),
    ]
    assert [tool.get("cache_control") for tool in request["tools"]] == [None, HOUR]


async def test_a_mark_beside_an_image_stands_on_the_last_part() -> None:
    """Where a message has parts, litellm reads the marks of these."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    content = [{"type": "text", "text": "See."}, {**picture, "cache_control": MARK}]
    (message,) = (await asked_of_claude(messages=[{"role": "user", "content": content}]))["messages"]
    assert [part.get("cache_control") for part in message["content"]] == [None, MARK]
    assert "cache_control" not in message


@pytest.mark.parametrize(("model", "goal"), [("gemini-2.5-pro", "litellm"), (CLAUDE, "server"), (CLAUDE, "openai")])
async def test_nobody_else_gets_marks(model: str, goal: ChatGoal) -> None:
    """Strict servers refuse members that they do not know."""
    assert "cache_control" not in json.dumps(
        await asked_of_claude(model, goal, tools=[{**TOOLS[0], "cache_control": MARK}])
    )


@pytest.mark.parametrize("mark", [None, "ephemeral", 7, []])
async def test_a_mark_of_nonsense_is_left_out(mark: object) -> None:
    """It is no mark."""
    content = [{"type": "text", "text": "Hi.", "cache_control": mark}]
    assert "cache_control" not in json.dumps(await asked_of_claude(messages=[{"role": "user", "content": content}]))
