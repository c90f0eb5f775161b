"""Reading by a handle: the answer fits in its share, whatever the message is, and the client gets an answer."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.histories import message
from tests.request.compaction.test_recall import QUESTION, talk_with_fact
from tests.request.compaction.test_searching_models import ANSWER, TOOL
from tests.request.conftest import Bench
from tests.request.talk import Said, assistant, user
from tests.support.scripted import Answer, Call, Received, Turn, says, tells
from tidemark.core.recall.passage import handle_of
from tidemark.core.recall.search_function import (
    FUNCTION_NAME,
    NO_MESSAGE,
    NO_ROOM_TO_READ,
    NO_TEXT,
    SearchCall,
)
from tidemark.pipeline.message_search import read_message
from tidemark.tokens import LocalTokenCounter

MODEL = "gpt-4o"
COUNTER = LocalTokenCounter()
LARGE = {
    "one line": "".join(f'{{"id":{number}}},' for number in range(33_000))[:400_000],
    "spaces": " " * 400_000,
    "short lines": "ab\n" * 100_000,
    "no words": "\u6f22\U0001f600" * 9_000,
}
SHARES = (60, 61, 62, 64, 70, 100, 333, 1000, 8000)


@pytest.mark.parametrize("max_tokens", SHARES)
@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("span", ["", "bytes 7-399990", "lines 1"])
def test_what_a_handle_reads_fits_in_its_share(text: str, max_tokens: int, span: str) -> None:
    """With its heading, which is longer for bytes than for the lines that were asked for."""
    large = message(role="user", content=text)
    answer = read_message(SearchCall("", handle_of(large), span), [large], max_tokens, COUNTER, MODEL)
    assert answer.outcome == "recalled"
    assert COUNTER.count_text(answer.text, MODEL) <= max_tokens
    assert answer.text.partition("\n")[2] in text


@settings(max_examples=60)
@given(st.text(min_size=1, max_size=400), st.integers(0, 200))
def test_no_answer_is_larger_than_its_share(text: str, max_tokens: int) -> None:
    """One without space for a character says so."""
    any_message = message(role="user", content=text)
    answer = read_message(SearchCall("", handle_of(any_message)), [any_message], max_tokens, COUNTER, MODEL)
    if answer.text == NO_ROOM_TO_READ:
        assert max_tokens < 40
    else:
        assert COUNTER.count_text(answer.text, MODEL) <= max_tokens


def test_a_message_without_text_says_so() -> None:
    """It ends before no range; there is nothing to read."""
    empty = message(role="user", content="")
    assert read_message(SearchCall("", handle_of(empty), "lines 1-5"), [empty], 400, COUNTER, MODEL).text == NO_TEXT
    assert read_message(SearchCall("", "m00000000"), [empty], 400, COUNTER, MODEL).text == NO_MESSAGE


def test_a_client_gets_an_answer_if_a_model_reads_a_long_line(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Of 5 KB in a window of 2,000 tokens: a part comes, as large as its share, and the model goes on."""
    client = bench.client(request.node.nodeid, more=TOOL)
    line = ",".join(f'{{"crate":"K-{number * 7919}"}}' for number in range(300))[:5_000]
    call = {"id": "c1", "type": "function", "function": {"name": "crates", "arguments": "{}"}}
    listed: list[Said] = [user("List the crates."), {"role": "assistant", "content": None, "tool_calls": [call]}]
    listed += [{"role": "tool", "tool_call_id": "c1", "content": line}, assistant("Done.")]
    read: list[str] = []

    def script(received: Received) -> Answer:
        content = str(received.messages[-1]["content"])
        if received.messages[-1]["role"] != "tool":
            return tells(Turn(calls=(Call(FUNCTION_NAME, json.dumps({"query": f"crate K-{100 * 7919}"})),)))(received)
        if handles := re.findall(r"<<<tool (m[0-9a-f]{8}) \(5000 bytes\)\n", content):
            return tells(Turn(calls=(Call(FUNCTION_NAME, json.dumps({"handle": handles[0]})),)))(received)
        read.append(content)
        return says(ANSWER)(received)

    bench.upstream.script = script
    answered = client.chat([*listed, *talk_with_fact(), QUESTION])
    assert answered.json()["choices"][0]["message"]["content"] == ANSWER
    heading, _, text = read[0].partition("\n")
    assert re.match(r"m[0-9a-f]{8} \(tool\), bytes 1-\d+ of 5000\.", heading)
    assert text
    assert line.startswith(text)


def test_a_message_without_text_is_not_found_over_http(bench: Bench, request: pytest.FixtureRequest) -> None:
    """An empty answer would look like an empty file."""
    client = bench.client(request.node.nodeid, more=TOOL)
    bench.upstream.script = says("Fine.")
    call = {"id": "c1", "type": "function", "function": {"name": "crates", "arguments": "{}"}}
    silent: Said = {"role": "tool", "tool_call_id": "c1", "content": ""}
    asked: list[Said] = [user("List."), {"role": "assistant", "content": None, "tool_calls": [call]}, silent]
    talk = client.chat(asked, conversation="c").headers["x-tidemark-conversation"]
    bench.settle()
    path = f"/tidemark/conversations/{talk}/results/{handle_of(message(**silent))}"
    answer = client.http.get(path, headers=client.headers())
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "message_not_found")
    assert answer.json()["error"]["message"] == NO_TEXT


def test_a_summary_names_the_results_that_a_model_can_read_again(bench: Bench, request: pytest.FixtureRequest) -> None:
    """By call and handle, over several compactions; a handle from there returns the result byte for byte."""
    client = bench.client(request.node.nodeid, more=", recall: {tool: true}", window=12_000)
    bench.upstream.script = says("Fine.")
    asked: list[Said] = [user("Look at all parts.")]
    results = {number: f"part {number}\n" + f"a line of part {number}\n" * 90 for number in range(36)}
    for number, content in results.items():
        arguments = json.dumps({"path": f"parts/{number}.txt"})
        call = {"id": f"c{number}", "type": "function", "function": {"name": "view", "arguments": arguments}}
        asked.append({"role": "assistant", "content": f"Now part {number}.", "tool_calls": [call]})
        asked.append({"role": "tool", "tool_call_id": f"c{number}", "content": content})
        assert client.chat(asked, conversation="c").status_code == 200
        bench.settle()
    head = str(bench.upstream.received[-1].messages[0]["content"])
    line = head.splitlines()[-1]
    handles = {name: handle for handle, name in re.findall(r"(m[0-9a-f]{8}) view parts/(\d+)\.txt", line)}
    assert len(handles) >= 3
    assert list(map(int, handles)) == sorted(map(int, handles))
    for name, handle in handles.items():
        assert handle == handle_of(message(role="tool", tool_call_id=f"c{name}", content=results[int(name)]))
    read: list[str] = []
    oldest = next(iter(handles))

    def script(received: Received) -> Answer:
        content = str(received.messages[-1]["content"])
        if content.startswith(handles[oldest]):
            read.append(content)
            return says(ANSWER)(received)
        return tells(Turn(calls=(Call(FUNCTION_NAME, json.dumps({"handle": handles[oldest]})),)))(received)

    bench.upstream.script = script
    client.chat([*asked, assistant("Done."), user("What was in the first part?")], conversation="c")
    assert results[int(oldest)].startswith(read[0].partition("\n")[2])
    assert len(read[0]) > 100


def test_without_the_function_no_summary_names_handles(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A model could not read them."""
    client = bench.client(request.node.nodeid)
    bench.upstream.script = says("Fine.")
    call = {"id": "c1", "type": "function", "function": {"name": "view", "arguments": '{"path": "a.txt"}'}}
    listed: list[Said] = [user("View it."), {"role": "assistant", "content": None, "tool_calls": [call]}]
    listed += [{"role": "tool", "tool_call_id": "c1", "content": "a line of it\n" * 60}, assistant("Done.")]
    assert client.chat([*listed, *talk_with_fact(), QUESTION]).headers["x-tidemark-action"] == "compacted"
    assert not re.search(r"\bm[0-9a-f]{8}\b", str(bench.upstream.received[-1].messages[0]["content"]))
