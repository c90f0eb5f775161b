"""The kind of a conversation: from a talk to the work of an agent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import conversations, message
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import PrefixSummary, Strategy, SummaryRecipe
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.core.planning.kinds import work_share
from tidemark.core.planning.plan import plan, plan_ahead
from tidemark.core.planning.situation import PlanInput, SwapSummary

TASK = message(role="user", content="Mend the bug.\n" * 40)
PRINTED = "\n".join(f"line {number}: ok" for number in range(40))


def share_of(*messages: Message) -> float:
    """The share, with one token for each four characters."""
    return work_share(messages, [len(one.text) // 4 + 4 for one in messages])


def call(name: str) -> Message:
    """An assistant that calls a tool."""
    calls = [{"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    return message(role="assistant", content=None, tool_calls=calls)


def result(name: str) -> Message:
    """What the tool gave."""
    return message(role="tool", tool_call_id=name, content=PRINTED)


def test_a_talk_has_no_work() -> None:
    """However long what somebody says is."""
    said = [message(role="user", content="I was in Lisbon, and it rained. " * number) for number in range(1, 40)]
    assert share_of(*said) == 0.0
    assert share_of() == 0.0


def test_an_agent_that_nobody_talks_to_does_nothing_else() -> None:
    """Its task does not count, nor does a system message."""
    system = message(role="system", content="You are an agent. " * 50)
    assert share_of(system, TASK, call("a"), result("a"), call("b"), result("b")) == 1.0


def test_observations_in_user_messages_are_work() -> None:
    """With the message that caused each of them."""
    step = message(role="assistant", content="Let me look.\n\n```\nls -la\n```")
    assert share_of(TASK, step, message(role="user", content=PRINTED), step) > 0.9


def test_a_service_is_between_both() -> None:
    """An agent looks things up for somebody who talks with it."""
    said = [message(role="user", content="Please change my flight to the later one on Friday. " * 3)]
    answer = [message(role="assistant", content="These are the flights on Friday; which one do you want? " * 3)]
    assert 0.2 < share_of(*said, call("a"), result("a"), *answer, *said, *answer) < 0.8


@given(conversations())
def test_a_share_is_a_share(talk: list[Message]) -> None:
    """Of any history."""
    assert 0.0 <= share_of(*talk) <= 1.0


@given(st.integers(1_000, 2_000_000), st.floats(0, 1), st.floats(0, 1))
def test_more_work_never_makes_the_summary_longer(window: int, work: float, more: float) -> None:
    """And a bound in tokens is the same for all."""
    low, high = sorted((work, more))
    auto = budget_for(ModelProfile("m", ModelWindow(window), CompactionPolicy(strategy="extractive")), None)
    assert auto.max_work_summary <= auto.summary_for(high) <= auto.summary_for(low) <= auto.max_summary
    stated = budget_for(ModelProfile("m", ModelWindow(window), CompactionPolicy(max_summary_tokens=300)), None)
    assert stated.summary_for(low) == stated.summary_for(high) == stated.max_summary


@pytest.mark.parametrize("strategy", ["extractive", "hybrid"])
@pytest.mark.parametrize("head", [0.0, 0.15, 0.25])
@pytest.mark.parametrize("begun", [0.7, 0.8, 0.95])
def test_a_prepared_summary_comes_into_use_although_the_kind_has_changed(
    strategy: Strategy, head: float, begun: float
) -> None:
    """Results of tools after a talk lower the bound; no request waits for a summary because of that (promise 7)."""
    policy = CompactionPolicy(strategy=strategy)
    budget = budget_for(ModelProfile("m", ModelWindow(32_000, 4_000), policy), None)
    other = int(head * budget.limit)
    talk = [message(role="user", content="Hello.")]
    while other + 150 * len(talk) <= max(begun * budget.high_water, budget.prepare_mark):
        talk.append(message(role="assistant" if len(talk) % 2 else "user", content=f"Point {len(talk)}."))
    sizes = [150] * len(talk)
    ahead = plan_ahead(PlanInput(talk, sizes, other, budget, policy))
    assert ahead is not None
    prepared = PrefixSummary(b"", ahead.covered, "", SummaryRecipe(strategy, "", 1), strategy, "prepared", 0.0)
    while other + sum(sizes) <= budget.high_water:
        name = f"c{len(talk)}"
        talk, sizes = [*talk, call(name), result(name)], [*sizes, 30, 300]
    situation = PlanInput(
        talk, sizes, other, budget, policy, prepared=prepared, prepared_tokens=ahead.max_summary_tokens
    )
    assert isinstance(plan(situation), SwapSummary)
