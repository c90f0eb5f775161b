"""`llama-index-llms-openai`: chat completions and responses. ``is_chat_model`` is set, since no name tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from driving import MODEL, V1, run, weather
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI, OpenAIResponses


class OurModel(OpenAI):
    """The class of LlamaIndex looks a window up by the model's name, and knows OpenAI's names only."""

    @property
    def metadata(self) -> Any:
        known = self.model
        try:
            self.model = "gpt-4o-mini"
            return super().metadata
        finally:
            self.model = known

    def _get_model_name(self) -> str:
        return "gpt-4o-mini"


class OurResponsesModel(OpenAIResponses):
    """The same for responses."""

    @property
    def metadata(self) -> Any:
        known = self.model
        try:
            self.model = "gpt-4o-mini"
            return super().metadata
        finally:
            self.model = known


class Model:
    """An LLM of LlamaIndex."""

    def __init__(self, llm: Any) -> None:
        self.llm = llm

    def whole(self, question: str) -> str:
        return self.llm.chat([ChatMessage(role="user", content=question)]).message.content

    def stream(self, question: str) -> list[str]:
        events = self.llm.stream_chat([ChatMessage(role="user", content=question)])
        return [event.delta for event in events if event.delta]

    def tools(self, question: str) -> str:
        tool = FunctionTool.from_defaults(weather)
        said = self.llm.predict_and_call([tool], question)
        history = [ChatMessage(role="user", content=question)]
        reply = self.llm.chat_with_tools([tool], chat_history=history)
        history.append(reply.message)
        for call in self.llm.get_tool_calls_from_response(reply):
            result = str(tool(**call.tool_kwargs))
            ids = {"tool_call_id": call.tool_id, "call_id": call.tool_id}
            history.append(ChatMessage(role="tool", content=result, additional_kwargs=ids))
        assert weather("Paris") in str(said)
        return self.llm.chat_with_tools([tool], chat_history=history).message.content

    def talk(self, questions: Sequence[str]) -> list[str]:
        history: list[Any] = []
        answers = []
        for question in questions:
            history.append(ChatMessage(role="user", content=question))
            said = self.llm.chat(history).message
            history.append(said)
            answers.append(said.content)
        return answers


run(
    {
        "chat": lambda key: Model(OurModel(model=MODEL, api_base=V1, api_key=key, max_tokens=100)),
        "responses": lambda key: Model(OurResponsesModel(model=MODEL, api_base=V1, api_key=key, max_output_tokens=100)),
    }
)
