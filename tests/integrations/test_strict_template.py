"""Chat templates that take one system message, or want a user's turn first, take what the node makes for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, merge_message_runs
from langchain_core.prompts import ChatPromptTemplate

from tests.integrations.scribe import Scribe, talk
from tidemark.integrations.langgraph import SummarizationNode

IN_USER_TURN = ChatPromptTemplate.from_messages(
    [("placeholder", "{system_message}"), ("user", "{summary}"), ("placeholder", "{messages}")]
)
ROLES = {"system": "system", "human": "user", "ai": "assistant"}


def count(messages: Iterable[Any]) -> int:
    """Messages as tokens."""
    return sum(1 for _ in messages)


def roles_of(messages: Sequence[BaseMessage]) -> list[str]:
    """What a chat template sees of them."""
    return [ROLES[message.type] for message in messages]


def are_taken(roles: Sequence[str]) -> bool:
    """Whether one system message at most comes first, and then users and assistants take turns."""
    turns = roles[1:] if roles[:1] == ["system"] else roles
    return all((role == "user") == (place % 2 == 0) for place, role in enumerate(turns))


@pytest.mark.parametrize("rules", [[SystemMessage("Be brief.", id="s")], []], ids=["with rules", "without"])
@pytest.mark.parametrize("key", ["messages", "summarized_messages"])
@pytest.mark.parametrize("most", [4, 5])
def test_a_final_prompt_puts_the_summary_in_the_users_turn(rules: list[AnyMessage], key: str, most: int) -> None:
    """Over several summaries, whichever role the first message behind them has, and under either key."""
    node = SummarizationNode(
        model=Scribe(),
        max_tokens=most + len(rules),
        max_summary_tokens=1,
        token_counter=count,
        final_prompt=IN_USER_TURN,
        output_messages_key=key,
    )
    messages, context, summaries = [*rules], dict[str, object](), 0
    for number in range(14):
        messages.append(HumanMessage(f"Question {number}?", id=f"q{number}"))
        update = node.invoke({"messages": messages, "context": context})
        context = update.get("context", context)
        seen = [message for message in update[key] if message.type != "remove"]
        sent = merge_message_runs(seen)
        assert are_taken(roles_of(sent)), roles_of(sent)
        assert f"Question {number}?" in str(sent[-1].content)
        summaries += "running_summary" in update.get("context", {})
        messages = [*(seen if key == "messages" else messages), AIMessage(f"Answer {number}.", id=f"a{number}")]
    assert summaries > 3


def test_by_default_the_summary_is_a_second_system_message() -> None:
    """As LangMem's: so the recipe of docs/langgraph.md is needed there."""
    node = SummarizationNode(model=Scribe(), max_tokens=5, max_summary_tokens=1, token_counter=count)
    update = node.invoke({"messages": [SystemMessage("Be brief.", id="s"), *talk(9)], "context": {}})
    assert roles_of(update["summarized_messages"])[:2] == ["system", "system"]
