"""The official `openai` package: chat completions and responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from driving import MODEL, V1, run, weather
from openai import OpenAI

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class Chat:
    """`client.chat.completions`."""

    def __init__(self, key: str) -> None:
        self.create: Any = OpenAI(base_url=V1, api_key=key).chat.completions.create

    def whole(self, question: str) -> str:
        return self.create(model=MODEL, messages=[{"role": "user", "content": question}]).choices[0].message.content

    def stream(self, question: str) -> list[str]:
        events = self.create(model=MODEL, messages=[{"role": "user", "content": question}], stream=True)
        return [event.choices[0].delta.content for event in events if event.choices and event.choices[0].delta.content]

    def tools(self, question: str) -> str:
        tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS, "strict": True}}]
        history: list[Any] = [{"role": "user", "content": question}]
        for _ in range(3):
            said = self.create(model=MODEL, messages=history, tools=tools).choices[0].message
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
            said = self.create(model=MODEL, messages=history, max_tokens=100).choices[0].message
            history.append(said)
            answers.append(said.content)
        return answers


class Responses:
    """`client.responses`."""

    def __init__(self, key: str) -> None:
        self.create: Any = OpenAI(base_url=V1, api_key=key).responses.create

    def whole(self, question: str) -> str:
        return self.create(model=MODEL, input=question).output_text

    def stream(self, question: str) -> list[str]:
        events = self.create(model=MODEL, input=question, stream=True)
        return [event.delta for event in events if event.type == "response.output_text.delta"]

    def tools(self, question: str) -> str:
        tools = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}]
        history: list[Any] = [{"role": "user", "content": question}]
        for _ in range(3):
            said = self.create(model=MODEL, input=history, tools=tools)
            calls = [item for item in said.output if item.type == "function_call"]
            if not calls:
                return said.output_text
            history += said.output
            for call in calls:
                result = weather(**json.loads(call.arguments))
                history.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
        raise RuntimeError("calls without end")

    def talk(self, questions: Sequence[str]) -> list[str]:
        history: list[Any] = []
        answers = []
        for question in questions:
            history.append({"role": "user", "content": question})
            said = self.create(model=MODEL, input=history, instructions="Be brief.", max_output_tokens=100)
            history += said.output
            answers.append(said.output_text)
        return answers


class ContinuedResponses(Responses):
    """`client.responses` that sends only what is new: `previous_response_id` stands for the rest."""

    def talk(self, questions: Sequence[str]) -> list[str]:
        answers, before = [], None
        for question in questions:
            said = self.create(model=MODEL, input=question, previous_response_id=before, max_output_tokens=100)
            answers.append(said.output_text)
            before = said.id
        return answers


run({"chat": Chat, "responses": Responses, "continued": ContinuedResponses})
