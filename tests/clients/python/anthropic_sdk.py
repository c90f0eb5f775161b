"""The official `anthropic` package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anthropic import Anthropic
from driving import BASE_URL, MODEL, run, weather

TOOLS = [
    {
        "name": "weather",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]


class Messages:
    """`client.messages`."""

    def __init__(self, key: str) -> None:
        self.client: Any = Anthropic(base_url=BASE_URL, api_key=key)

    def ask(self, history: list[Any], **members: Any) -> Any:
        """Ask for the next message."""
        return self.client.messages.create(model=MODEL, max_tokens=100, messages=history, **members)

    def whole(self, question: str) -> str:
        return self.ask([{"role": "user", "content": question}]).content[-1].text

    def stream(self, question: str) -> list[str]:
        history = [{"role": "user", "content": question}]
        with self.client.messages.stream(model=MODEL, max_tokens=100, messages=history) as events:
            return list(events.text_stream)

    def tools(self, question: str) -> str:
        history: list[Any] = [{"role": "user", "content": question}]
        for _ in range(3):
            said = self.ask(history, tools=TOOLS)
            if said.stop_reason != "tool_use":
                return said.content[-1].text
            history.append({"role": "assistant", "content": said.content})
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": weather(**block.input)}
                for block in said.content
                if block.type == "tool_use"
            ]
            history.append({"role": "user", "content": results})
        raise RuntimeError("calls without end")

    def talk(self, questions: Sequence[str]) -> list[str]:
        history: list[Any] = []
        answers = []
        for question in questions:
            history.append({"role": "user", "content": question})
            said = self.ask(history, system="Be brief.")
            history.append({"role": "assistant", "content": said.content})
            answers.append(said.content[-1].text)
        return answers


run({"messages": Messages})
