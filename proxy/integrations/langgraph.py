"""LangMem's short-term memory for LangGraph, done by Tidemark's core (S0-6): change the import and nothing else.

Beside the proxy, not on its road. Names, parameters, defaults, state keys, errors and the prompts' roles are those of
``langmem.short_term`` 0.0.30. What is summarized is decided in ``deciding.py``, by the proxy's own planner: no pair of
tool call and result is torn, the newest message stays, and a summary is held to its bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage, RemoveMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from proxy.integrations.deciding import TokenCounter
from proxy.integrations.summarizing import (
    DEFAULT_EXISTING_SUMMARY_PROMPT,
    DEFAULT_FINAL_SUMMARY_PROMPT,
    DEFAULT_INITIAL_SUMMARY_PROMPT,
    DEFAULT_MAX_SUMMARY_TOKENS,
    Ask,
    Model,
    RunningSummary,
    Shelf,
    Steps,
    SummarizationResult,
    Wish,
    steps,
)

__all__ = [
    "RunningSummary",
    "SummarizationNode",
    "SummarizationResult",
    "asummarize_messages",
    "summarize_messages",
]

for _public in (RunningSummary, SummarizationResult):
    _public.__module__ = __name__  # checkpoints name a class by its module: here it stays


def summarize_messages(
    messages: list[AnyMessage],
    *,
    running_summary: RunningSummary | None,
    model: Model,
    max_tokens: int,
    max_tokens_before_summary: int | None = None,
    max_summary_tokens: int = DEFAULT_MAX_SUMMARY_TOKENS,
    token_counter: TokenCounter = count_tokens_approximately,
    initial_summary_prompt: ChatPromptTemplate = DEFAULT_INITIAL_SUMMARY_PROMPT,
    existing_summary_prompt: ChatPromptTemplate = DEFAULT_EXISTING_SUMMARY_PROMPT,
    final_prompt: ChatPromptTemplate = DEFAULT_FINAL_SUMMARY_PROMPT,
    store: Shelf | None = None,
) -> SummarizationResult:
    """Bring messages within ``max_tokens``: a running summary, and the newest messages as they are.

    :param messages: the whole history, system message first; all others need an id
    :param running_summary: of the call before; also one that LangMem wrote
    :param model: writes the summaries; what it raises is raised
    :param max_tokens: of the result, counted by ``token_counter``; a newest turn that is larger alone stays all the
        same, with a ``RuntimeWarning``
    :param max_tokens_before_summary: from so many tokens that no summary tells, one is made; ``max_tokens`` by default
    :param max_summary_tokens: bound of the summary as the final prompt renders it; what is beyond is cut. Of its text
        alone where that prompt's own words take more than half of the bound
    :param initial_summary_prompt: takes ``messages``
    :param existing_summary_prompt: takes ``messages`` and ``existing_summary``
    :param final_prompt: takes ``system_message``, ``summary`` and ``messages``
    :param store: summaries that are shared with a proxy (``shared.py``)
    :raises ValueError: a bound or a message's id is not as it must be
    :raises SummaryRejected: the model answered without a text; nothing was changed
    """
    wish = Wish(
        max_tokens,
        max_tokens_before_summary,
        max_summary_tokens,
        token_counter,
        initial_summary_prompt,
        existing_summary_prompt,
        final_prompt,
    )
    return _perform(steps(messages, running_summary, wish, shared=store is not None), model, store)


async def asummarize_messages(
    messages: list[AnyMessage],
    *,
    running_summary: RunningSummary | None,
    model: Model,
    max_tokens: int,
    max_tokens_before_summary: int | None = None,
    max_summary_tokens: int = DEFAULT_MAX_SUMMARY_TOKENS,
    token_counter: TokenCounter = count_tokens_approximately,
    initial_summary_prompt: ChatPromptTemplate = DEFAULT_INITIAL_SUMMARY_PROMPT,
    existing_summary_prompt: ChatPromptTemplate = DEFAULT_EXISTING_SUMMARY_PROMPT,
    final_prompt: ChatPromptTemplate = DEFAULT_FINAL_SUMMARY_PROMPT,
    store: Shelf | None = None,
) -> SummarizationResult:
    """The same as ``summarize_messages``, with the model's ``ainvoke``."""
    wish = Wish(
        max_tokens,
        max_tokens_before_summary,
        max_summary_tokens,
        token_counter,
        initial_summary_prompt,
        existing_summary_prompt,
        final_prompt,
    )
    return await _aperform(steps(messages, running_summary, wish, shared=store is not None), model, store)


class SummarizationNode(Runnable[Any, dict[str, Any]]):
    """A node that summarizes ``input_messages_key`` into ``output_messages_key``, and keeps its summary in ``context``.

    The state is a mapping or a pydantic model with ``context: dict``; ``context["running_summary"]`` is the node's.
    Where both keys are equal, the messages are replaced: ``RemoveMessage(REMOVE_ALL_MESSAGES)`` comes first.
    """

    def __init__(
        self,
        *,
        model: Model,
        max_tokens: int,
        max_tokens_before_summary: int | None = None,
        max_summary_tokens: int = DEFAULT_MAX_SUMMARY_TOKENS,
        token_counter: TokenCounter = count_tokens_approximately,
        initial_summary_prompt: ChatPromptTemplate = DEFAULT_INITIAL_SUMMARY_PROMPT,
        existing_summary_prompt: ChatPromptTemplate = DEFAULT_EXISTING_SUMMARY_PROMPT,
        final_prompt: ChatPromptTemplate = DEFAULT_FINAL_SUMMARY_PROMPT,
        input_messages_key: str = "messages",
        output_messages_key: str = "summarized_messages",
        name: str = "summarization",
        store: Shelf | None = None,
    ) -> None:
        if store is not None and input_messages_key == output_messages_key:
            message = "A shared summary is found by the whole history: let output_messages_key be another one."
            raise ValueError(message)
        self.name = name
        self.model = model
        self.max_tokens = max_tokens
        self.max_tokens_before_summary = max_tokens_before_summary
        self.max_summary_tokens = max_summary_tokens
        self.token_counter = token_counter
        self.initial_summary_prompt = initial_summary_prompt
        self.existing_summary_prompt = existing_summary_prompt
        self.final_prompt = final_prompt
        self.input_messages_key = input_messages_key
        self.output_messages_key = output_messages_key
        self.store = store

    def __repr__(self) -> str:
        return f"SummarizationNode({self.name}: {self.input_messages_key} -> {self.output_messages_key})"

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: A002
        """The update of the state."""
        del config, kwargs
        context, started = self._start(input)
        return self._update(context, _perform(started, self.model, self.store))

    async def ainvoke(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The update of the state, with the model's ``ainvoke``."""
        del config, kwargs
        context, started = self._start(input)
        return self._update(context, await _aperform(started, self.model, self.store))

    def _start(self, state: Any) -> tuple[Mapping[str, Any], Steps]:
        messages = _field(state, self.input_messages_key)
        if messages is None:
            message = f"Missing required field `{self.input_messages_key}` in the input."
            raise ValueError(message)
        context = _field(state, "context") or {}
        wish = Wish(
            self.max_tokens,
            self.max_tokens_before_summary,
            self.max_summary_tokens,
            self.token_counter,
            self.initial_summary_prompt,
            self.existing_summary_prompt,
            self.final_prompt,
        )
        return context, steps(messages, context.get("running_summary"), wish, shared=self.store is not None)

    def _update(self, context: Mapping[str, Any], result: SummarizationResult) -> dict[str, Any]:
        messages: Sequence[BaseMessage] = result.messages
        if result.running_summary is None:
            return {self.output_messages_key: messages}
        if self.input_messages_key == self.output_messages_key:
            messages = [RemoveMessage(REMOVE_ALL_MESSAGES), *messages]
        return {
            self.output_messages_key: messages,
            "context": {**context, "running_summary": result.running_summary},
        }


def _field(state: Any, key: str) -> Any:
    """A field of the state, which may be a mapping, a pydantic model or a dataclass."""
    if isinstance(state, Mapping):
        return state.get(key)
    if hasattr(type(state), "model_fields") or is_dataclass(state):
        return getattr(state, key, None)
    message = f"Invalid input type: {type(state)}"
    raise ValueError(message)


def _perform(taken: Steps, model: Model, store: Shelf | None) -> SummarizationResult:
    """Do what the steps ask for, one after the other."""
    answer: Any = None
    while True:
        try:
            step = taken.send(answer)
        except StopIteration as done:
            result: SummarizationResult = done.value
            return result
        if isinstance(step, Ask):
            answer = model.invoke(step.prompt)
        elif store is not None:
            answer = store.perform(step)


async def _aperform(taken: Steps, model: Model, store: Shelf | None) -> SummarizationResult:
    """The same, awaiting each answer."""
    answer: Any = None
    while True:
        try:
            step = taken.send(answer)
        except StopIteration as done:
            result: SummarizationResult = done.value
            return result
        if isinstance(step, Ask):
            answer = await model.ainvoke(step.prompt)
        elif store is not None:
            answer = await store.aperform(step)
