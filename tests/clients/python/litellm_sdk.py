"""`litellm` as a client: chat completions, responses and messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import litellm
from driving import BASE_URL, MODEL, V1, run, weather

litellm.telemetry = False
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Chat:
    """`litellm.completion`."""

    def __init__(self, key: str) -> None:
        self.access = {"model": f"openai/{MODEL}", "api_base": V1, "api_key": key, "max_tokens": 100}

    def ask(self, history: list[Any], **members: Any) -> Any:
        """Ask for the next message."""
        return litellm.completion(messages=history, **self.access, **members)

    def whole(self, question: str) -> str:
        return self.ask([{"role": "user", "content": question}]).choices[0].message.content

    def stream(self, question: str) -> list[str]:
        events = self.ask([{"role": "user", "content": question}], stream=True)
        return [event.choices[0].delta.content for event in events if event.choices[0].delta.content]

    def tools(self, question: str) -> str:
        tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
        history: list[Any] = [{"role": "user", "content": question}]
        for _ in range(3):
            said = self.ask(history, tools=tools).choices[0].message
            if not said.tool_calls:
                return said.content
            history.append(said)
            for call in said.tool_calls:
                result = weather(**json.loads(call.function.arguments))
                history.append({"role": "tool", "tool_call_id": call.id, "content": result})
        raise RuntimeError("calls without end")

    def talk(self, questions: Sequence[str]) -> list[str]:
        history: list[Any] = []
        answers = []
        for question in questions:
            history.append({"role": "user", "content": question})
            said = self.ask(history).choices[0].message
            history.append(said)
            answers.append(said.content)
        return answers


class AnthropicChat(Chat):
    """`litellm.completion` for Anthropic's provider: chat completions for the caller, messages on the wire."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.access |= {"model": f"anthropic/{MODEL}", "api_base": BASE_URL}


class Responses(Chat):
    """`litellm.responses`."""

    def whole(self, question: str) -> str:
        access = {"model": self.access["model"], "api_base": V1, "api_key": self.access["api_key"]}
        said: Any = litellm.responses(input=question, **access)
        return said.output_text

    def stream(self, question: str) -> list[str]:
        access = {"model": self.access["model"], "api_base": V1, "api_key": self.access["api_key"]}
        events: Any = litellm.responses(input=question, stream=True, **access)
        return [event.delta for event in events if event.type == "response.output_text.delta"]


run({"chat": Chat, "messages": AnthropicChat, "responses": Responses})
