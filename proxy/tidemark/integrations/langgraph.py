"""Replaces LangMem's short-term memory for LangGraph by Tidemark's core (S0-6): only the import changes.

It is used without the proxy. Names, parameters, defaults, state keys, errors and the prompts' roles are those of
``langmem.short_term`` 0.0.30. ``deciding.py`` decides with the proxy's own planner what is summarized: no pair of tool
call and result is split, the newest message stays, and a summary stays within its bound.

A user's function is called with the messages that leave a graph's context, in a thread (S0-4). They are queued before
the result discards them. The proxy's own consumers, with their queue in the store, are in
``tidemark/features/memory_flush/``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, assert_never

from langchain_core.messages import AnyMessage, BaseMessage, RemoveMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from tidemark.integrations.deciding import TokenCounter
from tidemark.integrations.summarizing import (
    DEFAULT_EXISTING_SUMMARY_PROMPT,
    DEFAULT_FINAL_SUMMARY_PROMPT,
    DEFAULT_INITIAL_SUMMARY_PROMPT,
    DEFAULT_MAX_SUMMARY_TOKENS,
    AskModel,
    FindSummary,
    FlushMessages,
    Model,
    RunningSummary,
    SharedSummaryStore,
    Steps,
    StoreSummary,
    SummarizationResult,
    SummarizeOptions,
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
    _public.__module__ = __name__  # checkpoints name a class by its module, which must not change
OnFlush = Callable[[list[BaseMessage]], Any]
"""A user's function for the messages that leave, oldest first. It may be async; its result is ignored."""
MOST_WAITING = 1000
"""The most flushes that wait for a slow function. Further ones are dropped with an error in the log, because memory is
limited."""
_LOG = logging.getLogger("tidemark")


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
    store: SharedSummaryStore | None = None,
    on_flush: OnFlush | None = None,
) -> SummarizationResult:
    """Fit messages into ``max_tokens``: a running summary, and the newest messages as they are.

    :param messages: the whole history, system message first; all others need an id
    :param running_summary: the result of the call before; one that LangMem wrote works too
    :param model: writes the summaries; its exceptions are raised
    :param max_tokens: the bound of the result, counted by ``token_counter``; a newest turn that is larger alone stays,
        with a ``RuntimeWarning``
    :param max_tokens_before_summary: a summary is made from this many tokens that no summary covers; ``max_tokens`` by
        default
    :param max_summary_tokens: the bound of the summary as the final prompt renders it; the excess is cut. It applies to
        the text alone if that prompt's own words take more than half of it
    :param initial_summary_prompt: takes ``messages``
    :param existing_summary_prompt: takes ``messages`` and ``existing_summary``
    :param final_prompt: takes ``system_message``, ``summary`` and ``messages``
    :param store: the summaries that a proxy shares (``shared.py``)
    :param on_flush: called, off the caller's thread, with the messages that leave the context (``FlushHook``)
    :raises ValueError: a bound is invalid, or a message has no id or a summarized one
    :raises SummaryRejected: the model answered without a text; nothing was changed
    """
    options = SummarizeOptions(
        max_tokens,
        max_tokens_before_summary,
        max_summary_tokens,
        token_counter,
        initial_summary_prompt,
        existing_summary_prompt,
        final_prompt,
    )
    hook = FlushHook(on_flush) if on_flush else None
    return _perform(steps(messages, running_summary, options, shared=store is not None), model, store, hook)


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
    store: SharedSummaryStore | None = None,
    on_flush: OnFlush | None = None,
) -> SummarizationResult:
    """Do the same as ``summarize_messages``, with the model's ``ainvoke``."""
    options = SummarizeOptions(
        max_tokens,
        max_tokens_before_summary,
        max_summary_tokens,
        token_counter,
        initial_summary_prompt,
        existing_summary_prompt,
        final_prompt,
    )
    hook = FlushHook(on_flush) if on_flush else None
    return await _aperform(steps(messages, running_summary, options, shared=store is not None), model, store, hook)


class SummarizationNode(Runnable[Any, dict[str, Any]]):
    """A node that summarizes ``input_messages_key`` into ``output_messages_key``; its summary is in ``context``.

    The state is a mapping or a pydantic model with ``context: dict``; ``context["running_summary"]`` is the node's.
    If both keys are equal, the messages are replaced: ``RemoveMessage(REMOVE_ALL_MESSAGES)`` comes first.
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
        store: SharedSummaryStore | None = None,
        on_flush: OnFlush | None = None,
    ) -> None:
        """:param on_flush: called, off the graph, with exactly the messages that leave the context (S0-4)"""
        if store is not None and input_messages_key == output_messages_key:
            message = "A shared summary is found by the whole history: use another output_messages_key."
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
        self._hook = FlushHook(on_flush) if on_flush else None

    def __repr__(self) -> str:
        return f"SummarizationNode({self.name}: {self.input_messages_key} -> {self.output_messages_key})"

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: A002
        """Return the update of the state."""
        del config, kwargs
        context, started = self._start(input)
        return self._update(context, _perform(started, self.model, self.store, self._hook))

    async def ainvoke(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the update of the state, with the model's ``ainvoke``."""
        del config, kwargs
        context, started = self._start(input)
        return self._update(context, await _aperform(started, self.model, self.store, self._hook))

    def _start(self, state: Any) -> tuple[Mapping[str, Any], Steps]:
        messages = _field(state, self.input_messages_key)
        if messages is None:
            message = f"Missing required field `{self.input_messages_key}` in the input."
            raise ValueError(message)
        context = _field(state, "context") or {}
        options = SummarizeOptions(
            self.max_tokens,
            self.max_tokens_before_summary,
            self.max_summary_tokens,
            self.token_counter,
            self.initial_summary_prompt,
            self.existing_summary_prompt,
            self.final_prompt,
        )
        return context, steps(messages, context.get("running_summary"), options, shared=self.store is not None)

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
    """Return a field of the state, which may be a mapping, a pydantic model or a dataclass."""
    if isinstance(state, Mapping):
        return state.get(key)
    if hasattr(type(state), "model_fields") or is_dataclass(state):
        return getattr(state, key, None)
    message = f"Invalid input type: {type(state)}"
    raise ValueError(message)


def _perform(
    steps_: Steps, model: Model, store: SharedSummaryStore | None, hook: FlushHook | None
) -> SummarizationResult:
    answer: Any = None
    while True:
        try:
            step = steps_.send(answer)
        except StopIteration as done:
            result: SummarizationResult = done.value
            return result
        match step:
            case AskModel():
                answer = model.invoke(step.prompt)
            case FlushMessages():
                _leave(step, hook)
                answer = None
            case FindSummary() | StoreSummary():
                answer = None if store is None else store.perform(step)
            case _:
                assert_never(step)


async def _aperform(
    steps_: Steps, model: Model, store: SharedSummaryStore | None, hook: FlushHook | None
) -> SummarizationResult:
    """Perform the steps, awaiting each answer."""
    answer: Any = None
    while True:
        try:
            step = steps_.send(answer)
        except StopIteration as done:
            result: SummarizationResult = done.value
            return result
        match step:
            case AskModel():
                answer = await model.ainvoke(step.prompt)
            case FlushMessages():
                _leave(step, hook)
                answer = None
            case FindSummary() | StoreSummary():
                answer = None if store is None else await store.aperform(step)
            case _:
                assert_never(step)


def _leave(step: FlushMessages, hook: FlushHook | None) -> None:
    """Queue leaving messages before the result discards them."""
    if hook is not None and step.messages:
        hook.put(step.messages)


class FlushHook:
    """Calls a function in a thread, for one flush after the other, in order.

    The mutable state is the queue and its thread, which ends when the queue is empty. The interpreter waits for the
    thread at its end, so all queued flushes are delivered.
    """

    def __init__(self, call: OnFlush) -> None:
        self._call = call
        self._waiting: deque[list[BaseMessage]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, messages: list[BaseMessage]) -> None:
        """Queue leaving messages, and return at once."""
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                _LOG.error("on_flush is too slow: %d messages that left a graph's context are dropped", len(messages))
                return
            self._waiting.append(messages)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tidemark-flush")
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                messages = self._waiting.popleft()
            try:
                done = self._call(messages)
                if inspect.isawaitable(done):
                    asyncio.run(_awaited(done))
            except Exception:  # noqa: BLE001 - an error of the user's function must not stop the next flush
                _LOG.exception("on_flush failed for %d messages that left a graph's context", len(messages))


async def _awaited(done: Any) -> None:
    await done
