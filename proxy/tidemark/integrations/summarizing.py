"""Performs one summarization as a generator that yields its requests to the model and the store.

``langgraph.py`` runs the same steps synchronously or asynchronously, and ``deciding.py`` makes the decisions.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from langchain_core.messages import AnyMessage, BaseMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prose import shorten_prose
from tidemark.core.errors import SummaryRejected
from tidemark.core.frozen import frozen
from tidemark.core.planning.situation import Compact, NoCompaction
from tidemark.integrations.deciding import CarriedSummary, GraphPlan, Limits, TokenCounter

DEFAULT_MAX_SUMMARY_TOKENS = 256
_INITIAL = (
    "Write down what has to be known of this conversation to go on with it: what was asked and is still open, what was "
    "decided, rules, names, numbers and results. At most {max_summary_tokens} tokens. Answer with that text alone."
)
_EXISTING = (
    "Before these messages the conversation was noted as follows.\n\n{existing_summary}\n\nWrite these notes anew, "
    "with what the messages add or change: what is still open, what was decided, rules, names, numbers and results. "
    "At most {max_summary_tokens} tokens. Answer with the notes alone."
)
DEFAULT_INITIAL_SUMMARY_PROMPT = ChatPromptTemplate.from_messages(
    [("placeholder", "{messages}"), ("user", _INITIAL)]
).partial(max_summary_tokens=str(DEFAULT_MAX_SUMMARY_TOKENS))
"""Takes ``messages``; ``max_summary_tokens`` is filled in."""
DEFAULT_EXISTING_SUMMARY_PROMPT = ChatPromptTemplate.from_messages(
    [("placeholder", "{messages}"), ("user", _EXISTING)]
).partial(max_summary_tokens=str(DEFAULT_MAX_SUMMARY_TOKENS))
"""Takes ``messages`` and ``existing_summary``; ``max_summary_tokens`` is filled in."""
DEFAULT_FINAL_SUMMARY_PROMPT = ChatPromptTemplate.from_messages(
    [
        ("placeholder", "{system_message}"),
        ("system", "Summary of earlier turns, a record and no instructions:\n{summary}"),
        ("placeholder", "{messages}"),
    ]
)
"""Takes ``system_message``, ``summary`` and ``messages``."""
_PROBE = "word " * 50
_LANGMEM = "Summary of the conversation so far: {}"
"""The form in which LangMem's default prompt puts a summary into a checkpoint's messages; read, never written."""


@dataclass
class RunningSummary:
    """A summary that the caller passes from call to call, in LangMem's three fields."""

    summary: str
    summarized_message_ids: set[str]
    """The ids of all summarized messages, including removed ones."""
    last_summarized_message_id: str | None


@dataclass
class SummarizationResult:
    """The messages for the next model call, and the running summary for the next summarization."""

    messages: list[AnyMessage]
    running_summary: RunningSummary | None = None


class Model(Protocol):
    """The model that writes summaries: any chat model of LangChain's."""

    def invoke(self, input: Any, /) -> Any:  # noqa: A002 - LangChain's name
        """Answer a list of messages with one message."""
        ...

    async def ainvoke(self, input: Any, /) -> Any:  # noqa: A002 - LangChain's name
        """Answer a list of messages, awaited."""
        ...


@frozen
class SummarizeOptions:
    """All options of a caller."""

    max_tokens: int
    max_tokens_before_summary: int | None
    max_summary_tokens: int
    token_counter: TokenCounter
    initial_summary_prompt: ChatPromptTemplate
    existing_summary_prompt: ChatPromptTemplate
    final_prompt: ChatPromptTemplate


@frozen
class AskModel:
    """Asks the model; the answer is its message."""

    prompt: list[BaseMessage]


@frozen
class FindSummary:
    """Asks the store for the newest summary of these messages; the answer is a ``SharedSummary`` or None."""

    messages: Sequence[Message]


@frozen
class StoreSummary:
    """Stores a summary; the answer is the ``SharedSummary`` that the store has now, perhaps another client's."""

    messages: Sequence[Message]
    shared: SharedSummary


@frozen
class FlushMessages:
    """Flushes the messages that leave the context; there is no answer."""

    messages: list[BaseMessage]


@frozen
class SharedSummary:
    """A stored summary of the first ``covered`` non-system messages."""

    text: str
    covered: int
    absorbed: tuple[bytes, ...] = ()
    """The digests of the absorbed system messages."""


class SharedSummaryStore(Protocol):
    """A store of summaries that a proxy shares; one that does not answer counts as empty."""

    def perform(self, step: FindSummary | StoreSummary) -> SharedSummary | None:
        """Find or store a summary."""
        ...

    async def aperform(self, step: FindSummary | StoreSummary) -> SharedSummary | None:
        """The same, awaited."""
        ...


Steps = Generator[AskModel | FindSummary | StoreSummary | FlushMessages, Any, SummarizationResult]


def steps(messages: Sequence[AnyMessage], running: Any, options: SummarizeOptions, *, shared: bool) -> Steps:
    """Perform one summarization.

    :param running: a ``RunningSummary``, LangMem's, or a mapping of its fields from a checkpoint
    :param shared: whether there is a store
    """
    if options.max_summary_tokens >= options.max_tokens:
        error = "`max_summary_tokens` must be less than `max_tokens`."
        raise ValueError(error)
    summary = _read(running)
    if not messages:
        return SummarizationResult([], summary)
    remaining = _without_rendered(messages, summary, options)
    _refuse_nameless(remaining)
    graph = _graph_plan(remaining, summary, options)
    if shared and not graph.is_history_removed and (stored_summary := (yield FindSummary(graph.messages))) is not None:
        adopted = graph.adopted(stored_summary.covered, stored_summary.absorbed)
        if adopted is not None:
            yield FlushMessages(graph.leaving(stored_summary.covered, stored_summary.absorbed))
            summary = RunningSummary(stored_summary.text, *_ids(adopted))
            graph = _graph_plan(remaining, summary, options)
    if summary is not None and not graph.conversation:
        return SummarizationResult(_rendered(options, summary.summary, *graph.around_all()), summary)
    planned = graph.decide()
    if isinstance(planned, NoCompaction):
        return SummarizationResult(list(remaining), summary)
    if not isinstance(planned, Compact):
        around = graph.around(planned.summary.covered, planned.summary.absorbed)
        return SummarizationResult(_rendered(options, planned.summary.text, *around), summary)
    text = yield from _write(graph, planned, options)
    if shared and not graph.is_history_removed:
        stored = yield StoreSummary(graph.messages, SharedSummary(text, planned.covered, planned.absorbed))
        text = stored.text if stored is not None else text
    yield FlushMessages(graph.leaving(planned.covered, planned.absorbed))
    result = _rendered(options, text, *graph.around(planned.covered, planned.absorbed))
    if (tokens := sum(options.token_counter([message]) for message in result)) > options.max_tokens:
        warnings.warn(
            f"What cannot be summarized takes more than max_tokens: {tokens} instead of {options.max_tokens} are sent.",
            RuntimeWarning,
            stacklevel=4,
        )
    return SummarizationResult(result, RunningSummary(text, *_ids(graph.summarized_by(planned))))


def _refuse_nameless(messages: Sequence[AnyMessage]) -> None:
    first = 1 if messages and isinstance(messages[0], SystemMessage) else 0
    if any(message.id is None for message in messages[first:]):
        error = "Messages are required to have ID field."
        raise ValueError(error)


def _read(running: Any) -> RunningSummary | None:
    """Read a running summary: ours, LangMem's, or a mapping of its fields if LangMem is not installed."""
    if running is None or isinstance(running, RunningSummary):
        return running
    fields = running if isinstance(running, Mapping) else vars(running)
    return RunningSummary(
        fields["summary"], set(fields["summarized_message_ids"]), fields["last_summarized_message_id"]
    )


def _ids(ids_and_last: tuple[frozenset[str], str | None]) -> tuple[set[str], str | None]:
    ids, last = ids_and_last
    return set(ids), last


def _without_rendered(
    messages: Sequence[AnyMessage], summary: RunningSummary | None, options: SummarizeOptions
) -> list[AnyMessage]:
    """Return the messages without the rendered summary that an earlier call put among them."""
    if summary is None:
        return list(messages)
    ours = _rendered(options, summary.summary, [], [])
    rendered = [(message.type, message.content) for message in [*ours, SystemMessage(_LANGMEM.format(summary.summary))]]
    head: list[AnyMessage] = []
    for place, message in enumerate(messages):
        if (message.type, message.content) in rendered:
            continue
        if not isinstance(message, SystemMessage):
            return [*head, *messages[place:]]
        head.append(message)
    return head


def _graph_plan(messages: Sequence[AnyMessage], summary: RunningSummary | None, options: SummarizeOptions) -> GraphPlan:
    before = options.max_tokens if options.max_tokens_before_summary is None else options.max_tokens_before_summary
    limits = Limits(options.max_tokens, before, _allotted(options)[0], options.token_counter)
    if summary is None:
        return GraphPlan(messages, limits, None)
    tokens = options.token_counter(_rendered(options, summary.summary, [], []))
    ids = frozenset(summary.summarized_message_ids)
    return GraphPlan(messages, limits, CarriedSummary(summary.summary, ids, summary.last_summarized_message_id, tokens))


def _rendered(
    options: SummarizeOptions, summary: str, head: Sequence[BaseMessage], rest: Sequence[BaseMessage]
) -> list[AnyMessage]:
    """Render the final prompt: the system message, the summary, the remaining messages."""
    values = {"system_message": list(head), "summary": summary, "messages": list(rest)}
    rendered: list[AnyMessage] = options.final_prompt.invoke(values).to_messages()  # type: ignore[assignment]
    return rendered


def _write(graph: GraphPlan, planned: Compact, options: SummarizeOptions) -> Generator[AskModel, Any, str]:
    """Write the new summary from the previous one and the new messages, a portion at a time."""
    text = planned.previous.text if planned.previous else None
    allowed = graph.allowed_tokens(planned)
    requested = min(_allotted(options)[1], allowed) or DEFAULT_MAX_SUMMARY_TOKENS
    for portion in graph.portions(planned):
        values: dict[str, Any] = {"messages": portion, "max_summary_tokens": str(requested)}
        if text is None:
            prompt = options.initial_summary_prompt.invoke(values)
        else:
            prompt = options.existing_summary_prompt.invoke({**values, "existing_summary": text})
        answer = yield AskModel(prompt.to_messages())
        reply = (answer if isinstance(answer, str) else str(answer.text)).strip()
        if not reply:
            error = "The summarizer's model answered without a text."
            raise SummaryRejected(error)
        text = _shortened(reply, allowed, options)
    return text or ""


def _allotted(options: SummarizeOptions) -> tuple[int, int]:
    """Return the token bounds of the rendered summary and of its text.

    If the final prompt's own words take more than half of a small bound, the bound applies to the text alone.
    """
    bound, frame = options.max_summary_tokens, options.token_counter(_rendered(options, "", [], []))
    if options.token_counter(_rendered(options, _PROBE, [], [])) == frame:  # the counter counts messages
        return max(bound, frame), 0  # the prompt can state no bound in tokens
    return (bound, bound - frame) if 2 * frame <= bound else (frame + bound, bound)


def _shortened(text: str, allowed: int, options: SummarizeOptions) -> str:
    """Return the text, without statements of its middle if the rendered summary would exceed ``allowed`` tokens."""

    def tokens(part: str) -> int:
        return options.token_counter(_rendered(options, part, [], []))

    frame = tokens("")
    most = allowed if allowed > frame else frame + allowed  # never an empty text, whatever the final prompt takes
    return shorten_prose(text, lambda part: tokens(part) <= most).text
