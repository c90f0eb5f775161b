"""Plans a graph's messages: LangMem's three numbers become a budget, and the core's planner decides.

``summarizing.py`` performs the decisions. There is no second planner: ``core/planning/plan.py`` decides the cut, the
pairs of calls and results, and what fits; ``core/planning/assemble.py`` builds the forwarded messages.

LangChain's messages are converted to the core's. The store finds a conversation by its messages as the chat-completions
dialect parses them. So each message is written as LangChain's OpenAI client sends it, and parsed by the parser of the
proxy's requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import assert_never

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)

from tidemark.core.conversation.messages import JsonValue, Message, digest_of
from tidemark.core.conversation.summary import PrefixSummary as CoreSummary
from tidemark.core.conversation.summary import SummaryRecipe, inner_systems
from tidemark.core.frozen import frozen
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import Budget, CompactionPolicy
from tidemark.core.planning.cuts import open_cuts
from tidemark.core.planning.plan import plan
from tidemark.core.planning.situation import (
    CannotFit,
    Compact,
    MaskResults,
    NoCompaction,
    PlanInput,
    ReuseSummary,
    SwapSummary,
)
from tidemark.dialects.chat.message import ROLES, parse_message

TokenCounter = Callable[[Iterable[BaseMessage]], int]
"""Counts the tokens of messages, as LangMem's ``token_counter`` does."""
RECIPE = SummaryRecipe("llm", "langgraph", 1)
_REMOVED = Message(raw=b"{}", role="user", text="", digest=digest_of(b"told by the summary and gone"))
"""Stands for the messages that a graph removed after summarizing them; it has no tokens and is never sent."""
_MOST = 2**62
"""A limit in tokens that no graph reaches."""
_POLICY = CompactionPolicy(strategy="llm", min_gain=-inf, min_tokens=0)
"""The graph's own numbers decide when a compaction is due; nothing else prevents one."""
_ROLES: Mapping[type[BaseMessage], str] = {
    SystemMessage: "system",
    HumanMessage: "user",
    AIMessage: "assistant",
    ToolMessage: "tool",
    FunctionMessage: "function",
}


@frozen
class Limits:
    """The limits of a LangMem user, in the tokens of ``count``."""

    max_tokens: int
    before_summary: int
    """A summary is due from this many tokens that no summary covers."""
    max_summary: int
    count: TokenCounter


@frozen
class CarriedSummary:
    """A running summary, with the fields that the plan needs."""

    text: str
    ids: frozenset[str]
    last: str | None
    tokens: int
    """The tokens of the rendered summary."""


class GraphPlan:
    """A graph's messages with their running summary; each member answers one question about them.

    :param messages: the graph's messages, in order, without the rendered summary
    :raises ValueError: a message after the last summarized one has been summarized already
    """

    def __init__(self, messages: Sequence[BaseMessage], limits: Limits, running_summary: CarriedSummary | None) -> None:
        self.limits = limits
        self.running_summary = running_summary
        self.pairs = [(core_message(message), message) for message in messages]
        self.conversation = [(core, message) for core, message in self.pairs if not core.is_system]
        ends = [
            place
            for place, message in enumerate(messages)
            if running_summary and running_summary.last and message.id == running_summary.last
        ]
        upto = self.pairs[: ends[-1] + 1] if ends else []  # LangMem's summary may end with a system message
        self.covered = sum(not core.is_system for core, _ in upto)
        for _, message in self.conversation[self.covered :]:
            if running_summary and message.id in running_summary.ids:
                error = f"Message with ID {message.id} has already been summarized."
                raise ValueError(error)

    @cached_property
    def is_history_removed(self) -> bool:
        """Return whether the graph removed its summarized messages; one message without tokens stands for them."""
        return self.running_summary is not None and not self.covered

    @cached_property
    def messages(self) -> list[Message]:
        cores = [core for core, _ in self.pairs]
        if not self.is_history_removed:
            return cores
        head = next((place for place, core in enumerate(cores) if not core.is_system), len(cores))
        return [*cores[:head], _REMOVED, *cores[head:]]

    @cached_property
    def summary(self) -> CoreSummary | None:
        """Return the core's running summary; None if it covers the newest message or splits a pair."""
        if self.running_summary is None or not self.conversation:
            return None
        if not self.is_history_removed:
            cuts = open_cuts([core for core, _ in self.conversation])
            if self.covered == len(self.conversation) or not cuts[self.covered]:
                return None
        covered, systems = self.covered or 1, inner_systems(self.messages)
        absorbed_systems = [
            core.digest for core, message in self.pairs if core.is_system and message.id in self.running_summary.ids
        ]
        absorbed = [
            digest for digest in absorbed_systems if systems.get(digest, covered + 1) <= covered
        ]  # later ones are sent anyway
        return _summary(self.running_summary.text, covered, absorbed)

    def decide(self) -> NoCompaction | ReuseSummary | Compact:
        """Return the core's plan; if nothing fits into ``max_tokens``, it comes as near as possible."""
        plan_input = self._plan_input()
        planned = plan(plan_input)
        planned_summary = planned.previous if isinstance(planned, Compact) else getattr(planned, "summary", None)
        # If nothing fits, the core would drop the summary and summarize everything, which may be removed already.
        if isinstance(planned, CannotFit) or planned_summary is not self.summary:
            relaxed = replace(plan_input.budget, limit=_MOST, retention=0)
            planned = plan(replace(plan_input, budget=relaxed))
        match planned:
            case NoCompaction() | ReuseSummary() | Compact():
                return planned
            case (
                SwapSummary() | MaskResults() | CannotFit()
            ):  # a graph prepares and masks nothing, and has no such limit
                raise AssertionError(planned)
            case _:
                assert_never(planned)

    def adopted(self, covered: int, absorbed: Sequence[bytes]) -> tuple[frozenset[str], str | None] | None:
        """Return the ids that a shared summary covers, and the last one; None if it covers no more than ours.

        A summary that absorbed a system message of another graph is not adopted.
        """
        holds = _summary("", covered, absorbed).holds_for(inner_systems(self.messages))
        if not self.covered < covered < len(self.conversation) or not holds:
            return None
        return self._summarized_ids(covered, absorbed)

    def leaving(self, covered: int, absorbed: Sequence[bytes]) -> list[BaseMessage]:
        """Return the messages that leave the context now, oldest first, without those of an earlier summary.

        :param covered: the number of covered messages of ``messages``
        :param absorbed: the digests of the system messages that the summary absorbs
        """
        originals, before, position = (
            self._originals(),
            self.running_summary.ids if self.running_summary else frozenset(),
            0,
        )
        messages: list[BaseMessage] = []
        for core in self.messages:
            position += not core.is_system
            if position > covered:
                break
            message = originals.get(id(core))
            is_summarized = not core.is_system or core.digest in absorbed
            if is_summarized and message is not None and message.id not in before:
                messages.append(message)
        return messages

    def allowed_tokens(self, planned: Compact) -> int:
        """Return the most tokens of the rendered summary within ``max_tokens``."""
        tokens = self.limits.max_tokens - planned.rest_tokens
        return min(self.limits.max_summary, tokens) if tokens > 0 else self.limits.max_summary

    def portions(self, planned: Compact) -> list[list[BaseMessage]]:
        """Split the messages that the summary adds into portions for the model, without splitting a pair."""
        size = max(self.limits.max_tokens, self.limits.before_summary)
        cuts = open_cuts(planned.messages)
        originals = self._originals()
        portions: list[list[BaseMessage]] = []
        tokens = size
        for place, core in enumerate(planned.messages):
            if tokens >= size and cuts[place]:
                portions.append([])
                tokens = 0
            message = originals[id(core)]
            portions[-1].append(message)
            tokens += self.limits.count([message])
        return portions

    def summarized_by(self, planned: Compact) -> tuple[frozenset[str], str | None]:
        """Return the ids that the new summary covers, and the last one."""
        return self._summarized_ids(planned.covered - self.is_history_removed, planned.absorbed)

    def around(self, covered: int, absorbed: Sequence[bytes]) -> tuple[list[BaseMessage], list[BaseMessage]]:
        """Return the messages before and after a summary of the first ``covered`` of ``messages``."""
        originals = self._originals()
        assembled = [originals.get(id(core)) for core in assemble(self.messages, _summary("", covered, absorbed))]
        place = assembled.index(None)
        return [message for message in assembled[:place] if message], [
            message for message in assembled[place:] if message
        ]

    def around_all(self) -> tuple[list[BaseMessage], list[BaseMessage]]:
        """Return the messages around a summary of the whole conversation: the system messages, and none after."""
        return [message for _, message in self.pairs], []

    def _summarized_ids(self, covered: int, absorbed: Sequence[bytes]) -> tuple[frozenset[str], str | None]:
        remaining = {message.id for _, message in self.conversation[covered:]}
        ids = {message.id for _, message in self.conversation[:covered]}
        ids |= {message.id for core, message in self.pairs if core.is_system and core.digest in absorbed}
        ids |= (self.running_summary.ids if self.running_summary else frozenset()) - remaining
        return frozenset(id_ for id_ in ids if id_), self.conversation[covered - 1][1].id

    def _plan_input(self) -> PlanInput:
        limits, summary = self.limits, self.summary
        skipped = {id(core) for core, _ in self.conversation[: self.covered]} if summary else set()
        skipped.add(id(_REMOVED))
        originals = self._originals()
        tokens = [0 if id(core) in skipped else limits.count([originals[id(core)]]) for core in self.messages]
        summary_tokens = self.running_summary.tokens if self.running_summary and summary else 0
        first = self.conversation[self.covered if summary else 0][0] if self.conversation else None
        start = next((n for n, core in enumerate(self.messages) if core is first), len(self.messages))
        absorbed = {*summary.absorbed} if summary else set()
        before = sum(t for t, core in zip(tokens[:start], self.messages, strict=False) if core.digest not in absorbed)
        fresh = sum(tokens[start:])
        mark = before + summary_tokens + limits.before_summary - 1
        over = before + summary_tokens + fresh > mark
        orphans = self._orphans()
        torn = sum(limits.count([message]) for _, message in self.conversation[:orphans])
        budget = Budget(
            window=limits.max_tokens,
            limit=limits.max_tokens,
            high_water=min(mark, limits.max_tokens) if over else mark,
            prepare_mark=mark,
            low_water=limits.max_tokens,
            retention=max(fresh - (torn or limits.before_summary), 0),
            max_summary=limits.max_summary,
            min_tokens=0,
        )
        return PlanInput(
            self.messages,
            tokens,
            0,
            budget,
            _POLICY,
            mode="force" if orphans else "auto",
            summary=summary,
            summary_tokens=summary_tokens,
        )

    def _orphans(self) -> int:
        """Count the results right after a summary whose calls LangMem removed."""
        if not self.is_history_removed:
            return 0
        calls = {call.id for core, _ in self.conversation for call in core.calls}
        places = enumerate(core for core, _ in self.conversation)
        return next((n for n, core in places if core.role != "tool" or core.answers in calls), 0)

    def _originals(self) -> dict[int, BaseMessage]:
        return {id(core): message for core, message in self.pairs}


def _summary(text: str, covered: int, absorbed: Sequence[bytes]) -> CoreSummary:
    return CoreSummary(b"", covered, text, RECIPE, "llm", "automatic", 0.0, absorbed=tuple(absorbed))


def core_message(message: BaseMessage) -> Message:
    """Convert one message; a content that the dialect cannot express stays as it is."""
    wire = {"role": _role(message), "content": _content(message), **_pairing(message)}
    if message.name and wire["role"] != "tool":  # LangChain's client sends a tool's result without the tool's name
        wire["name"] = message.name
    raw = json.dumps(wire, ensure_ascii=False, default=str)
    return parse_message(raw.encode(errors="surrogatepass"), json.loads(raw), 0)


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return message.role if message.role in ROLES else "user"
    return next((role for kind, role in _ROLES.items() if isinstance(message, kind)), "user")


def _content(message: BaseMessage) -> JsonValue:
    """Return text as it is, and parts in OpenAI's form if LangChain can convert them."""
    content = message.content
    if isinstance(content, str):
        return content
    try:
        (wire,) = convert_to_openai_messages([HumanMessage(content)])
    except (ValueError, TypeError, KeyError, AttributeError):
        return [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    converted: JsonValue = wire["content"]
    return converted


def _pairing(message: BaseMessage) -> dict[str, JsonValue]:
    """Return the members that pair calls with results; an unreadable call counts as a call too."""
    if isinstance(message, ToolMessage):
        return {"tool_call_id": message.tool_call_id}
    if not isinstance(message, AIMessage):
        return {}
    calls = [_call(call["id"], call["name"], json.dumps(call["args"], default=str)) for call in message.tool_calls]
    calls += [_call(call["id"], call["name"], call["args"]) for call in message.invalid_tool_calls]
    return {"tool_calls": calls} if calls else {}


def _call(call_id: str | None, name: str | None, arguments: str | None) -> JsonValue:
    return {
        "id": call_id or "",
        "type": "function",
        "function": {"name": name or "", "arguments": arguments or ""},
    }
