"""`openai-agents`: an agent with a session, over chat completions and responses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from driving import MODEL, V1, run, weather
from openai import AsyncOpenAI

set_tracing_disabled(disabled=True)


class AgentClient:
    """An agent with one tool."""

    def __init__(self, kind: Any, key: str) -> None:
        self.kind, self.key = kind, key

    def agent(self, *tools: Any) -> Any:
        """A new agent; each run has an event loop and thus a client of its own."""
        model = self.kind(model=MODEL, openai_client=AsyncOpenAI(base_url=V1, api_key=self.key))
        settings = ModelSettings(max_tokens=100)
        return Agent(name="helper", instructions="Be brief.", model=model, tools=list(tools), model_settings=settings)

    def whole(self, question: str) -> str:
        return Runner.run_sync(self.agent(), question).final_output

    def stream(self, question: str) -> list[str]:
        async def pieces() -> list[str]:
            result = Runner.run_streamed(self.agent(), question)
            events = [event async for event in result.stream_events()]
            raw = [event.data for event in events if event.type == "raw_response_event"]
            return [data.delta for data in raw if data.type == "response.output_text.delta"]

        return asyncio.run(pieces())

    def tools(self, question: str) -> str:
        return Runner.run_sync(self.agent(function_tool(weather)), question).final_output

    def talk(self, questions: Sequence[str]) -> list[str]:
        async def answers() -> list[str]:
            agent, session = self.agent(), SQLiteSession("talk")
            return [(await Runner.run(agent, question, session=session)).final_output for question in questions]

        return asyncio.run(answers())


run(
    {
        "chat": lambda key: AgentClient(OpenAIChatCompletionsModel, key),
        "responses": lambda key: AgentClient(OpenAIResponsesModel, key),
    }
)
