"""S4's criteria, guardrails and tests with ``preset: rule-based``: a short summary by rules, and no model asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.request.conftest import Bench
from tests.request.talk import assistant, history, long, system, user
from tests.scenarios.talks import Talk, number_in, summaries, talk_with
from tests.support.scripted import Answer, Received, error, whole

CAP, MAX_SUMMARY_TOKENS = 1000, 200
Begin = Callable[..., Talk]


@pytest.fixture
def begin(bench: Bench, store_url: str, request: pytest.FixtureRequest) -> Begin:
    """Begins a talk whose ``maxContextTokens`` is 1,000, in a model's window of 4,000."""

    def start(more: str = f"threshold: {CAP}", window: int = 4000) -> Talk:
        return talk_with(bench, store_url, request.node.nodeid, "rule-based", more, window=window)

    return start


def test_s4_1_with_summarization_off_behaviour_is_unchanged(begin: Begin) -> None:
    """Byte for byte, however long; the upstream judges. Off without the preset's word, and under it for one model."""
    talk = begin("enabled: false")
    talk.said = history(50)

    def refuses(request: Received) -> Answer:
        return error(400, "maximum context length", code="context_length_exceeded")

    talk.upstream.script = refuses
    body = b'{"messages": [{"role":  "user", "content": "' + b"word " * 5000 + b'"}], "model": "main"}'
    got = talk.client.post(body)
    assert (got.status_code, got.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert [one.body for one in talk.upstream.received] == [body]
    talk.send(user("And now?"))
    assert talk.sent == [*talk.said, user("And now?")]


def test_s4_2_over_the_cap_the_oldest_messages_become_one_summary_message(begin: Begin) -> None:
    """A contiguous prefix; the last message unchanged; not more than the cap in the end."""
    talk = begin()
    got = talk.until("compacted")
    gone = number_in(got, "summarized-messages")
    assert len(summaries(talk.sent)) == 1
    assert talk.sent[1:] == talk.said[gone:-1]
    assert talk.count(*talk.sent) == number_in(got, "tokens-after") <= CAP < number_in(got, "tokens-before")


def test_s4_2_below_the_cap_nothing_is_done(begin: Begin) -> None:
    """All of it goes out as it came."""
    talk = begin()
    talk.until("compacted")
    for number, one in enumerate(talk.forwarded[:-1]):
        assert one.messages == talk.said[: 2 * number + 1]


def test_s4_3_the_summary_is_never_longer_than_its_bound(begin: Begin) -> None:
    """200 tokens with all that marks it, for every summary of a long conversation."""
    talk = begin()
    got = [talk.until("compacted") for _ in range(3)][-1]
    kept = talk.stored(got)
    assert len(kept.summaries) == 3
    for text in {summary for one in talk.forwarded for summary in summaries(one.messages)}:
        assert talk.count(system(text)) - 3 <= MAX_SUMMARY_TOKENS
    assert all(0 < summary.tokens <= MAX_SUMMARY_TOKENS for summary in kept.summaries)


def test_s4_guardrail_the_last_message_stays_however_long(begin: Begin) -> None:
    """To the byte, alone if nothing else fits."""
    talk = begin()
    talk.said = history(10)
    last = '{"role": "user",  "content": "' + "kept as it is " * 180 + '", "name": "me"}'
    head = ",".join(f'{{"role": "{said["role"]}", "content": "{said["content"]}"}}' for said in talk.said)
    talk.client.post(f'{{"model": "main", "messages": [{head}, {last}]}}'.encode())
    assert last.encode() in talk.forwarded[-1].body
    assert len(talk.sent) == 2


def test_s4_guardrail_messages_are_not_reordered(begin: Begin) -> None:
    """Head, one summary, and the rest in the order in which it was said."""
    talk = begin()
    talk.said = [system("First."), system("Second."), *history(10)]
    talk.send(user("And now?"))
    assert talk.sent[:2] == talk.said[:2]
    assert summaries(talk.sent[2:3])
    kept = talk.sent[3:]
    assert kept == [*talk.said, user("And now?")][-len(kept) :]


def test_s4_guardrail_the_summary_is_marked(begin: Begin) -> None:
    """A system message that opens with what it is, so that nobody takes it for something said just now."""
    talk = begin()
    talk.until("compacted")
    assert talk.sent[0]["role"] == "system"
    assert talk.sent[0]["content"].startswith("Summary of earlier turns")


def test_s4_guardrail_no_model_is_asked(begin: Begin) -> None:
    """The upstream gets the client's requests and no other."""
    talk = begin()
    for _ in range(2):
        assert talk.until("compacted").headers["x-tidemark-strategy"] == "extractive"
    assert len(talk.upstream.received) == len(talk.said) / 2
    assert not talk.calls


def test_s4_guardrail_the_same_messages_give_the_same_summary(begin: Begin) -> None:
    """Rules have no chance in them: another conversation of the same text is summarized in the same words."""
    talk = begin()
    talk.said = history(10)
    for name in ("one", "two"):
        talk.send(user("And now?"), conversation=name)
    assert talk.forwarded[0].body == talk.forwarded[1].body


def test_s4_refinement_a_minimum_of_messages(begin: Begin) -> None:
    """Fewer than ten are left alone while they fit; over what the model takes they are compacted all the same."""
    talk = begin()
    nine = [*[said for number in range(4) for said in (user(long(number, 200)), assistant(long(9, 200)))], user("So?")]
    got = talk.send(*nine)
    assert number_in(got, "tokens-before") > CAP
    assert got.headers["x-tidemark-action"] == "none"
    assert "below the minimum" in got.headers["x-tidemark-warning"]
    assert talk.send(*nine[:-1], user("So?"), assistant("Yes."), user("And?")).headers["x-tidemark-action"] == (
        "compacted"
    )
    three = [user(long(1, 2500)), assistant(long(2, 2500)), user("So?")]
    assert talk.send(*three).headers["x-tidemark-action"] == "compacted"


def test_s4_refinement_roles_are_told_apart(begin: Begin) -> None:
    """Who said what is in the summary."""
    talk = begin()
    talk.said = [user("My name is Femke and the deadline is 4 May."), assistant("We decided to use port 5433 for it.")]
    talk.until("compacted")
    (summary,) = summaries(talk.sent)
    assert "User: My name is Femke" in summary
    assert "Assistant: We decided to use port 5433" in summary


def test_s4_refinement_a_model_may_write_it_behind_a_flag(begin: Begin) -> None:
    """``strategy: llm`` over the preset; the bound stays."""
    talk = begin(f"threshold: {CAP}, strategy: llm")
    talk.summarize = lambda _: whole("All was agreed upon, and nothing may be left out of it. " * 30)
    got = talk.until("compacted")
    assert got.headers["x-tidemark-strategy"] == "llm"
    assert talk.stored(got).summaries[-1].tokens <= MAX_SUMMARY_TOKENS


def test_s4_documented() -> None:
    """Both settings of the summary stand in the reference."""
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert "| `compaction.defaults.enabled` |" in text
    assert "| `compaction.defaults.max_summary_tokens` |" in text
