"""``mask_results``: a compaction first puts a line in the place of old tool results, in every dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.core.histories import message
from tests.features.live_events.test_live_events import listening
from tests.request.compaction.test_whole_tool_steps import Item
from tests.request.conftest import Bench, Client
from tests.request.talk import user
from tests.support.scripted import Answer, Call, Received, Turn, says, tells
from tidemark.core.conversation.summary import OPENING as SUMMARY
from tidemark.core.planning.masks import LINE_TOKENS
from tidemark.core.recall.result_lines import OPENING
from tidemark.core.recall.search_function import FUNCTION_NAME
from tidemark.core.report import Report
from tidemark.pipeline.lossless import with_saved_tokens
from tidemark.pipeline.values import FittedRequest, RequestContext
from tidemark.tokens import LocalTokenCounter

MASKING = ", mask_results: true"
STEPS = 16
WINDOW = 16_000
PROMPT = "Mend the parser, and never touch the file config.yaml."
HANDLE = re.compile(r"handle (m[0-9a-f]{8})\]")


def result_of(number: int) -> str:
    """What a tool returned: 120 lines, of which the middle one has a value."""
    lines = [f"{line}: token {number * 7919 + line} of part {number}" for line in range(120)]
    return "\n".join([f"reading part {number}", *lines, f"done with part {number}"])


@dataclass(frozen=True)
class Agent:
    """How an agent of a dialect words its session."""

    path: str
    member: str
    bound: str
    step: Callable[[int], list[Item]]
    results: Callable[[list[Item]], list[str]]


def _chat_step(number: int) -> list[Item]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "view", "arguments": f'{{"part": {number}}}'}}
    said = {"role": "assistant", "content": f"I look at part {number}.", "tool_calls": [call]}
    return [said, {"role": "tool", "tool_call_id": f"c{number}", "content": result_of(number)}]


def _responses_step(number: int) -> list[Item]:
    call = {"type": "function_call", "call_id": f"c{number}", "name": "view", "arguments": f'{{"part": {number}}}'}
    said = {"role": "assistant", "content": f"I look at part {number}."}
    return [said, call, {"type": "function_call_output", "call_id": f"c{number}", "output": result_of(number)}]


def _messages_step(number: int) -> list[Item]:
    use = {"type": "tool_use", "id": f"c{number}", "name": "view", "input": {"part": number}}
    said = {"role": "assistant", "content": [{"type": "text", "text": f"I look at part {number}."}, use]}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result_of(number)}
    return [said, {"role": "user", "content": [result]}]


AGENTS = {
    "chat": Agent(
        "/v1/chat/completions",
        "messages",
        "max_tokens",
        _chat_step,
        lambda items: [item["content"] for item in items if item["role"] == "tool"],
    ),
    "responses": Agent(
        "/v1/responses",
        "input",
        "max_output_tokens",
        _responses_step,
        lambda items: [item["output"] for item in items if item.get("type") == "function_call_output"],
    ),
    "messages": Agent(
        "/v1/messages",
        "messages",
        "max_tokens",
        _messages_step,
        lambda items: [
            block["content"]
            for item in items
            if isinstance(item["content"], list)
            for block in item["content"]
            if block["type"] == "tool_result"
        ],
    ),
}
EVERY_DIALECT = pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)


def post(client: Client, agent: Agent, items: list[Item], **asked: str) -> httpx.Response:
    """Send a request of an agent."""
    body = {"model": "small", agent.member: items, agent.bound: 200}
    return client.http.post(agent.path, json=body, headers=client.headers(**asked))


def session(
    client: Client, bench: Bench, agent: Agent, steps: int = STEPS, **asked: str
) -> Iterator[tuple[dict[str, str], list[Item]]]:
    """Send a growing session; yield the headers of each answer, and the items that went out."""
    items: list[Item] = [{"role": "user", "content": PROMPT}]
    for number in range(steps):
        items += agent.step(number)
        got = post(client, agent, items, **asked)
        assert got.status_code == 200, got.text
        bench.settle()
        yield dict(got.headers), bench.upstream.received[-1].messages


@EVERY_DIALECT
def test_old_results_become_lines_and_all_that_was_said_stays(
    bench: Bench, request: pytest.FixtureRequest, agent: Agent
) -> None:
    """No model is asked, calls and results stay paired, and the newest results are whole."""
    client = bench.client(request.node.nodeid, more=MASKING, window=WINDOW)
    actions, masked = [], 0
    for number, (headers, sent) in enumerate(session(client, bench, agent)):
        actions.append(headers["x-tidemark-action"])
        results = agent.results(sent)
        assert len(results) == number + 1
        assert results[-1] == result_of(number)
        lines = [text for text in results if text.startswith(OPENING)]
        assert len(lines) >= masked, "what is masked once stays so"
        masked = len(lines)
        assert all(text in (*lines, *map(result_of, range(number + 1))) for text in results)
        assert json.dumps(sent).count("I look at part") == number + 1
        if headers["x-tidemark-action"] == "compacted":
            assert masked
            assert int(headers["x-tidemark-tokens-after"]) <= 0.6 * WINDOW
    assert "compacted" in actions
    assert len(bench.upstream.received) == STEPS, "each request is the client's own"
    assert masked >= 3
    assert SUMMARY not in str(bench.upstream.received[-1].body)


@EVERY_DIALECT
def test_between_two_compactions_the_bytes_stay(bench: Bench, request: pytest.FixtureRequest, agent: Agent) -> None:
    """So the provider's cache has them; another worker, and one after a restart, sends the same."""
    client = bench.client(request.node.nodeid, more=MASKING, window=WINDOW)
    before: list[Item] = []
    for headers, sent in session(client, bench, agent):
        if headers["x-tidemark-action"] in ("reused", "none"):
            assert sent[: len(before)] == before
        before = sent
    again = bench.client(client.key, more=MASKING, window=WINDOW)
    items: list[Item] = [{"role": "user", "content": PROMPT}]
    for number in range(STEPS):
        items += agent.step(number)
    post(again, agent, items)
    assert bench.upstream.received[-1].messages == before


def test_a_masked_result_comes_back_byte_for_byte(bench: Bench, request: pytest.FixtureRequest) -> None:
    """By the handle that its line shows, through the function and over HTTP."""
    agent = AGENTS["chat"]
    client = bench.client(request.node.nodeid, more=MASKING + ", recall: {tool: true}", window=WINDOW)
    asked = ((headers, agent.results(sent)[0]) for headers, sent in session(client, bench, agent))
    headers, line = next((headers, first) for headers, first in asked if first.startswith(OPENING))
    handles, talk = HANDLE.findall(line), headers["x-tidemark-conversation"]
    got = client.http.get(f"/tidemark/conversations/{talk}/results/{handles[0]}", headers=client.headers())
    assert got.text == result_of(0)
    read: list[str] = []

    def script(received: Received) -> Answer:
        last = received.messages[-1]
        if str(last.get("content")).startswith(handles[0]):
            read.append(last["content"])
            return says("Done.")(received)
        return tells(Turn(calls=(Call(FUNCTION_NAME, json.dumps({"handle": handles[0]})),)))(received)

    bench.upstream.script = script
    items: list[Item] = [{"role": "user", "content": PROMPT}]
    for number in range(STEPS):
        items += agent.step(number)
    assert post(client, agent, items).json()["choices"][0]["message"]["content"] == "Done."
    heading, _, text = read[0].partition("\n")
    assert f"of {result_of(0).count(chr(10)) + 1}." in heading
    assert result_of(0).startswith(text)
    assert len(text) > 1000


def test_without_the_function_no_line_names_a_handle(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A handle that nothing reads would make a model ask for what it cannot get."""
    client = bench.client(request.node.nodeid, more=MASKING, window=WINDOW)
    *_, (_, sent) = session(client, bench, AGENTS["chat"])
    assert OPENING in json.dumps(sent)
    assert not HANDLE.search(json.dumps(sent))


def test_if_lines_are_not_enough_a_summary_is_made_of_the_originals(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """It reads what the results said, and the next masks stand behind it."""
    client = bench.client(request.node.nodeid, more=MASKING, window=WINDOW)
    said, masked_behind = [], False
    for _, sent in session(client, bench, AGENTS["chat"], 45):
        summary = [str(item["content"]) for item in sent if str(item.get("content")).startswith(SUMMARY)]
        masked = OPENING in json.dumps([item for item in sent if item["role"] == "tool"])
        said += summary[:1]
        masked_behind = masked_behind or bool(summary and masked)
    assert said
    assert masked_behind
    assert OPENING not in "".join(said), "no line of a mask is taken for a result"


def test_force_asks_for_a_summary_and_no_masks(bench: Bench, request: pytest.FixtureRequest) -> None:
    """``X-Tidemark-Summarize: force``, also right behind a mask."""
    agent = AGENTS["chat"]
    client = bench.client(request.node.nodeid, more=MASKING, window=WINDOW)
    sent = next(sent for headers, sent in session(client, bench, agent) if headers["x-tidemark-action"] == "compacted")
    assert OPENING in json.dumps(sent)
    steps = len(agent.results(sent))
    items: list[Item] = [{"role": "user", "content": PROMPT}]
    for number in range(steps):
        items += agent.step(number)
    got = post(client, agent, items, summarize="force")
    assert got.headers["x-tidemark-action"] == "forced", dict(got.headers)
    forced = bench.upstream.received[-1].messages
    assert str(forced[0]["content"]).startswith(SUMMARY)
    bench.settle()
    post(client, agent, items)
    assert bench.upstream.received[-1].messages == forced, "the summary is in use from now on"


def counted(client: Client, bench: Bench, items: list[Item], **members: object) -> dict[str, str]:
    """Send a chat request, and hold what is told of its size against a count of what went out."""
    got = client.post({"model": "small", "messages": items, "max_tokens": 100, **members})
    assert got.status_code == 200, got.text
    bench.settle()
    sent = client.http.post("/tidemark/count", content=bench.upstream.last.body).json()["input_tokens"]
    assert int(got.headers["x-tidemark-tokens-after"]) == sent <= int(got.headers["x-tidemark-limit"])
    return dict(got.headers)


def test_what_is_told_of_a_masked_request_is_what_goes_out(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Also with functions and no system message, in which a summary would take some tokens more or less."""
    client = bench.client(request.node.nodeid, more=MASKING, window=WINDOW)
    function = {"name": "view", "parameters": {"type": "object", "properties": {"part": {"type": "integer"}}}}
    items: list[Item] = [{"role": "user", "content": PROMPT}]
    for number in range(STEPS):
        items += _chat_step(number)
        counted(client, bench, items, tools=[{"type": "function", "function": function}])
    assert OPENING in json.dumps(bench.upstream.received[-1].messages)


def test_an_absorbed_system_message_that_comes_again_counts_behind_masks(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """The summary has the first one. The second stands among messages that go out, so it goes out, too."""
    client = bench.client(request.node.nodeid, more=MASKING + ", target: 0.7", window=12_000)
    reminder = {"role": "system", "content": "Reminder: " + "be good at it. " * 900}
    items: list[Item] = [{"role": "user", "content": PROMPT}, reminder, {"role": "user", "content": "Yes."}]
    items += [*_chat_step(99), {"role": "assistant", "content": "Fine."}]
    items.append({"role": "user", "content": "And this: " + "word and word " * 2600})
    counted(client, bench, items)
    assert reminder not in bench.upstream.received[-1].messages
    items += [{"role": "assistant", "content": "Fine."}, {"role": "user", "content": "Go on."}]
    masked_beside = False
    for number in range(9):
        items += _chat_step(number)
        if number == 4:
            items += [reminder, {"role": "user", "content": "Once more."}]
        counted(client, bench, items)
        sent = bench.upstream.received[-1].messages
        masked_beside = masked_beside or (reminder in sent and OPENING in json.dumps(sent))
    assert masked_beside


@pytest.mark.parametrize("text", ["漢字かな交じり文", "\U0001f600\U0001f389", "龘靐齉", "kX9+/vQz"])
def test_a_line_keeps_within_its_bound_in_any_script(bench: Bench, request: pytest.FixtureRequest, text: str) -> None:
    """A plan counts with it; characters of some scripts take two tokens each."""
    client = bench.client(request.node.nodeid, more=MASKING + ", recall: {tool: true}", window=WINDOW)
    items: list[Item] = [{"role": "user", "content": PROMPT}]
    for number in range(STEPS):
        said, result = _chat_step(number)
        items += [said, {**result, "content": f"{text * 60}{number}\n" * 6}]
        post(client, AGENTS["chat"], items)
        bench.settle()
    sent = [item for received in bench.upstream.received for item in received.messages]
    lines = [result for result in sent if OPENING in str(result["content"])[:20]]
    assert lines
    for line in lines:
        assert LocalTokenCounter().count_message(message(**line), "scripted") <= LINE_TOKENS


def test_masks_do_not_stand_upon_a_summary_that_a_plan_passes_over(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """A smaller window has no space for it: the whole results are masked, and its text goes out no more."""
    key = request.node.nodeid
    items: list[Item] = [{"role": "user", "content": PROMPT}]
    for number in range(4):
        items += _chat_step(number)
    items += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now?"}]
    bench.upstream.script = says("".join(f"The part {number} was read. " for number in range(500)))
    wide = bench.client(key, window=40_000, strategy="llm", more=", max_summary_tokens: 4000")
    assert (
        post(wide, AGENTS["chat"], items, summarize="force", retention_tokens="0").headers["x-tidemark-action"]
        == "forced"
    )
    bench.settle()
    narrow = bench.client(key, more=MASKING, window=2600, strategy="llm")
    headers = counted(narrow, bench, items)
    sent = bench.upstream.received[-1].messages
    assert headers["x-tidemark-action"] == "compacted"
    assert SUMMARY not in json.dumps(sent)
    assert [item["role"] for item in sent] == [item["role"] for item in items]
    assert OPENING in json.dumps(sent)


def test_masks_are_told_as_what_they_are(bench: Bench, request: pytest.FixtureRequest) -> None:
    """No summary stands for a message, the event has the tokens before and after, and the view of a turn its lines."""
    client = bench.client(request.node.nodeid, more=MASKING, window=WINDOW)
    items: list[Item] = [{"role": "user", "content": PROMPT}]
    headers: dict[str, str] = {}
    with listening(client) as listener:
        while headers.get("x-tidemark-action") != "compacted":
            items += _chat_step(len(items))
            headers = dict(post(client, AGENTS["chat"], items).headers)
        told = listener.wait_for("compaction.finished")
    assert headers["x-tidemark-summarized-messages"] == "0"
    assert told["trigger"] == told["strategy"] == "mask"
    assert str(told["tokens_before"]) == headers["x-tidemark-tokens-before"]
    assert str(told["tokens_after"]) == headers["x-tidemark-tokens-after"]
    path = f"/tidemark/conversations/{headers['x-tidemark-conversation']}/context"
    bench.settle()
    for asked in ("", f"?at={len(items)}"):
        seen = client.http.get(path + asked, headers=client.headers()).json()
        assert seen["summarized_messages"] == 0
        assert seen["messages"][: len(items)] == bench.upstream.received[-1].messages


def test_lossless_forms_save_nothing_of_masked_results(
    bench: Bench, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told is saved of the results that go out."""
    told: list[int] = []

    def listens(context: RequestContext, fitted: FittedRequest) -> Report:
        report = with_saved_tokens(context, fitted)
        told.append(report.lossless_tokens)
        return report

    monkeypatch.setattr("tidemark.pipeline.steps.with_saved_tokens", listens)
    client = bench.client(request.node.nodeid, more=MASKING + ", tool_results: lossless", window=WINDOW)
    items: list[Item] = [{"role": "user", "content": PROMPT}]
    listed = [{"name": f"part {number}", "size": number} for number in range(100)]
    for number in range(STEPS):
        said, result = _chat_step(number)
        said["tool_calls"][0]["function"] = {"name": "list", "arguments": f'{{"part": {number}}}'}
        items += [said, {**result, "content": json.dumps([number, listed], indent=2)}]
        counted(client, bench, items)
    sent = bench.upstream.received[-1].messages
    size = LocalTokenCounter().count_message
    lengths = (
        [size(message(**item), "scripted") for item in items],
        [size(message(**item), "scripted") for item in sent],
    )
    saved = [
        before - after
        for before, after, item in zip(*lengths, sent, strict=True)
        if not str(item["content"]).startswith(OPENING)
    ]
    assert len(saved) < len(sent)
    assert told[-1] == sum(saved)


def test_a_client_that_sends_new_messages_only_has_the_same_masks(bench: Bench, request: pytest.FixtureRequest) -> None:
    """The store supplies the rest, of which no message may be left out: the lines stand among them."""
    client = bench.client(request.node.nodeid, more=MASKING + ", recall: {max_tokens: 0}", window=WINDOW)
    *_, (_, sent) = session(client, bench, AGENTS["chat"], conversation="c")
    assert OPENING in json.dumps(sent)
    bench.upstream.script = says("Fine.")
    got = client.chat([user("And now?")], conversation="c", history="stored")
    assert (got.status_code, got.headers["x-tidemark-action"]) == (200, "reused")
    assert bench.upstream.received[-1].messages[: len(sent)] == sent
    assert bench.upstream.received[-1].messages[-1]["content"] == "And now?"
