"""Anthropic's compaction on demand, as strict as it is: `EnforcingAnthropic` that writes summaries too.

A request with ``compaction`` is answered with one signed block. The block is accepted as the first content of
``messages`` and nowhere else. Thinking of the turns behind it is valid exactly under the documented conditions, and
everything else is refused with 400. What a block stands for is kept in the fake. Source: Anthropic's guides "Compaction
on demand", "Compaction that keeps recent turns" and "Compaction and preserved thinking".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.providers.anthropic_messages import EnforcingAnthropic, Refusal, key_of
from tests.support.answers import Answer, Json, Received
from tests.support.messages_answers import JSON_HEADERS, error

BETA = "compact-2026-09-04"
PRESERVING = ("claude-fable-5-1", "claude-mythos-5-1", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
"""Models with preserved thinking."""
SUPPORTING = (*PRESERVING, "claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-sonnet-5")
MEMBERS = {"type", "content", "signature", "cache_control"}
"""The members that a block may have."""


@dataclass(frozen=True)
class Stood:
    """What a block stands for."""

    messages: Sequence[Json]
    head: str
    """The digest of ``system`` and ``tools``."""
    model: str


@dataclass
class CompactingAnthropic(EnforcingAnthropic):
    """The API of one account that writes summaries."""

    compactions: list[Json] = field(default_factory=list)
    """The requests for summaries that were answered with one."""
    words: int = 12
    """Of a summary."""
    stops: str = "compaction"
    """With another ``stop_reason`` there is no summary."""
    _stood: dict[str, Stood] = field(default_factory=dict)
    """By signature."""

    def __call__(self, received: Received) -> Answer:
        """Answer a request for a message or for a summary, or count one."""
        body, betas = received.json, received.headers.get("anthropic-beta", "")
        self.account = key_of(received)
        asks = body.get("compaction") is not None and not received.path.endswith("/count_tokens")
        turns = _as_turns(body, closed=not asks)
        try:
            self._check_block(body, betas)
            if asks:
                _check_asking(body, betas)
                self._check(turns, betas)
        except Refusal as refusal:
            self.refusals.append(str(refusal))
            return error(400, str(refusal))
        return self._summarize(body, received) if asks else super().__call__(_with_body(received, turns))

    def forget(self) -> None:
        """Take no block any more that was made so far, as after a change of keys."""
        self._stood = {}

    def _summarize(self, body: Json, received: Received) -> Answer:
        """Answer with a block, and remember what it stands for."""
        content: list[Json] = []
        if self.stops == "compaction":
            text = f"Summary {len(self.compactions)} of {len(body['messages'])} messages:" + " point" * self.words
            stood = Stood(_as_turns(body)["messages"], _head_of(body), body["model"])
            signature = self._signature(text, len(self._stood))
            self._stood[signature] = stood
            content = [{"type": "compaction", "content": text, "signature": signature}]
        self.compactions.append(body)
        used = self.cache.usage(_as_turns(body), self.account, len(received.body) // 4)
        count = {**used, "output_tokens": self.words + 40}
        message = {
            "id": f"msg_{received.mark}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": self.stops,
            "usage": {"input_tokens": 0, "output_tokens": 0, "iterations": [{"type": "compaction", **count}]},
        }
        return Answer([json.dumps(message).encode()], headers=list(JSON_HEADERS))

    def _check_block(self, body: Json, betas: str) -> None:
        """Check the block of a request: how many there are, its place, its bytes, and the header."""
        found = [
            (at, place, block)
            for at, said in enumerate(body["messages"])
            for place, block in enumerate(said["content"] if isinstance(said["content"], list) else [])
            if block["type"] == "compaction"
        ]
        if not found:
            return
        at, place, block = found[0]
        if BETA not in betas:
            raise Refusal(f"messages.{at}.content.{place}: Input tag 'compaction' is not one of the expected tags")
        if len(found) > 1:
            raise Refusal("messages: only one compaction block is allowed")
        if (at, place) != (0, 0):
            raise Refusal("compaction_block_misplaced: the compaction block must come first in messages")
        if extra := block.keys() - MEMBERS:
            raise Refusal(f"messages.0.content.0.compaction.{min(extra)}: Extra inputs are not permitted")
        if block.get("signature") not in self._stood:
            raise Refusal("compaction_signature_invalid: messages.0.content.0.compaction.signature")
        number = list(self._stood).index(block["signature"])
        if self._signature(block["content"], number) != block["signature"]:
            raise Refusal("compaction_content_mismatch: messages.0.content.0.compaction.content")
        _check_budget(body)

    def _is_valid(self, body: Json, at: int, place: int) -> bool:
        """Whether a thinking block stands where it was made, or behind a summary of that."""
        if super()._is_valid(body, at, place):
            return True
        return any(
            super(CompactingAnthropic, self)._is_valid({**body, "messages": messages}, at + shift, place)
            for messages, shift in self._expanded(body["messages"], _head_of(body))
        )

    def _expanded(self, messages: Sequence[Json], head: str) -> Iterator[tuple[list[Json], int]]:
        """The messages with what their summary stands for in its place, and how many more there are."""
        content = messages[0]["content"]
        block = content[0] if isinstance(content, list) and content[0]["type"] == "compaction" else None
        stood = self._stood.get(block["signature"]) if block else None
        if stood is None or stood.model not in PRESERVING or stood.head != head or len(messages) < 2:
            return
        if _side(messages[1]) in (_side(stood.messages[-1]), "system") or len(content) > 1:
            return
        whole, shift = [*stood.messages, *messages[1:]], len(stood.messages) - 1
        yield whole, shift
        for earlier, more in self._expanded(stood.messages, head):
            yield [*earlier, *messages[1:]], shift + more

    def _signature(self, text: str, number: int) -> str:
        return self._mark("compaction", str(number), hashlib.sha256(text.encode()).hexdigest())

    def _signed(self, body: Json) -> list[Json]:
        return super()._signed(_as_turns(body))


def _check_asking(body: Json, betas: str) -> None:
    """Check a request for a summary."""
    if BETA not in betas:
        raise Refusal(f"compaction: requires anthropic-beta: {BETA}")
    if body["model"] not in SUPPORTING:
        raise Refusal(f"compaction: not supported by {body['model']}")
    if body["compaction"].get("type") != "summarize":
        raise Refusal("compaction.type: Input should be 'summarize'")
    choice = (body.get("tool_choice") or {}).get("type")
    refused = [name for name in ("context_management", "stop_sequences") if body.get(name)]
    refused += ["tool_choice"] if choice in ("any", "tool") else []
    refused += ["output_config.format"] if (body.get("output_config") or {}).get("format") else []
    if refused:
        raise Refusal(f"{refused[0]}: cannot be combined with `compaction`")
    _check_budget(body)
    newest = body["messages"][-1]
    blocks = newest["content"] if isinstance(newest["content"], list) else []
    if any(block["type"] == "tool_use" for block in blocks):
        raise Refusal("messages: the last assistant turn ends in a tool call with no result yet")


def _check_budget(body: Json) -> None:
    budget = (body.get("output_config") or {}).get("task_budget") or {}
    if "remaining" in budget:
        raise Refusal("output_config.task_budget.remaining: cannot be combined with compaction")


def _as_turns(body: Json, *, closed: bool = True) -> Json:
    """The body as `EnforcingAnthropic` checks it: a summary is the user's, and the user ends it.

    :param closed: whether the client's own messages end as they must
    """
    first, *rest = body["messages"]
    if isinstance(first["content"], list) and first["content"][:1] and first["content"][0]["type"] == "compaction":
        first = {**first, "role": "user"}
    messages = [first, *rest]
    if not closed and messages[-1]["role"] != "user":
        messages.append({"role": "user", "content": "Summarize."})
    return {**body, "messages": messages}


def _with_body(received: Received, body: Json) -> Received:
    return replace(received, body=json.dumps(body).encode())


def _head_of(body: Json) -> str:
    head: list[Any] = [body.get("system") or [], body.get("tools") or []]
    return json.dumps(_unmarked(head), sort_keys=True)


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _unmarked(each) for name, each in value.items() if name != "cache_control"}


def _side(said: Json) -> str:
    """The role of a message, as the API merges by it."""
    return str(said["role"])
