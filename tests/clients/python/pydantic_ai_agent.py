"""`pydantic-ai`: an agent over each dialect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from driving import BASE_URL, MODEL, V1, run, weather
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class AgentClient:
    """An agent with one tool."""

    def __init__(self, model: Callable[[], Any]) -> None:
        self.model = model

    def agent(self, *tools: Any) -> Any:
        """A new agent; each run has an event loop and thus a client of its own."""
        return Agent(self.model(), instructions="Be brief.", tools=tools)

    def whole(self, question: str) -> str:
        return self.agent().run_sync(question).output

    def stream(self, question: str) -> list[str]:
        async def pieces() -> list[str]:
            async with self.agent().run_stream(question) as result:
                return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]

        return asyncio.run(pieces())

    def tools(self, question: str) -> str:
        return self.agent(weather).run_sync(question).output

    def talk(self, questions: Sequence[str]) -> list[str]:
        async def answers() -> list[str]:
            agent, history, said = self.agent(), None, []
            for question in questions:
                result = await agent.run(question, message_history=history)
                history = result.all_messages()
                said.append(result.output)
            return said

        return asyncio.run(answers())


def openai(kind: Any) -> Callable[[str], AgentClient]:
    """Clients over a model of OpenAI's."""
    return lambda key: AgentClient(lambda: kind(MODEL, provider=OpenAIProvider(base_url=V1, api_key=key)))


def anthropic(key: str) -> AnthropicProvider:
    """A provider of Anthropic's."""
    return AnthropicProvider(base_url=BASE_URL, api_key=key)


run(
    {
        "chat": openai(OpenAIChatModel),
        "responses": openai(OpenAIResponsesModel),
        "messages": lambda key: AgentClient(lambda: AnthropicModel(MODEL, provider=anthropic(key))),
    }
)
