"""A summarizer's model for the tests: LangChain's own deterministic fake, which also notes what it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic import Field


class Scribe(FakeListChatModel):
    """Answers with ``responses``, one after the other."""

    responses: list[str] = Field(default_factory=lambda: [f"Notes, number {n}." for n in range(1, 100)])
    asked: list[list[BaseMessage]] = Field(default_factory=list)
    """The messages of each request."""

    def _call(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> str:
        self.asked.append(messages)
        return super()._call(messages, *args, **kwargs)

    @property
    def read(self) -> list[str | None]:
        """Ids of all messages that it was asked about, the closing prompts left out."""
        return [message.id for request in self.asked for message in request[:-1]]


def talk(stop: int, start: int = 0) -> list[AnyMessage]:
    """Messages ``m0``, ``m1`` ... of user and assistant in turn."""
    return [(AIMessage if n % 2 else HumanMessage)(f"said {n}", id=f"m{n}") for n in range(start, stop)]


def calls(message_id: str, *call_ids: str) -> AIMessage:
    """A message that calls one tool several times."""
    return AIMessage("", id=message_id, tool_calls=[{"name": "look", "args": {}, "id": one} for one in call_ids])


def result(message_id: str, call_id: str) -> ToolMessage:
    """The result of a call."""
    return ToolMessage(f"found {call_id}", id=message_id, tool_call_id=call_id)


def ids(messages: Sequence[BaseMessage]) -> list[str | None]:
    """The ids of messages; a summary has none."""
    return [message.id for message in messages]


def orphans(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Results without their call, and calls without a result, but for those of the newest message."""
    called = {call["id"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls}
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    return [
        message
        for place, message in enumerate(messages)
        if (isinstance(message, ToolMessage) and message.tool_call_id not in called)
        or (
            isinstance(message, AIMessage)
            and place < len(messages) - 1
            and any(call["id"] not in answered for call in message.tool_calls)
        )
    ]
