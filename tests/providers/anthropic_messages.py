"""Anthropic's Messages API, as strict as it is: an upstream that refuses what the real one refuses.

It is a script for `tests/support/scripted.py`, and an answer to any `Received`. Each thinking block that it makes is
signed: the signature binds it to `system`, `tools`, every earlier message and block, the model, and the account whose
key asked. Cache marks are no part of that; what they ask for is in `prompt_cache`. Nothing else is kept between
requests, so one secret serves any number of them. Source: Anthropic's guides "Preserved thinking", "Prefix checks on
thinking blocks", "Adaptive thinking", "Tool use", "Mid-conversation system messages" and "Streaming messages".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.providers.prompt_cache import MarksRefused, PromptCache, blocks_of
from tests.support.answers import Answer, Json, Received, sse
from tests.support.messages_answers import JSON_HEADERS, SSE_HEADERS, counted, error

BETA = "thinking-binding-controls-2026-08-01"
THINKING = ("thinking", "redacted_thinking")
BOUND = (
    "messages.{message}.content.{block}: Invalid `signature` in `thinking` block. The block is bound to a different "
    'conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
UNSIGNED = "messages.{message}.content.{block}: Invalid `signature` in `thinking` block"
UNREADABLE = "messages.{message}.content.{block}: Invalid `data` in `redacted_thinking` block"
MISSING = "messages.{message}.content.{block}.thinking.signature: Field required"
MANUAL = (
    "messages.{message}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When "
    "`thinking` is enabled, a final `assistant` message must start with a thinking block"
)
SYSTEM_FOLLOWS = (
    "messages.{message}: role 'system' must follow a 'user' message or an 'assistant' message ending in a server tool "
    "result"
)
SYSTEM_PRECEDES = "messages.{message}: role 'system' must precede an 'assistant' message or end the array"
Say = Callable[[Json], Sequence[Json]]
"""Makes the blocks of an answer; thinking has no signature yet."""


class Refusal(Exception):
    """A request that is answered with 400."""


def answers_plainly(body: Json) -> Sequence[Json]:
    """Think, and answer."""
    return [{"type": "thinking", "thinking": f"Hm, {len(body['messages'])}."}, {"type": "text", "text": "Fine."}]


@dataclass
class EnforcingAnthropic:
    """The API, with its prefix checks enforced. Each key is an account of its own."""

    say: Say = answers_plainly
    secret: bytes = b"a secret of the tests"
    checks: bool = True
    """Whether the models run the prefix check."""
    refusals: list[str] = field(default_factory=list)
    """The messages of every 400."""
    dropped: int = 0
    """Blocks that requests with ``drop_block`` lost."""
    cache: PromptCache = field(default_factory=PromptCache)
    account: str = field(default="", init=False)
    """Whose request is being answered."""

    def __call__(self, received: Received) -> Answer:
        """Answer a request for a message, or count one."""
        body, self.account = received.json, key_of(received)
        try:
            transformations = self._check(body, received.headers.get("anthropic-beta", ""))
        except Refusal as refusal:
            self.refusals.append(str(refusal))
            return error(400, str(refusal))
        if received.path.endswith("/count_tokens"):
            return counted(len(received.body) // 4)
        usage = self.cache.usage(body, self.account, len(received.body) // 4)
        return tell(self._signed(body), received, transformations, usage)

    def _check(self, body: Json, betas: str) -> list[Json]:
        """Check everything, and return what was dropped."""
        thinking = body.get("thinking") or {}
        binding = thinking.get("block_binding")
        if binding is not None and BETA not in betas:
            raise Refusal(f"thinking.block_binding: Extra inputs are not permitted without {BETA}")
        _check_turns(body["messages"])
        try:
            list(blocks_of(body))
        except MarksRefused as refused:
            raise Refusal(str(refused)) from refused
        if thinking.get("type") == "enabled":
            _check_manual(body["messages"])
        dropped = []
        for at, said in enumerate(body["messages"]):
            content = said["content"] if isinstance(said["content"], list) else []
            for place, block in enumerate(content):
                if block["type"] in THINKING and not self._is_valid(body, at, place):
                    if not binding or binding.get("prefix_mismatch_behavior") != "drop_block":
                        raise Refusal(BOUND.format(message=at, block=place))
                    dropped.append({"type": "thinking_dropped", "message": at, "block": place})
        self.dropped += len(dropped)
        return dropped

    def _is_valid(self, body: Json, at: int, place: int) -> bool:
        """Whether a block stands where it was made; that of another model is left out without a word."""
        block = body["messages"][at]["content"][place]
        is_redacted = block["type"] == "redacted_thinking"
        if not is_redacted and "signature" not in block:
            raise Refusal(MISSING.format(message=at, block=place))
        invalid = Refusal((UNREADABLE if is_redacted else UNSIGNED).format(message=at, block=place))
        try:
            model, bound, made, mark = json.loads(base64.b64decode(block["data" if is_redacted else "signature"]))
        except ValueError as unreadable:
            raise invalid from unreadable
        thought = block.get("thinking", "")
        if made != _digest(thought) or mark != self._mark(model, bound, made):
            raise invalid
        before = body["messages"][at]["content"][:place]
        return not self.checks or model != body["model"] or bound == prefix_of(body, body["messages"][:at], before)

    def _signed(self, body: Json) -> list[Json]:
        """The blocks of the answer, with their signatures."""
        content: list[Json] = []
        for block in self.say(body):
            if block["type"] in THINKING:
                bound, made = prefix_of(body, body["messages"], content), _digest(block.get("thinking", ""))
                parts = [body["model"], bound, made, self._mark(body["model"], bound, made)]
                name = "signature" if block["type"] == "thinking" else "data"
                block = {**block, name: base64.b64encode(json.dumps(parts).encode()).decode()}  # noqa: PLW2901
            content.append(block)
        return content

    def _mark(self, *parts: str) -> str:
        return hmac.new(self.secret, "\n".join((self.account, *parts)).encode(), hashlib.sha256).hexdigest()[:16]


def prefix_of(body: Json, messages: Sequence[Json], content: Sequence[Json]) -> str:
    """The digest of everything before a block, without cache marks; a string is one text block."""
    parts = [body.get("system") or [], body.get("tools") or [], list(messages), list(content)]
    return _digest(json.dumps(unmarked(parts), sort_keys=True))


def key_of(received: Received) -> str:
    """The key of a request, in whichever header it came."""
    return received.headers.get("x-api-key") or received.headers.get("authorization", "").removeprefix("Bearer ")


def tell(
    content: Sequence[Json], received: Received, transformations: Sequence[Json] = (), usage: Json | None = None
) -> Answer:
    """An answer with these blocks, streamed or not as asked."""
    calls = any(block["type"] == "tool_use" for block in content)
    message = {
        "id": f"msg_{received.mark}",
        "type": "message",
        "role": "assistant",
        "model": received.json["model"],
        "content": list(content),
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {**(usage or {"input_tokens": len(received.body) // 4}), "output_tokens": 5},
        **({"input_transformations": list(transformations)} if transformations else {}),
    }
    if not received.streams:
        return Answer([json.dumps(message).encode()], headers=list(JSON_HEADERS))
    pieces = [_event("message_start", message={**message, "content": [], "stop_reason": None})]
    for index, block in enumerate(content):
        empty, delta = _pieces_of(block)
        pieces.append(_event("content_block_start", index=index, content_block=empty))
        pieces += [_event("content_block_delta", index=index, delta=each) for each in delta]
        pieces.append(_event("content_block_stop", index=index))
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    pieces.append(_event("message_delta", delta=ended, usage={"output_tokens": 5}))
    return Answer([*pieces, _event("message_stop")], headers=list(SSE_HEADERS))


def _pieces_of(block: Json) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case "text":
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "tool_use":
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        case _:
            return block, []


def _check_turns(messages: Sequence[Json]) -> None:
    """Check roles, contents, and that each call has its result in the next message."""
    if not messages or messages[0]["role"] != "user" or messages[-1]["role"] == "assistant":
        raise Refusal("messages: the first and the last message must have the role user")
    calls: set[str] = set()
    for at, said in enumerate(messages):
        if said["role"] == "system":
            _check_system(messages, at)
        content = said["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks or any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            raise Refusal(f"messages.{at}: content and text blocks must be non-empty")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if set(results) != calls or len(results) != len(calls):
            raise Refusal(f"messages.{at}: `tool_use` ids were found without `tool_result` blocks, or the reverse")
        if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            raise Refusal(f"messages.{at}: `tool_result` blocks must come first")
        calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
        if said["role"] == "assistant" and blocks[-1]["type"] in THINKING:
            raise Refusal(f"messages.{at}: the final block in an assistant message cannot be `thinking`")
        if said["role"] != "assistant" and (calls or any(block["type"] in THINKING for block in blocks)):
            raise Refusal(f"messages.{at}: only the assistant thinks and calls")


def _check_system(messages: Sequence[Json], at: int) -> None:
    """Check where a system message stands among the others."""
    if messages[at - 1]["role"] != "user":
        raise Refusal(SYSTEM_FOLLOWS.format(message=at))
    if at + 1 < len(messages) and messages[at + 1]["role"] != "assistant":
        raise Refusal(SYSTEM_PRECEDES.format(message=at))


def _check_manual(messages: Sequence[Json]) -> None:
    """Check what manual thinking demands: in a tool loop the newest answer begins with its thinking."""
    newest = max(at for at, said in enumerate(messages) if said["role"] == "user")
    if not any(block["type"] == "tool_result" for block in messages[newest]["content"] if isinstance(block, dict)):
        return
    found = messages[newest - 1]["content"][0]["type"]
    if found not in THINKING:
        raise Refusal(MANUAL.format(message=newest - 1, found=found))


def unmarked(value: Any) -> Any:
    """A value without cache marks, and with blocks in place of a content that is a string."""
    if isinstance(value, list):
        return [unmarked(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {name: unmarked(each) for name, each in value.items() if name != "cache_control"}
    if "role" in plain and isinstance(plain.get("content"), str):
        plain["content"] = [{"type": "text", "text": plain["content"]}]
    return plain


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _event(kind: str, **members: Any) -> bytes:
    return sse(kind, {"type": kind, **members})
