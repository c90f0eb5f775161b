"""S0's scenarios with ``preset: library``: a token budget, and a running summary that grows.

Its memory flush (S0-4) and its graph node (S0-6) are not built yet.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.request.conftest import Bench
from tests.scenarios.talks import (
    Talk,
    count_without_tokenizer,
    is_summary_call,
    number_in,
    previous,
    summaries,
    talk_with,
    transcript,
)
from tests.support.scripted import whole

MAX_TOKENS, MAX_SUMMARY_TOKENS = 1000, 256


@pytest.fixture
def talk(bench: Bench, store_url: str, request: pytest.FixtureRequest) -> Talk:
    """A talk whose ``max_tokens`` is 1,000, in a model's window of 4,000."""
    return talk_with(bench, store_url, request.node.nodeid, "library", f"threshold: {MAX_TOKENS}", window=4000)


def test_s0_1_token_threshold_exceeded(talk: Talk) -> None:
    """Oldest messages first; a RunningSummary in their place; both fit ``max_tokens``. Below it nothing is done."""
    got = talk.until("compacted")
    *before, _ = [one for one in talk.forwarded if not is_summary_call(one)]
    assert all(not summaries(one.messages) for one in before)
    assert all(talk.count(*one.messages) <= MAX_TOKENS < number_in(got, "tokens-before") for one in before)
    gone = number_in(got, "summarized-messages")
    assert gone > 0
    assert summaries(talk.sent[:1])
    assert talk.sent[1:] == talk.said[gone:-1]
    assert number_in(got, "tokens-after") == talk.count(*talk.sent) <= MAX_TOKENS


def test_s0_1_the_whole_of_a_models_input_is_the_budget_where_none_is_stated(
    bench: Bench, store_url: str, request: pytest.FixtureRequest
) -> None:
    """``max_tokens`` left out: what the model takes in."""
    talk = talk_with(bench, store_url, request.node.nodeid, "library")
    got = talk.until("compacted")
    assert number_in(got, "limit") == 1800 < number_in(got, "tokens-before")
    assert talk.count(*talk.forwarded[-2].messages) > 0.9 * 1800


def test_s0_2_partial_token_budget_allocation(talk: Talk) -> None:
    """256 tokens are the summary's, however much the model writes; the rest fits ``max_tokens`` less them."""
    talk.summarize = lambda _: whole("Everything was agreed upon, and nothing may be left out of it. " * 25)
    got = talk.until("compacted")
    assert talk.calls[-1].json["max_tokens"] <= MAX_SUMMARY_TOKENS
    (summary,) = talk.stored(got).summaries
    assert 200 < summary.tokens <= MAX_SUMMARY_TOKENS
    assert talk.count(*talk.sent[1:]) <= MAX_TOKENS - MAX_SUMMARY_TOKENS


def test_s0_3_first_summarization(talk: Talk) -> None:
    """The initial prompt; text, summarized ids and the last of them are kept."""
    got = talk.until("compacted")
    (call,) = talk.calls
    assert "summary of what came before" not in call.messages[1]["content"]
    assert transcript(call).startswith("User: Point 0:")
    kept = talk.stored(got)
    (summary,) = kept.summaries
    ids = [message.message_id for message in kept.messages[: summary.covered]]
    assert "Summary number 1." in summary.text
    assert len(set(ids)) == number_in(got, "summarized-messages")
    assert ids[-1] == summary.prefix.hex()
    assert summary.previous is None


def test_s0_3_subsequent_summarization_append(talk: Talk) -> None:
    """The existing summary and the new messages, none twice; ids are added, the last one moves on."""
    talk.until("compacted")
    gone = number_in(talk.ask(), "summarized-messages")
    got = talk.until("compacted")
    call = talk.calls[-1]
    assert "Summary number 1." in previous(call)
    assert "Point 0:" not in transcript(call)
    assert all(
        said["content"][:8] in transcript(call) for said in talk.said[gone : number_in(got, "summarized-messages")]
    )
    kept = talk.stored(got)
    first, second = kept.summaries
    ids = [message.message_id for message in kept.messages]
    assert gone == first.covered < second.covered == number_in(got, "summarized-messages")
    assert second.previous == first.prefix
    assert ids[second.covered - 1] == second.prefix.hex()
    assert summaries(talk.sent)[0].count("Summary number") == 1


def test_s0_5_tiktoken_available(talk: Talk) -> None:
    """Each model's own encoding: S0's cl100k for the models that have it, o200k for those that came later."""
    hello = [{"role": "user", "content": "hello"}]
    found = {model: talk.counted({"model": model, "messages": hello}) for model in ("gpt-4", "gpt-4o")}
    assert [one["encoding"] for one in found.values()] == ["cl100k_base", "o200k_base"]
    # As the API counts it: one token and four around it, and three that open the reply.
    assert [one["input_tokens"] for one in found.values()] == [8, 8]


@pytest.mark.e2e
def test_s0_5_tiktoken_unavailable(tmp_path: Path) -> None:
    """Length / 4, and a warning that says what is missing."""
    done = count_without_tokenizer(tmp_path, "library")
    assert done.returncode == 0, done.stderr
    assert "warning: Tokens are estimated at 4 characters each" in done.stderr
    counted = json.loads(done.stdout)
    assert not counted["exact"]
    assert counted["message_tokens"][0] - 20 // 4 in range(5), "and what surrounds a message"
