"""The sessions that have text: what their turns use stands before, and they are as their page says."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from benchmarks.bill import through_tidemark, without_proxy
from benchmarks.billed_sessions import Need, Session, session_of_trace
from benchmarks.traces.scenarios import SCENARIOS
from benchmarks.traces.sessions import Trace, shares, shares_of_ages, source_of, texts_of, trace_of
from benchmarks.traces.values import AGES, PLACES
from tidemark.tokens import LocalTokenCounter

NAMES = [scenario.name for scenario in SCENARIOS]


@pytest.fixture(params=NAMES)
def trace(request: pytest.FixtureRequest) -> Trace:
    """Each session; not made before a test asks for it, since all files are read by each process of a run."""
    return trace_of(request.param)


def test_every_value_is_in_the_reply_and_in_an_earlier_message(trace: Trace) -> None:
    """And in no message between the two, so that its age is that of its newest standing."""
    for use in trace.uses:
        assert any(use.value in text for text in texts_of(trace.replies[use.turn]))
        assert any(use.value in text for text in texts_of(trace.messages[use.message]))
        between = trace.messages[use.message + 1 : trace.ends[use.turn]]
        assert not any(use.value in text for message in between for text in texts_of(message))
        assert source_of(trace.messages[use.message]) == use.source


def test_a_session_is_one_that_the_api_takes(trace: Trace) -> None:
    """Roles alternate, each call has its result in the message behind it, and each reply is the next message."""
    assert [message["role"] for message in trace.messages] == ["user", "assistant"] * (len(trace.ends) - 1) + ["user"]
    for end, reply in zip(trace.ends[:-1], trace.replies, strict=False):
        assert trace.messages[end] == reply
    for reply, after in pairwise(trace.messages[1:]):
        if reply["role"] == "assistant":
            calls = [block["id"] for block in reply["content"] if block["type"] == "tool_use"]
            blocks = [] if isinstance(after["content"], str) else after["content"]
            assert [block["tool_use_id"] for block in blocks] == calls
            assert calls or isinstance(after["content"], str)


def test_a_session_has_the_size_of_a_real_one(trace: Trace) -> None:
    """From 60 to 200 turns and 60,000 to 250,000 tokens, of which 65 to 80 % are results."""
    counter = LocalTokenCounter()
    sizes = [sum(counter.count_text(text, "gpt-4o") for text in texts_of(message)) for message in trace.messages]
    results = sum(size for size, message in zip(sizes, trace.messages, strict=True) if source_of(message) == "result")
    assert 60 <= len(trace.ends) <= 200
    assert 60_000 < sum(sizes) < 250_000
    assert 0.65 < results / sum(sizes) < 0.80


def test_uses_are_spread_as_the_docstring_says() -> None:
    """Within 5 points, all sessions together."""
    traces = [trace_of(name) for name in NAMES]
    assert shares(traces, "source") == pytest.approx({"result": 0.75, "assistant": 0.14, "user": 0.11}, abs=0.05)
    assert shares(traces, "place") == pytest.approx(PLACES, abs=0.05)
    assert shares_of_ages(traces) == pytest.approx([share for *_, share in AGES], abs=0.05)


def test_a_session_is_the_same_each_time() -> None:
    """No clock and no order of a set has a part in it."""
    again = trace_of.__wrapped__("invoice-rounding")
    first = trace_of("invoice-rounding")
    assert json.dumps(again.messages) == json.dumps(first.messages)
    assert again.uses == first.uses


def test_the_first_turns_are_those_of_the_whole_session() -> None:
    """So that a short run tells of the same session."""
    short = trace_of("queue-leak", 20)
    assert len(short.replies) == len(short.ends) == 20
    assert short.messages == trace_of("queue-leak").messages[: short.ends[-1]]
    assert short.uses == [use for use in trace_of("queue-leak").uses if use.turn < 20]


def test_without_a_proxy_every_value_is_there() -> None:
    """Whatever characters it has."""
    bill = without_proxy(session_of_trace(trace_of("queue-leak", 60)))
    assert bill.share("there") == 1
    assert len(bill.needs) > 40


def test_a_value_is_counted_apart_if_only_the_handle_of_its_message_is_there() -> None:
    """A value that the request has counts as there, and one of another message as gone."""
    session = Session("", messages=[{"role": "user", "content": "Earlier: result m0123abcd (3 lines). Port 8080."}])
    session.ends, session.replies = [1], [{"role": "assistant", "content": "Yes."}]
    shown = frozenset({"m0123abcd"})
    session.needs = [[Need("8080", shown), Need("7 attempts", shown), Need("job_1", frozenset({"m99999999"}))]]
    assert [became for _, became in without_proxy(session).needs] == ["there", "handle", "gone"]


def test_a_session_through_tidemark_is_billed_as_it_says_itself() -> None:
    """In the Messages dialect, to the cent, and for less than without it."""
    session = session_of_trace(trace_of("queue-leak", 50))
    bill = through_tidemark(session, "{strategy: extractive, threshold: price, price_floor: 16000}")
    assert bill.compactions >= 1
    assert bill.usd < without_proxy(session).usd
    assert bill.gain["paid_usd"] == pytest.approx(bill.usd, abs=1e-6)
    assert 0.5 < bill.share("there") < 1
