"""S2's requirements and tests with ``preset: agent``: early, the last ten messages kept, the facts beside the summary.

Its commands (S2-5) are tested with them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
import tiktoken

from tests.request.conftest import Bench
from tests.request.talk import Said, assistant, history, long, system, user
from tests.scenarios.talks import ROOT, SUMMARY, Talk, number_in, summaries, talk_with
from tests.support.scripted import whole
from tests.tokens.vectors import VECTORS
from tidemark.config import load
from tidemark.core.ports import Route
from tidemark.summarizers.llm import small_route

WINDOW = 6000
Begin = Callable[..., Talk]
FACTS = (
    "Fix the crash in src/parser/lexer.py and do not touch migrations/0042_add_index.sql.",
    "I ran `pytest tests/parser -x` and got:\nValueError: unexpected token at offset 512",
)
"""What a critical piece of information is to a coding agent: files, commands, errors, and what is forbidden."""


@pytest.fixture
def begin(bench: Bench, store_url: str, request: pytest.FixtureRequest) -> Begin:
    """Begins a talk; ``more`` are keys that go before the preset's."""

    def start(more: str = "", window: int = WINDOW, also: str = "") -> Talk:
        return talk_with(bench, store_url, request.node.nodeid, "agent", more, window=window, also=also)

    return start


def rounds(number: int, words: int) -> list[Said]:
    """A round of an agent's: a call, its result, and what the agent says to it."""
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": long(number, words)},
        assistant(long(1000 + number, words)),
    ]


def test_s2_1_should_count_tokens_accurately(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 5 % of what is billed, for one request of every rule by which OpenAI counts."""
    litellm = importlib.util.find_spec("litellm")
    assert litellm is not None
    assert litellm.origin is not None
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"))
    tokens = tiktoken.get_encoding("cl100k_base")
    talk = begin()
    for vector in VECTORS:
        billed = vector.beside + sum(len(tokens.encode_ordinary(text)) for text in vector.texts)
        counted = talk.counted({"model": "gpt-4", **vector.request})["input_tokens"]
        assert counted == pytest.approx(billed, rel=0.05), vector.rule


def test_s2_1_should_cache_repeated_strings(begin: Begin) -> None:
    """A conversation that was counted before takes a fraction of the time, with a message more at its end, too."""
    talk = begin()
    said = [user(long(number, 3000)) for number in range(40)]
    first = talk.counted({"model": "main", "messages": said})["seconds"]
    again = min(talk.counted({"model": "main", "messages": [*said, user("And?")]})["seconds"] for _ in range(5))
    assert again * 2 < first


def test_s2_1_should_handle_tool_calls_in_messages(begin: Begin) -> None:
    """Names and arguments count as the text that they are."""
    talk = begin()
    short, with_arguments = rounds(1, 10)[0], rounds(1, 10)[0]
    with_arguments["tool_calls"][0]["function"]["arguments"] = '{"path": "a.py", "note": "' + "word " * 100 + '"}'
    assert talk.count(user("go"), assistant("")) < talk.count(user("go"), short)
    assert 90 <= talk.count(user("go"), with_arguments) - talk.count(user("go"), short) <= 120


def test_s2_1_the_response_is_estimated(begin: Begin) -> None:
    """Not at half of the prompt: what the request asks for, and at most the model's longest reply."""
    talk = begin()
    bodies = [{"max_tokens": 150}, {"max_tokens": 700}, {}]
    limits = [
        number_in(talk.client.post({"model": "main", "messages": [user("hi")], **asked}), "limit") for asked in bodies
    ]
    assert limits == [WINDOW - 150 - 300, WINDOW - 200 - 300, WINDOW - 200 - 300]


def test_s2_2_should_trigger_at_threshold(begin: Begin) -> None:
    """More than 80 % of the window, while it would still fit."""
    talk = begin()
    got = talk.until("compacted")
    mark = 0.8 * WINDOW
    assert mark < number_in(got, "tokens-before") < number_in(got, "limit")
    assert all(talk.count(*one.messages) <= mark for one in talk.forwarded[:-1])


def test_s2_2_should_preserve_recent_messages(begin: Begin) -> None:
    """The last ten as they are, and no more."""
    talk = begin()
    got = talk.until("compacted")
    assert talk.sent[1:] == talk.said[-11:-1]
    assert number_in(got, "summarized-messages") == len(talk.said) - 11


def test_s2_2_recent_messages_stay_although_they_are_long(begin: Begin) -> None:
    """Always keep the last N: ten messages above the low water stay all the same."""
    talk = begin()
    talk.said = [message for number in range(7) for message in (user(long(number, 430)), assistant(long(70, 430)))]
    got = talk.send(user("And now?"))
    assert got.headers["x-tidemark-action"] == "compacted"
    assert talk.sent[-10:] == [*talk.said[-9:], user("And now?")]
    assert number_in(got, "tokens-after") > 0.45 * number_in(got, "limit")


def test_s2_2_recent_messages_keep_their_tool_calls(begin: Begin) -> None:
    """Where the tenth from the end is a tool's result, its call stays with it."""
    talk = begin()
    talk.said = [user("Find the bug."), *[message for number in range(30) for message in rounds(number, 80)]]
    for last in ([], [user("And now?")], [user("And now?"), assistant("Yes."), user("And then?")]):
        talk.send(*last, conversation=f"with {len(last)} more")
        kept = talk.sent[1:]
        assert kept == [*talk.said, *last][-len(kept) :]
        assert 10 <= len(kept) <= 12
        called = {call["id"] for message in kept for call in message.get("tool_calls") or ()}
        assert called == {message["tool_call_id"] for message in kept if message["role"] == "tool"}


def test_s2_2_nothing_to_summarize(begin: Begin) -> None:
    """No message before the last ten: they go out as they are, and the response says why."""
    talk = begin()
    talk.said = [message for number in range(4) for message in (user(long(number, 760)), assistant(long(9, 760)))]
    got = talk.send(user("And now?"))
    assert number_in(got, "tokens-before") > 0.8 * WINDOW
    assert got.headers["x-tidemark-action"] == "none"
    assert "nothing to summarize" in got.headers["x-tidemark-warning"]
    assert talk.sent == [*talk.said, user("And now?")]


def test_s2_c4_by_hand_again_and_again_the_last_ten_stay(begin: Begin) -> None:
    """S2-C4: whoever asks, by header or by command; the request's own retention takes nothing from the floor."""
    talk = begin()
    talk.said = history(20)
    got = talk.send(user("And now?"), summarize="force")
    assert got.headers["x-tidemark-action"] == "forced"
    for asked in ({}, {"retention_tokens": "0"}, {}):
        got = talk.send(user("And now?"), summarize="force", **asked)
        assert talk.sent[1:] == [*talk.said, user("And now?")][-10:]
    assert got.headers["x-tidemark-action"] == "reused"
    assert "nothing to summarize" in got.headers["x-tidemark-warning"]
    assert "the last 10 messages" in got.headers["x-tidemark-warning"]
    for _ in range(2):
        talk.send(user("/summarize"))
    talk.ask()
    assert talk.sent[-10:] == talk.said[-11:-1]


def test_s2_c4_by_hand_with_no_more_than_ten_there_is_nothing_to_summarize(begin: Begin) -> None:
    """S2-C4: ``toSummarize`` is empty; the messages go out as they are."""
    talk = begin()
    talk.said = history(4)
    got = talk.send(user("And now?"), summarize="force")
    assert got.headers["x-tidemark-action"] == "none"
    assert "nothing to summarize" in got.headers["x-tidemark-warning"]
    assert talk.sent == [*talk.said, user("And now?")]


def test_s2_2_should_keep_system_prompt(begin: Begin) -> None:
    """First and untouched, the summary right after it."""
    talk = begin()
    talk.said = [system("You are a coding agent.")]
    talk.until("compacted")
    assert talk.sent[0] == system("You are a coding agent.")
    assert summaries(talk.sent[1:2])


def test_s2_2_the_target_leaves_room(begin: Begin) -> None:
    """After a summary many turns pass before the next one."""
    talk = begin()
    talk.until("compacted")
    assert [talk.ask().headers["x-tidemark-action"] for _ in range(12)] == ["reused"] * 12


def test_s2_3_should_preserve_key_information(begin: Begin) -> None:
    """Hybrid: what the model's summary does not tell stands beside it in the user's words, summary after summary."""
    talk = begin()
    for fact in FACTS:
        talk.ask(fact)
    for _ in range(3):
        talk.until("compacted")
        (summary,) = summaries(talk.sent)
        assert "do not touch migrations/0042_add_index.sql" in summary
        assert "ValueError: unexpected token at offset 512" in summary
        assert "pytest tests/parser -x" in summary
        assert SUMMARY[-50:] in summary


def test_s2_3_should_extract_file_paths(begin: Begin) -> None:
    """Each path once, among the files."""
    talk = begin()
    for fact in (*FACTS, "The log is in /var/log/app/today.log, and src/parser/lexer.py again."):
        talk.ask(fact)
    got = talk.until("compacted")
    assert got.headers["x-tidemark-strategy"] == "hybrid"
    files = next(line for line in summaries(talk.sent)[0].splitlines() if line.startswith("Files:"))
    for path in ("src/parser/lexer.py", "migrations/0042_add_index.sql", "/var/log/app/today.log"):
        assert files.count(path) == 1


def test_s2_3_should_handle_long_conversations(begin: Begin) -> None:
    """Longer than the summarizer's own window: it is asked piece by piece, and nothing is left out."""
    talk = begin(window=60_000)
    talk.said = [message for number in range(80) for message in (user(long(number, 450)), assistant(long(900, 450)))]
    got = talk.send(user("And now?"))
    assert got.headers["x-tidemark-action"] == "compacted"
    assert len(talk.calls) > 1
    asked = "".join(call.messages[1]["content"] for call in talk.calls)
    assert all(f"Point {number}:" in asked for number in range(75))
    assert all(talk.count(*call.messages) <= 60_000 for call in talk.calls)


@pytest.mark.parametrize("strategy", ["llm", "hybrid", "extractive"])
def test_s2_3_there_are_different_strategies(begin: Begin, strategy: str) -> None:
    """One key chooses; the response says which one wrote."""
    talk = begin(f"strategy: {strategy}")
    assert talk.until("compacted").headers["x-tidemark-strategy"] == strategy
    assert bool(talk.calls) == (strategy != "extractive")


def test_s2_4_a_faster_model_writes_the_summary(begin: Begin) -> None:
    """The one configured; with ``auto``, the preset's value, the small model of the conversation's provider."""
    talk = begin("summarizer: {model: quick}")
    talk.until("compacted")
    assert {call.json["model"] for call in talk.calls} == {"quick"}
    assert {one.json["model"] for one in talk.forwarded} == {"main"}
    settings = load(ROOT / "config" / "presets" / "agent.yaml", {"HOME": "/home/someone"})
    assert settings.policy_for("claude-sonnet-4-5").summarizer_model == "auto"
    route = Route("translate", "claude", "claude-sonnet-4-5", "anthropic", "")
    assert small_route(route).upstream_model == "claude-haiku-4-5"


def test_s2_4_a_summary_takes_less_than_its_time(begin: Begin) -> None:
    """Ten seconds in the preset, half of one here; then rules write it, and the client is served all the same."""
    settings = load(ROOT / "config" / "presets" / "agent.yaml", {"HOME": "/home/someone"})
    assert settings.policy_for("main").summarizer_timeout_seconds == 10
    talk = begin("summarizer: {timeout_seconds: 0.5}")
    slow = whole("too late")
    slow.before_headers = 30
    talk.summarize = lambda _: slow
    got = talk.until("compacted")
    assert got.headers["x-tidemark-strategy"] == "extractive"
    assert got.elapsed.total_seconds() < 10


def test_s2_6_should_track_state_correctly(begin: Begin) -> None:
    """Total tokens, messages, summaries, and when the last one was made."""
    talk = begin()
    first = talk.stored(talk.ask()).record
    assert (first.message_count, first.summary_count, first.last_summary_at) == (2, 0, None)
    talk.until("compacted")
    talk.ask()
    got = talk.until("compacted")
    kept = talk.stored(got)
    assert kept.record.message_count == len(kept.messages) == len(talk.said)
    assert kept.record.total_tokens == sum(message.tokens for message in kept.messages)
    assert kept.record.total_tokens == talk.count(*talk.said) - 3, "but for what opens the reply"
    assert kept.record.summary_count == 2
    assert kept.record.last_summary_at == kept.summaries[-1].created_at
    assert first.created_at <= kept.summaries[0].created_at < kept.summaries[1].created_at <= kept.record.updated_at


def test_s2_7_it_is_transparent_about_when_it_summarizes(begin: Begin) -> None:
    """Each response says what was done, to how many messages, and what it came to in tokens."""
    talk = begin()
    got = talk.until("compacted")
    assert number_in(got, "tokens-before") == talk.count(*talk.said[:-1])
    assert number_in(got, "tokens-after") == talk.count(*talk.sent)
    later = talk.ask()
    assert later.headers["x-tidemark-action"] == "reused"
    assert number_in(later, "summarized-messages") == number_in(got, "summarized-messages") > 0
    assert f"({number_in(got, 'summarized-messages')} messages)" in summaries(talk.sent)[0]
