"""`langchain-openai` in chat completions and responses, and `langchain-anthropic`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from driving import BASE_URL, MODEL, V1, run, weather
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI


class Model:
    """A chat model of LangChain."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def whole(self, question: str) -> str:
        return self.model.invoke(question).text

    def stream(self, question: str) -> list[str]:
        return [chunk.text for chunk in self.model.stream(question) if chunk.text]

    def tools(self, question: str) -> str:
        model = self.model.bind_tools([weather])
        history: list[Any] = [HumanMessage(question)]
        for _ in range(3):
            said = model.invoke(history)
            if not said.tool_calls:
                return said.text
            history.append(said)
            history += [ToolMessage(weather(**call["args"]), tool_call_id=call["id"]) for call in said.tool_calls]
        raise RuntimeError("calls without end")

    def talk(self, questions: Sequence[str]) -> list[str]:
        history: list[Any] = []
        answers = []
        for question in questions:
            history.append(HumanMessage(question))
            said = self.model.invoke(history)
            history.append(said)
            answers.append(str(said.text))
        return answers


run(
    {
        "chat": lambda key: Model(ChatOpenAI(model=MODEL, base_url=V1, api_key=key, max_tokens=100)),
        "responses": lambda key: Model(
            ChatOpenAI(model=MODEL, base_url=V1, api_key=key, max_tokens=100, use_responses_api=True)
        ),
        "messages": lambda key: Model(ChatAnthropic(model=MODEL, base_url=BASE_URL, api_key=key, max_tokens=100)),
    }
)
