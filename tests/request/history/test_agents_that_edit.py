"""Agents that change what they sent before keep their conversation, and cost no summary with each request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.request.conftest import Bench
from tests.request.talk import Said, assistant, long, user
from tests.support.scripted import Answer, Received, says

STEPS = 24
MARK = "[Old tool result content cleared]"
NOTE = "[[NOTE] This file read has been removed to save space. Refer to the latest file read for its newest content.]"
REMINDER = "\n<system-reminder>\nYour mode has changed from plan to build.\n</system-reminder>"
SUMMARY = "The agent reads the files of a parser and repairs them. The cause is in the tokenizer. " * 3
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
Edit = Callable[[list[Said]], list[Said]]


def call_and_result(step: int, words: int) -> list[Said]:
    """One step of an agent: it reads one of five files."""
    call = {
        "id": f"call{step}",
        "type": "function",
        "function": {"name": "read", "arguments": f'{{"file": {step % 5}}}'},
    }
    result = {"role": "tool", "tool_call_id": f"call{step}", "content": long(step, words)}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, result]


def with_content(said: list[Said], places: list[int], content: str) -> list[Said]:
    """The same messages, some with another content."""
    return [{**one, "content": content} if place in places else one for place, one in enumerate(said)]


def results_of(said: list[Said]) -> list[int]:
    """The places of all results."""
    return [place for place, one in enumerate(said) if one["role"] == "tool"]


def clear_old(said: list[Said]) -> list[Said]:
    """Keep the newest three results."""
    return with_content(said, results_of(said)[:-3], MARK)


def drop_repeated(said: list[Said]) -> list[Said]:
    """Keep the newest read of each of the five files."""
    return with_content(said, results_of(said)[:-5], NOTE)


def remind(said: list[Said]) -> list[Said]:
    """Add a reminder to the newest question only, but not to the first one."""
    newest = max(place for place, one in enumerate(said) if one["role"] == "user")
    return with_content(said, [newest], said[newest]["content"] + REMINDER) if newest else said


EDITS: dict[str, Edit] = {"cleared": clear_old, "repeated reads": drop_repeated, "reminders": remind}


def sessions(steps: int, words: int) -> list[list[Said]]:
    """What an agent keeps at each of its requests; every eighth has a new question."""
    said: list[Said] = []
    requests = []
    for step in range(steps):
        if step % 8 == 0:
            said = [
                *said,
                *([assistant(f"Part {step} is done.")] if step else []),
                user(f"Repair part {step}, please."),
            ]
        requests.append(said)
        said = [*said, *call_and_result(step, words)]
    return requests


def is_for_summary(request: Received) -> bool:
    """Whether a request asks for a summary: the agent's own have tools."""
    return "tools" not in request.json


def answering(request: Received) -> Answer:
    """An upstream that writes summaries, and answers all else."""
    return says(SUMMARY if is_for_summary(request) else "Go on.")(request)


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_a_session_has_one_id_and_one_entry(bench: Bench, edit: Edit, request: pytest.FixtureRequest) -> None:
    """The agent's wording is forwarded and stored, what it sent first stays readable, and the client is told once."""
    bench.upstream.script = answering
    client = bench.client(request.node.nodeid, window=60_000)
    ids, warnings = set(), []
    for said in sessions(STEPS, 60):
        answer = client.post({"model": "small", "messages": edit(said), "tools": TOOLS})
        assert answer.status_code == 200, answer.text
        assert bench.upstream.last.messages == edit(said)
        ids.add(answer.headers["x-tidemark-conversation"])
        warnings += [answer.headers[name] for name in answer.headers if name == "x-tidemark-warning"]
        bench.settle()
    assert len(ids) == 1
    assert len(warnings) == 1
    assert "message" in warnings[0]
    (entry,) = client.http.get("/tidemark/conversations", headers=client.headers()).json()["data"]
    assert entry["id"] in ids
    page = client.http.get(f"/tidemark/conversations/{entry['id']}?limit=200", headers=client.headers()).json()["data"]
    last = sessions(STEPS, 60)[-1]
    assert [one["message"] for one in page[: len(last)]] == edit(last)
    places = [*results_of(last), *(place for place, one in enumerate(last[1:], 1) if one["role"] == "user")]
    sent_first = [page[place].get("original", page[place]["message"])["content"] for place in places]
    reminders = {"user": REMINDER if edit is remind else ""}
    assert sent_first == [last[place]["content"] + reminders.get(last[place]["role"], "") for place in places]


@pytest.mark.parametrize("edit", [clear_old, drop_repeated])
def test_summaries_are_made_of_settled_messages(bench: Bench, edit: Edit, request: pytest.FixtureRequest) -> None:
    """A summary that the next request could not use is not prepared: all requests together need one or two."""
    bench.upstream.script = answering
    window = 2_400 if edit is clear_old else 3_000
    client = bench.client(request.node.nodeid, window=window, strategy="llm")
    actions = []
    for said in sessions(2 * STEPS, 250):
        answer = client.post({"model": "small", "messages": edit(said), "tools": TOOLS, "max_tokens": 100})
        assert answer.status_code == 200, answer.text
        actions.append(answer.headers["x-tidemark-action"])
        bench.settle()
    asked = sum(map(is_for_summary, bench.upstream.received))
    assert 1 <= asked <= len(actions) // 8
    assert actions.count("compacted") <= asked
