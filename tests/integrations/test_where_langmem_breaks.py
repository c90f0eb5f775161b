"""What goes wrong with LangMem 0.0.30, found by running it, and must not go wrong here."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.messages.utils import count_tokens_approximately

from tests.integrations.scribe import Scribe, calls, ids, orphans, result, talk
from tidemark.core.errors import SummaryRejected
from tidemark.integrations.langgraph import RunningSummary, SummarizationNode, summarize_messages

LIMITS: dict[str, Any] = {"max_tokens": 6, "max_summary_tokens": 1, "token_counter": len}


def weighing(**weights: int) -> Callable[[Iterable[BaseMessage]], int]:
    """A counter by message id; all others, and the summary, count one."""
    return lambda messages: sum(weights.get(message.id or "", 1) for message in messages)


@pytest.mark.parametrize("before", [4, 5, 6])
def test_parallel_tool_calls_leave_no_orphan(before: int) -> None:
    """LangMem summarizes the call and one result, and sends the other result alone: providers refuse that."""
    messages = [*talk(3), calls("t", "a", "b"), result("ra", "a"), result("rb", "b"), *talk(10, 6)]
    got = summarize_messages(messages, running_summary=None, model=Scribe(), max_tokens_before_summary=before, **LIMITS)
    assert got.running_summary
    assert orphans(got.messages) == []
    assert {"t", "ra", "rb"} & got.running_summary.summarized_message_ids in (set(), {"t", "ra", "rb"})


def test_the_newest_message_stays_where_the_threshold_is_met_exactly() -> None:
    """LangMem summarizes all there is, the open question too."""
    got = summarize_messages(talk(6), running_summary=None, model=Scribe(), **LIMITS)
    assert ids(got.messages) == [None, "m5"]


def test_the_newest_message_stays_where_it_is_larger_than_the_budget() -> None:
    """It is sent, and a warning says that ``max_tokens`` could not be held."""
    limits = {**LIMITS, "token_counter": weighing(m2=20)}
    with pytest.warns(RuntimeWarning, match="takes more than max_tokens: 21 instead of 6"):
        got = summarize_messages(talk(3), running_summary=None, model=Scribe(), **limits)
    assert ids(got.messages) == [None, "m2"]


def test_a_checkpoint_whose_summary_took_the_newest_message_gets_it_back() -> None:
    """LangMem's summary of everything: the next model is sent what is still there."""
    taken = RunningSummary("text", {"m0", "m1", "m2"}, "m2")
    got = summarize_messages(talk(3), running_summary=taken, model=Scribe(), **LIMITS)
    assert ids(got.messages)[-1] == "m2"


def test_a_summary_is_held_to_its_bound() -> None:
    """LangMem only reckons with ``max_summary_tokens``, so a wordy model exceeds ``max_tokens``."""
    model = Scribe(responses=["The build fails. " * 400])
    messages: list[AnyMessage] = [
        (AIMessage if n % 2 else HumanMessage)(f"Message number {n}. " * 10, id=f"m{n}") for n in range(12)
    ]
    got = summarize_messages(messages, running_summary=None, model=model, max_tokens=400, max_summary_tokens=100)
    assert got.running_summary
    assert count_tokens_approximately(got.messages[:1]) <= 100
    assert count_tokens_approximately(got.messages) <= 400
    assert got.running_summary.summary.startswith("The build fails. The build")
    assert got.running_summary.summary.split()[-1] in ("The", "build", "fails."), "cut at the end of a word"


@pytest.mark.parametrize("bound", [5, 10, 15, 20, 30, 35, 40, 100])
def test_a_small_bound_leaves_a_text_and_max_tokens_holds(bound: int) -> None:
    """The final prompt's own words do not eat a summary up: then the bound is the text's, and both fit."""
    model = Scribe(responses=["The build fails. " * 400])
    messages: list[AnyMessage] = [
        (AIMessage if n % 2 else HumanMessage)(f"Message number {n}. " * 3, id=f"m{n}") for n in range(12)
    ]
    got = summarize_messages(messages, running_summary=None, model=model, max_tokens=160, max_summary_tokens=bound)
    assert got.running_summary
    tokens = len(got.running_summary.summary) / 4  # as the counter reckons, which rounds the whole message up
    assert min(bound, 17) * 0.4 <= tokens < bound + 1
    assert count_tokens_approximately(got.messages) <= 160
    told = re.search(r"At most (\d+) tokens", str(model.asked[0][-1].content))
    assert told
    assert 0 < int(told[1]) <= bound, "the model is told what it may write"


def test_nothing_is_told_by_a_summary_that_did_not_read_it() -> None:
    """LangMem shows the model the newest ``max_tokens`` of a backlog, and marks all of it as summarized."""
    model = Scribe()
    got = summarize_messages(talk(40), running_summary=None, model=model, **LIMITS)
    assert got.running_summary
    assert set(model.read) == got.running_summary.summarized_message_ids
    assert max(len(request) for request in model.asked) <= 6 + 1
    assert all(f"Notes, number {n}." in str(request[-1].content) for n, request in enumerate(model.asked[1:], 1))


def test_with_equal_keys_and_a_system_message_there_is_one_summary() -> None:
    """LangMem leaves the older summary among the messages, then summarizes the summary as a message."""
    node = SummarizationNode(model=Scribe(), output_messages_key="messages", **LIMITS)
    state: list[AnyMessage] = [SystemMessage("rules", id="s"), *talk(7)]
    context: dict[str, Any] = {}
    for turn in range(6):
        update = node.invoke({"messages": state, "context": context})
        context = update.get("context", context)
        state = [message for message in update["messages"] if message.type != "remove"]
        assert [message.type for message in state].count("system") == 2
        assert state[0].content == "rules"
        for message in state:
            message.id = message.id or f"made in turn {turn}"
        state += talk(10 + 3 * turn, 7 + 3 * turn)


def test_a_summary_that_langmem_left_among_the_messages_is_not_sent_twice() -> None:
    """A thread that changes over in the middle, its keys equal: LangMem's rendered message gives way to ours."""
    running = RunningSummary("Ada asked.", {"m0", "m1"}, "m1")
    left = SystemMessage("Summary of the conversation so far: Ada asked.", id="x")
    got = summarize_messages([left, *talk(4, 2)], running_summary=running, model=Scribe(), **LIMITS)
    assert ids(got.messages) == [None, "m2", "m3"]
    assert str(got.messages[0].content).count("Ada asked.") == 1


def test_results_that_langmem_tore_off_are_summarized_before_they_are_sent() -> None:
    """Their calls are gone from the state, so no provider takes them: the summary takes them in."""
    running = RunningSummary("Two look-ups.", {"m0", "t", "ra"}, "ra")
    model = Scribe()
    got = summarize_messages([result("rb", "b"), *talk(4, 2)], running_summary=running, model=model, **LIMITS)
    assert model.read == ["rb"]
    assert ids(got.messages) == [None, "m2", "m3"]
    assert got.running_summary == RunningSummary("Notes, number 1.", {"m0", "t", "ra", "rb"}, "rb")


def test_a_summary_of_langmems_that_ends_with_a_system_message_is_found() -> None:
    """Where LangMem summarized an operator's message last, its id is the end of what is told."""
    messages: list[AnyMessage] = [*talk(3), SystemMessage("Answer in verse.", id="s"), *talk(6, 3)]
    running = RunningSummary("text", {"m0", "m1", "m2", "s"}, "s")
    got = summarize_messages(messages, running_summary=running, model=Scribe(), **LIMITS)
    assert ids(got.messages) == [None, "m3", "m4", "m5"]


def test_system_messages_in_the_middle_stay() -> None:
    """LangMem takes an operator's rules for talk and summarizes them away."""
    messages: list[AnyMessage] = [*talk(3), SystemMessage("Answer in verse.", id="s"), *talk(9, 3)]
    got = summarize_messages(messages, running_summary=None, model=Scribe(), **LIMITS)
    assert ids(got.messages)[:2] == [None, "s"]
    again = summarize_messages(messages, running_summary=got.running_summary, model=Scribe(), **LIMITS)
    assert again == got


@pytest.mark.parametrize("said", ["", "  \n"])
def test_an_empty_answer_is_no_summary(said: str) -> None:
    """LangMem goes on with nothing in place of the history."""
    with pytest.raises(SummaryRejected):
        summarize_messages(talk(7), running_summary=None, model=Scribe(responses=[said]), **LIMITS)


def test_an_answer_in_parts_is_a_text() -> None:
    """LangMem writes Python's form of the list of parts into the next prompt."""

    class Parts:
        def invoke(self, _: Any) -> AIMessage:
            return AIMessage([{"type": "text", "text": "Ada asked."}])

    got = summarize_messages(talk(7), running_summary=None, model=Parts(), **LIMITS)  # type: ignore[arg-type]
    assert got.running_summary
    assert got.running_summary.summary == "Ada asked."


@st.composite
def histories(draw: st.DrawFn) -> list[AnyMessage]:
    """Turns of a user and an agent with parallel calls; the newest message is a question."""
    messages: list[AnyMessage] = [SystemMessage("rules", id="s")] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 7))):
        messages.append(HumanMessage(f"asked {turn}", id=f"h{turn}"))
        for step in range(draw(st.integers(0, 2))):
            called = [f"c{turn}.{step}.{n}" for n in range(draw(st.integers(1, 3)))]
            messages += [calls(f"t{turn}.{step}", *called), *(result(f"r{one}", one) for one in called)]
        messages.append(AIMessage(f"answered {turn}", id=f"a{turn}"))
        if draw(st.integers(0, 5)) == 0:
            messages.append(SystemMessage(f"rule {turn}", id=f"s{turn}"))
    return [*messages, HumanMessage("asked last", id="last")]


@given(histories(), st.data())
def test_at_every_turn_all_is_told_or_sent_and_no_pair_is_torn(history: list[AnyMessage], data: st.DataObject) -> None:
    """Promises 2, 3, 4 and 6 for a graph's whole life: the history grows, its summary is handed on."""
    weights = {message.id or "": data.draw(st.integers(1, 9)) for message in history}
    count = weighing(**weights)
    most = data.draw(st.integers(8, 60))
    before = data.draw(st.none() | st.integers(2, 80))
    model, running = Scribe(responses=["noted"]), None
    turns = [place + 1 for place, message in enumerate(history) if isinstance(message, HumanMessage)]
    for stop in turns:
        messages = history[:stop]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = summarize_messages(
                messages,
                running_summary=running,
                model=model,
                max_tokens=most,
                max_tokens_before_summary=before,
                max_summary_tokens=3,
                token_counter=count,
            )
        asked_before, running = running, got.running_summary
        told = running.summarized_message_ids if running else set()
        kept = [one for one in ids(got.messages) if one]
        assert set(kept) | told == set(ids(messages))
        assert not set(kept) & told
        assert kept == [one for one in ids(messages) if one in kept], "in order"
        assert got.messages[-1] == messages[-1]
        assert orphans(got.messages) == []
        assert told <= set(model.read)
        if running != asked_before and not caught:
            assert count(got.messages) <= most


@given(histories(), st.data())
def test_the_same_where_the_graph_keeps_only_what_is_sent(history: list[AnyMessage], data: st.DataObject) -> None:
    """Equal keys: the state is what was returned, with what came since; nothing is told and sent, or neither."""
    weights = {message.id or "": data.draw(st.integers(1, 9)) for message in history}
    model, running = Scribe(responses=["noted"]), None
    limits: dict[str, Any] = {"max_tokens": data.draw(st.integers(8, 60)), "max_summary_tokens": 3}
    limits["max_tokens_before_summary"] = data.draw(st.none() | st.integers(2, 80))
    turns = [place + 1 for place, message in enumerate(history) if isinstance(message, HumanMessage)]
    state: list[AnyMessage] = []
    for start, stop in pairwise([0, *turns]):
        state += history[start:stop]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            got = summarize_messages(
                state, running_summary=running, model=model, token_counter=weighing(**weights), **limits
            )
        running, state = got.running_summary, list(got.messages)
        kept = [message.id for message in state if not str(message.content).endswith("noted")]
        told = running.summarized_message_ids if running else set()
        assert set(kept) | told == set(ids(history[:stop]))
        assert not set(kept) & told
        assert len(state) - len(kept) == bool(told), "one summary"
        assert state[-1] == history[stop - 1]
        assert orphans(state) == []
        assert len(model.read) == len(set(model.read)), "read once"
        for message in state:
            message.id = message.id or f"given at {stop}"
