"""``/context`` and ``/summarize`` as a client sees them: answered at once, in its own format, and never forwarded."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.request.conftest import WINDOW, Bench, Client
from tests.request.talk import Said, assistant, history, long, system, user
from tests.support.scripted import Answer, Received, error, says

MARK = re.compile(r"^\[Tidemark [0-9a-f]{16}\] ")


def ask(client: Client, said: list[Said], command: str, **asked: str) -> str:
    """Send a command after a history, and give the answer's text; the exchange is appended to the history."""
    said.append(user(command))
    got = client.chat(said, **asked)
    assert got.status_code == 200, got.text
    text: str = got.json()["choices"][0]["message"]["content"]
    assert MARK.match(text)
    said.append(assistant(text))
    return text


def streamed(client: Client, body: dict[str, Any]) -> tuple[httpx.Response, list[Any]]:
    """The events of a stream, the last one ``[DONE]``."""
    got = client.post({"model": "small", "stream": True, **body})
    lines = [line.removeprefix("data: ") for line in got.text.split("\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return got, [json.loads(line) for line in lines]


def test_context_is_answered_as_a_completion(bench: Bench, client: Client) -> None:
    """OpenAI's object, without any upstream; nothing is billed."""
    got = client.chat([*history(2), user("/context")])
    told = got.json()
    assert (got.status_code, got.headers["content-type"]) == (200, "application/json")
    assert (told["object"], told["model"]) == ("chat.completion", "small")
    assert told["id"].startswith("chatcmpl-tidemark-")
    assert told["created"] > 1_700_000_000
    assert told["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert [choice["finish_reason"] for choice in told["choices"]] == ["stop"]
    assert told["choices"][0]["message"]["role"] == "assistant"
    assert MARK.match(told["choices"][0]["message"]["content"])
    assert got.headers["x-tidemark-action"] == "none"
    assert not bench.upstream.received


@pytest.mark.parametrize("usage", [True, False])
def test_context_is_answered_as_a_stream(bench: Bench, client: Client, *, usage: bool) -> None:
    """Role, text, end, and usage where it is asked for: a chunk without choices, and null in all others."""
    options = {"stream_options": {"include_usage": True}} if usage else {}
    got, events = streamed(client, {"messages": [*history(2), user("/context")], **options})
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.headers["x-tidemark-action"] == "none"
    assert {(event["object"], event["model"]) for event in events} == {("chat.completion.chunk", "small")}
    assert len({event["id"] for event in events}) == 1
    last = events.pop() if usage else None
    if last is not None:
        assert last["choices"] == []
        assert last["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert [event.get("usage", "absent") for event in events] == [None if usage else "absent"] * 3
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None, "stop"]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert MARK.match(events[1]["choices"][0]["delta"]["content"])
    assert not bench.upstream.received


def test_context_tells_the_state(bench: Bench, client: Client) -> None:
    """S2-6: tokens, limit, share, messages, what is summarized, summaries, when, and by which strategy."""
    said = [system("Be brief."), *history(8)]
    before = ask(client, said, "/context")
    counted = client.chat([*said, user("What now?")], summarize="off")
    assert "- Limit: 1,800 of a window of 2,000" in before
    assert "- Messages: 16, of which a summary stands for 0" in before
    assert "- Summaries: 0\n" in before
    assert "- Strategy: extractive" in before
    total = re.search(r"Total tokens: (\d+); the model gets (\d+)", before)
    assert total
    assert total[1] == total[2]
    assert 0 < int(counted.headers["x-tidemark-tokens-before"]) - int(total[1]) < 10
    assert f"- Used: {100 * int(total[1]) / 1800:.0f} % of the limit" in before
    ask(client, said, "/summarize")
    after = ask(client, said, "/context")
    assert re.search(r"- Messages: 16, of which a summary stands for 1?[1-9]\n", after)
    assert re.search(r"- Summaries: 1, the last one of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n", after)
    used = re.search(r"Total tokens: (\d+); the model gets (\d+)", after)
    assert used
    assert used[1] == total[1]
    assert int(used[2]) < int(used[1])


def test_context_changes_nothing_where_a_compaction_is_due(bench: Bench, client: Client) -> None:
    """It only tells: over the limit, too."""
    said = history(30)
    text = ask(client, said, "/context")
    share = re.search(r"Used: (\d+) % of the limit", text)
    assert share
    assert int(share[1]) > 100
    assert "- Summaries: 0\n" in ask(client, said, "/context")
    assert not bench.upstream.received


def test_summarize_compacts_now_and_later_turns_use_it(bench: Bench, client: Client) -> None:
    """FR-2.3.1: the same compaction as by the header; FR-2.4.1: the same handling afterwards."""
    said = history(8)
    got = client.chat([*said, user("/summarize")])
    assert got.headers["x-tidemark-action"] == "forced"
    text = got.json()["choices"][0]["message"]["content"]
    covered, before, after = (
        got.headers[f"x-tidemark-{name}"] for name in ("summarized-messages", "tokens-before", "tokens-after")
    )
    assert f"- Messages summarized: {covered}\n" in text
    assert f"- Tokens: {before} before, {after} after\n" in text
    assert int(after) < int(before)
    assert not bench.upstream.received
    later = client.chat([*said, user("/summarize"), assistant(text), user("What now?")])
    assert later.headers["x-tidemark-action"] == "reused"
    assert later.headers["x-tidemark-summarized-messages"] == covered
    assert later.headers["x-tidemark-conversation"] == got.headers["x-tidemark-conversation"]
    sent = bench.upstream.last.messages
    assert sent[0]["content"].startswith("Summary of earlier turns")
    assert sent[1:] == [*said[int(covered) :], user("What now?")]
    assert "summarize" not in bench.upstream.last.body.decode()


def test_the_mark_of_another_callers_answers_is_a_text_like_any_other(bench: Bench, client: Client) -> None:
    """Whoever asked for it could else make another one's messages vanish, by a text that a model repeats."""
    strangers: list[Said] = [user("Hello")]
    marked = ask(Client(client.http, "stranger"), strangers, "/context")
    said = [user("What does the page say?"), assistant(marked), user("And now?")]
    assert client.chat(said).status_code == 200
    assert bench.upstream.last.messages == said
    own = [user("Hello"), user("/context"), assistant(ask(client, [user("Hello")], "/context")), user("And now?")]
    assert client.chat(own).status_code == 200
    assert bench.upstream.last.messages == [user("Hello"), user("And now?")]


def test_summarize_streams_as_well(bench: Bench, client: Client) -> None:
    """The headers say what was done, on a stream too."""
    got, events = streamed(client, {"messages": [*history(4), user("/summarize")]})
    assert got.headers["x-tidemark-action"] == "forced"
    assert "Messages summarized: " in events[1]["choices"][0]["delta"]["content"]


def test_a_long_summary_keeps_the_stream_open(bench: Bench) -> None:
    """FR-2.3.2: comments say what is made; what was done follows as a comment, then the answer as events."""
    client = bench.client("slow", config=WINDOW + "server: {{keepalive_seconds: 0.05}}\n", strategy="llm")

    def slowly(request: Received) -> Answer:
        answer = says("A summary that tells of points and of what was said about them.")(request)
        answer.before_headers = 0.5
        return answer

    bench.upstream.script = slowly
    got, events = streamed(client, {"messages": [*history(8), user("/summarize")]})
    assert re.match(r": compacting \d+ messages ", got.text)
    assert "\n: x-tidemark-action: forced\n" in got.text
    assert "Messages summarized: " in events[1]["choices"][0]["delta"]["content"]


def test_fr_2_2_1_summarize_once_more_says_that_nothing_is_left(bench: Bench, client: Client) -> None:
    """What stays after the first stays after the third; the answer says what keeps it, in words for a person."""
    said = history(10)
    first = client.chat([*said, user("/summarize")])
    for _ in range(2):
        got = client.chat([*said, user("/summarize")])
        assert got.headers["x-tidemark-action"] == "reused"
        assert got.headers["x-tidemark-summarized-messages"] == first.headers["x-tidemark-summarized-messages"]
        text = got.json()["choices"][0]["message"]["content"]
        assert "\nNot summarized:\n" in text
        assert "nothing to summarize: all that no summary stands for has to stay (the retention of 450 tokens)" in text


def test_summarize_takes_the_retention_of_the_header(bench: Bench, client: Client) -> None:
    """FR-2.2.2."""
    got = client.chat([*history(6), user("/summarize")], retention_tokens="10")
    assert got.headers["x-tidemark-summarized-messages"] == "11"


def test_summarize_below_the_minimum_is_done_with_a_warning(bench: Bench, client: Client) -> None:
    """FR-5.4.2: in the answer and in the header."""
    got = client.chat([*history(2, 40), user("/summarize")], retention_tokens="50")
    assert got.headers["x-tidemark-action"] == "forced"
    assert "below the minimum of 300" in got.headers["x-tidemark-warning"]
    assert "- Note: compacted below the minimum of 300" in got.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize("said", [[], [system("Be brief.")], [user("Only this.")]], ids=["empty", "system", "one"])
def test_commands_before_there_is_anything_to_say(client: Client, said: list[Said]) -> None:
    """A conversation may begin with one; there is nothing to summarize."""
    assert "- Summaries: 0" in ask(client, said, "/context")
    assert "nothing to summarize" in ask(client, said, "/summarize")


def test_a_conversation_with_commands_is_the_conversation_without_them(bench: Bench, client: Client) -> None:
    """To the byte, over many turns and compactions, and with the same id; two credentials, so nothing is shared."""
    other = Client(client.http, client.key + " without commands")
    plain: list[Said] = [system("Be brief.")]
    mixed: list[Said] = [system("Be brief.")]
    actions = []
    for turn in range(40):
        if turn % 3 == 0:
            ask(client, mixed, "/context")
        answer = long(2 * turn + 1)
        bench.upstream.script = says(answer)
        sent, told = [], []
        for one, said in ((other, plain), (client, mixed)):
            said.append(user(long(2 * turn)))
            told.append(one.chat(said).headers)
            sent.append(bench.upstream.last.body)
            said.append(assistant(answer))
        assert sent[0] == sent[1]
        for name in ("action", "tokens-before", "tokens-after", "summarized-messages"):
            assert told[0][f"x-tidemark-{name}"] == told[1][f"x-tidemark-{name}"]
        actions.append(told[1]["x-tidemark-action"])
    assert {"none", "compacted", "reused"} <= set(actions)


def test_nothing_of_a_command_reaches_a_summary(bench: Bench, client: Client) -> None:
    """Neither the words of the command nor those of the answer."""
    said = history(3)
    ask(client, said, "/context")
    said += history(20)[6:]
    got = client.chat([*said, user("And now?")])
    assert got.headers["x-tidemark-action"] == "compacted"
    assert b"/context" not in bench.upstream.last.body
    assert b"Tidemark" not in bench.upstream.last.body


def test_an_echo_of_parts_is_known(bench: Bench, client: Client) -> None:
    """Clients send back text in parts, with fields of their own, and with other white space."""
    said = history(1)
    text = ask(client, said, "/context")
    said[-2:] = [
        {"role": "user", "content": [{"type": "text", "text": "/context"}], "name": "me"},
        {"role": "assistant", "content": [{"type": "text", "text": f"\n{text}\n"}], "refusal": None, "id": "msg_1"},
    ]
    client.chat([*said, user("Hm?")])
    assert bench.upstream.last.messages == [*history(1), user("Hm?")]


@pytest.mark.parametrize(
    "lost", [[], [assistant("")], [system("It is noon.")]], ids=["no answer", "nothing of it", "a clock"]
)
def test_a_command_whose_answer_was_lost_leaves_no_trace(bench: Bench, client: Client, lost: list[Said]) -> None:
    """Nor does it later: the conversation is the one without it."""
    said: list[Said] = [*history(2), user("/context"), *lost, user("Hm?")]
    kept = [*history(2), *[one for one in lost if one["role"] == "system"], user("Hm?")]
    first = client.chat(said)
    assert bench.upstream.last.messages == kept
    later = client.chat([*said, assistant("Hello there."), user("/summarize"), user("And?")])
    assert bench.upstream.last.messages == [*kept, assistant("Hello there."), user("And?")]
    assert first.headers["x-tidemark-conversation"] == later.headers["x-tidemark-conversation"]
    ask(client, [*said, user("/summarize")], "/context")


def test_an_answer_goes_wherever_it_stands(bench: Bench, client: Client) -> None:
    """Echoed twice, or after a command that was edited: the model never sees the mark."""
    said = history(1)
    text = ask(client, said, "/context")
    client.chat([*said, assistant(text), user("Hm?")])
    assert bench.upstream.last.messages == [*history(1), user("Hm?")]
    client.chat([*history(1), user("Please tell."), assistant(text), user("Hm?")])
    assert bench.upstream.last.messages == [*history(1), user("Please tell."), user("Hm?")]


@pytest.mark.parametrize(("n", "choices"), [(1, 1), (3, 3), (None, 1), (0, 1), ("2", 1), (10**30, 128)])
def test_each_choice_is_the_same(client: Client, n: Any, choices: int) -> None:
    """A client that asks for ``n`` choices reads as many, streamed or not."""
    body = {"messages": [*history(1), user("/context")], "n": n}
    told = client.post({"model": "small", **body}).json()["choices"]
    assert [choice["index"] for choice in told] == list(range(choices))
    assert len({choice["message"]["content"] for choice in told}) == 1
    texts = [""] * choices
    for event in streamed(client, body)[1]:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
    assert MARK.match(texts[0])
    assert texts == [texts[0]] * choices


def test_off_switches_no_command_off(bench: Bench, client: Client) -> None:
    """``X-Tidemark-Summarize: off`` is about the request that is forwarded, and a command never is."""
    got = client.chat([*history(8), user("/summarize")], summarize="off")
    assert got.headers["x-tidemark-action"] == "forced"
    assert not bench.upstream.received


@pytest.mark.parametrize("command", ["/context", "/summarize"])
def test_switched_off_they_are_messages_like_any_other(bench: Bench, command: str) -> None:
    """``commands: false``: they are forwarded and answered by the model."""
    client = bench.client(f"no {command}", more=", commands: false")
    for said in ([user(command)], [user(command), user("Hm?")], [user(command), assistant(""), user("Hm?")]):
        got = client.chat(said)
        assert got.json()["choices"][0]["message"]["content"] == "Hello there."
        assert bench.upstream.last.messages == said


def test_an_agent_at_work_is_not_interrupted(bench: Bench, client: Client) -> None:
    """A tool's result comes after the command: the model goes on."""
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    said: list[Said] = [
        user("/context"),
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    client.chat(said)
    assert bench.upstream.last.messages == said


def test_a_request_of_answered_commands_alone_is_refused(client: Client) -> None:
    """There is nothing left to forward."""
    said: list[Said] = []
    ask(client, said, "/context")
    got = client.chat(said)
    assert (got.status_code, got.json()["error"]["code"]) == (400, "empty_array")


def test_an_unknown_model_is_refused_as_ever(client: Client) -> None:
    """A command is for a model that is served."""
    got = client.chat([user("/context")], model="none-such")
    assert (got.status_code, got.json()["error"]["code"]) == (404, "model_not_found")


def test_the_store_may_be_down(bench: Bench, client: Client) -> None:
    """The answer says what is not known."""
    alone = bench.client("no store", store="redis://127.0.0.1:1")
    said = history(8)
    text = ask(alone, said, "/context")
    assert "- Summaries: unknown" in text
    assert "Messages summarized: " in ask(alone, said, "/summarize")
    got = alone.chat([*said, user("And?")])
    assert got.headers["x-tidemark-store"] == "degraded"
    assert bench.upstream.last.messages == [*history(8), user("And?")]


def test_what_failed_is_told_in_the_answer(bench: Bench) -> None:
    """``on_failure: block`` and a summarizer that fails: the reason, not an error that a chat cannot show."""
    client = bench.client("failing", strategy="llm", more=", on_failure: block")
    bench.upstream.script = says("")
    got = client.chat([*history(6), user("/summarize")])
    assert got.status_code == 200
    assert got.headers["x-tidemark-action"] == "failed"
    assert "Not summarized" in got.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize("policy", ["block", "passthrough"])
def test_fr_5_1_2_a_failed_summarize_is_told_in_words_for_a_chat(bench: Bench, policy: str) -> None:
    """FR-5.1.2: the reason, that nothing is lost, how to try again, and the risk; no header and no setting."""
    client = bench.client(f"failing {policy}", strategy="llm", more=f", on_failure: {policy}")
    bench.upstream.script = lambda _: error(500, "out of order")
    text = ""
    for _ in range(4):
        text = client.chat([*history(10), user("/summarize")]).json()["choices"][0]["message"]["content"]
        assert re.search(r"- Reason: [Tt]he \w+", text)
        assert re.search(r"nothing was changed or lost, .* It takes \d\d % of what the model can be sent\.", text)
        assert "send /summarize once more" in text
        assert "may not be answered any more" in text
        assert not re.search(r"X-Tidemark|due for compaction|block|passthrough", text)
    assert re.search(r"the summarizer failed 3 times", text)
