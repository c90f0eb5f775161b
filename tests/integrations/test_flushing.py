"""S0-4 in graphs: what leaves the context is given to a hook before it is discarded, and no graph waits for it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, SystemMessage
from langgraph.graph import START, StateGraph

from tests.integrations.scribe import Scribe, ids, talk
from tests.integrations.test_graphs import EMPTY, LIMITS, State, WideState
from tests.support.waiting import wait_until
from tidemark.integrations.langgraph import (
    MOST_WAITING,
    FlushHook,
    SummarizationNode,
    asummarize_messages,
    summarize_messages,
)


class Taken:
    """A hook that notes what it is given."""

    def __init__(self) -> None:
        self.flushes: list[list[str | None]] = []

    def __call__(self, messages: Sequence[BaseMessage]) -> None:
        """Take a flush."""
        self.flushes.append(ids(messages))

    @property
    def all(self) -> list[str | None]:
        """Every message, in the order in which they came."""
        return [one for flush in self.flushes for one in flush]


def taken_so_many(taken: Taken, count: int) -> Callable[[], bool]:
    """Whether so many messages were taken."""
    return lambda: len(taken.all) == count


@pytest.mark.parametrize("output", ["messages", "summarized_messages"])
def test_s0_4_g_exactly_the_messages_that_leave_are_flushed(output: str) -> None:
    """Turn after turn: what is not in the context any more was flushed once, and nothing else was."""
    taken = Taken()
    node = SummarizationNode(model=Scribe(), output_messages_key=output, on_flush=taken, **LIMITS)
    wide = output != "messages"
    builder: Any = StateGraph(WideState if wide else State)
    graph = builder.add_node("summarize", node).add_edge(START, "summarize").compile()
    state: Any = {"messages": [], "context": {}}
    for turn in range(12):
        state = graph.invoke({**state, "messages": [*state["messages"], *talk(2 * turn + 2, 2 * turn)]})
        kept = [one for one in ids(state[output]) if one in {f"m{n}" for n in range(24)}]
        told = [f"m{n}" for n in range(2 * turn + 2) if f"m{n}" not in kept]
        wait_until(taken_so_many(taken, len(told)))
        assert taken.all == told
    assert len(taken.flushes) > 2


def test_s0_4_g_a_system_message_leaves_only_where_the_summary_took_it_in() -> None:
    """One at the beginning stays; so does one in the middle that fits."""
    taken = Taken()
    said = [SystemMessage("Rules.", id="s0"), *talk(4), SystemMessage("It is noon.", id="s1"), *talk(12, 4)]
    result = summarize_messages(said, running_summary=None, model=Scribe(), on_flush=taken, **LIMITS)
    wait_until(lambda: bool(taken.flushes))
    assert {*taken.all} | {one for one in ids(result.messages) if one} == {*ids(said)}
    assert not {*taken.all} & {*ids(result.messages)}


def test_s0_4_g_the_graph_does_not_wait_for_the_hook() -> None:
    """One that blocks holds up only itself; what came meanwhile is delivered after it, in order."""
    go, taken = threading.Event(), Taken()

    def blocks(messages: list[BaseMessage]) -> None:
        go.wait(60)
        taken(messages)

    node = SummarizationNode(model=Scribe(), on_flush=blocks, **LIMITS)
    context: Any = EMPTY
    for stop in (10, 20, 30):
        context = node.invoke({"messages": talk(stop), "context": context})["context"]
    assert taken.flushes == []
    go.set()
    told = context["running_summary"].summarized_message_ids
    wait_until(lambda: len(taken.all) == len(told))
    assert taken.all == [f"m{n}" for n in range(len(told))]


def test_s0_4_g_a_coroutine_function_is_awaited() -> None:
    """In the asynchronous call as well."""
    taken = Taken()

    async def hook(messages: list[BaseMessage]) -> None:
        await asyncio.sleep(0)
        taken(messages)

    asyncio.run(asummarize_messages(talk(12), running_summary=None, model=Scribe(), on_flush=hook, **LIMITS))
    wait_until(lambda: bool(taken.flushes))
    assert taken.all[0] == "m0"


def test_s0_4_g_a_hook_that_fails_fails_no_graph(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so, and the next flush is delivered."""
    taken = Taken()

    def fails_once(messages: list[BaseMessage]) -> None:
        taken(messages)
        if len(taken.flushes) == 1:
            raise RuntimeError

    node = SummarizationNode(model=Scribe(), on_flush=fails_once, **LIMITS)
    with caplog.at_level(logging.ERROR, "tidemark"):
        first = node.invoke({"messages": talk(10), "context": {}})
        node.invoke({"messages": talk(20), "context": first["context"]})
        wait_until(lambda: len(taken.flushes) == 2)
    assert "on_flush failed" in caplog.text


def test_s0_4_g_a_summary_that_fails_flushes_nothing() -> None:
    """Nothing was discarded."""
    taken = Taken()
    node = SummarizationNode(model=Scribe(responses=[""]), on_flush=taken, **LIMITS)
    with pytest.raises(Exception, match="without a text"):
        node.invoke({"messages": talk(12), "context": {}})
    assert taken.flushes == []


def test_s0_4_g_what_waits_has_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    """Memory has an end: what a function that never ends cannot take is dropped with an error."""
    go = threading.Event()
    hook = FlushHook(lambda _: go.wait(60))
    with caplog.at_level(logging.ERROR, "tidemark"):
        for _ in range(MOST_WAITING + 2):
            hook.put(list(talk(1)))
    go.set()
    assert "1 messages that left a graph's context are dropped" in caplog.text
