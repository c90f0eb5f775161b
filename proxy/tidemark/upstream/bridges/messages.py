"""The bridge of Anthropic's messages: says a request in chat completions, and writes the reply, streamed or whole.

Tools that the provider runs itself are left out, because the model cannot use them there. Content blocks follow each
other in this dialect, so a second tool call, whose pieces may come between those of the first, waits for the end.
Source: Anthropic API reference, "Messages" and "Streaming messages"; OpenAI API reference, "Create chat completion".
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.bodies import event_of
from tidemark.upstream.bridges.json_members import Members, encode_json, object_of, objects_of, value_of, without_none
from tidemark.upstream.bridges.pieces import (
    CallPiece,
    Piece,
    ReasoningPiece,
    RefusalPiece,
    ReplyWriter,
    SignedPiece,
    TextPiece,
)

SAME = ("temperature", "top_p", "top_k")
CHOICES: Mapping[str, JsonValue] = {"auto": "auto", "any": "required", "none": "none"}
EFFORTS = ((4_096, "low"), (16_384, "medium"))
"""The effort of a budget for thinking up to so many tokens; ``high`` above."""
LONGEST_USER = 64
"""Characters; OpenAI refuses a longer ``user``."""
BY_PROVIDER = ("mcp_servers", "container")
"""Members that ask for what runs at the provider: connections to MCP servers, and containers with skills."""
OWN_TOOLS = (None, "custom")
"""Types of tools that the client runs."""
STOP_REASONS: Mapping[str, str] = {
    "content_filter": "refusal",
    "function_call": "tool_use",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}
"""``end_turn`` for every other reason."""
KINDS_BY_STATUS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
"""Anthropic API reference, "Errors"; ``api_error`` for every other status."""


class MessagesRequestBridge:
    """``RequestBridge`` of messages; it has no state."""

    def members_of(self, request: ModelRequest) -> Members:
        fields = request.fields
        tools = [_tool(tool) for tool in objects_of(value_of(fields, "tools")) if tool.get("type") in OWN_TOOLS]
        choice = object_of(value_of(fields, "tool_choice"))
        members: Members = {name: value_of(fields, name) for name in SAME}
        members |= {
            "max_tokens": request.max_output_tokens,
            "stop": value_of(fields, "stop_sequences"),
            "user": _user(fields),
            "reasoning_effort": _effort(fields),
            "response_format": _format(fields),
            "tools": tools or None,
            "tool_choice": _choice(choice, has_tools=bool(tools)),
            "parallel_tool_calls": False if tools and choice.get("disable_parallel_tool_use") is True else None,
        }
        return without_none(members)

    def left_out(self, request: ModelRequest) -> Sequence[str]:
        """Return the members that only Anthropic serves, and that the model then answers without."""
        return [name for name in BY_PROVIDER if name in request.fields and value_of(request.fields, name)]

    def system_of(self, request: ModelRequest) -> str:
        system = value_of(request.fields, "system")
        if isinstance(system, str):
            return system
        return "\n".join([str(block.get("text") or "") for block in objects_of(system)])

    def adapted(self, request: ModelRequest, message: Message) -> Message:
        del request
        return message


def _tool(tool: Mapping[str, JsonValue]) -> JsonValue:
    function: Members = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
        "strict": tool.get("strict"),
    }
    return {"type": "function", "function": without_none(function)}


def _choice(choice: Mapping[str, JsonValue], *, has_tools: bool) -> JsonValue:
    """Return ``tool_choice``; None if the model may choose."""
    kind = choice.get("type")
    if kind in ("any", "tool") and not has_tools:
        raise InvalidRequest(
            "'tool_choice' demands a tool that cannot be served: this upstream speaks chat completions only, and the "
            "request has none but the provider's own tools. Leave it out, or use an upstream that speaks messages.",
            param="tool_choice",
            code="unsupported_value",
        )
    if kind is None or not has_tools:
        return None
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if not isinstance(kind, str) or kind not in CHOICES:
        raise InvalidRequest(f"Unknown tool_choice type {kind!r}.", param="tool_choice.type", code="invalid_value")
    return CHOICES[kind]


def _user(fields: Mapping[str, bytes]) -> JsonValue:
    """Return the user's id; a longer one, such as Claude Code's JSON, is no ``user`` of chat completions."""
    user = object_of(value_of(fields, "metadata")).get("user_id")
    return user if isinstance(user, str) and len(user) <= LONGEST_USER else None


def _effort(fields: Mapping[str, bytes]) -> JsonValue:
    """Return the effort of reasoning that is closest to what the client asks for; None if it asks for none."""
    effort = object_of(value_of(fields, "output_config")).get("effort")
    if isinstance(effort, str):
        return effort if effort in ("low", "medium", "high") else "high"
    thinking = object_of(value_of(fields, "thinking"))
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled" or not isinstance(budget, int):
        return None
    return next((name for most, name in EFFORTS if budget <= most), "high")


def _format(fields: Mapping[str, bytes]) -> JsonValue:
    """Return ``response_format``; None for plain text."""
    wanted = object_of(object_of(value_of(fields, "output_config")).get("format") or value_of(fields, "output_format"))
    if wanted.get("type") != "json_schema":
        return None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": wanted.get("schema")}}


class MessagesReplyWriter(ReplyWriter):
    """Writes one reply. Its state is the blocks so far."""

    def __init__(self, request: ModelRequest) -> None:
        super().__init__()
        self._id = f"msg_{secrets.token_hex(12)}"
        self._model = request.model
        self._blocks: list[dict[str, Any]] = []
        self._open = False
        """Whether the last block may still get more."""
        self._streamed_call: int | None = None
        """The index of the first call, whose arguments go out while they come."""
        self._waiting_calls: dict[int, list[str]] = {}
        """Id, name and the pieces of the arguments of each further call, by index."""
        self._waiting_pieces: list[TextPiece | RefusalPiece | ReasoningPiece | SignedPiece] = []
        """What came between the pieces of calls, which must not cut one in two."""
        self._arguments: list[str] = []
        self._is_in_calls = False
        """Whether a call has begun, and the answer has not ended."""

    def begin(self) -> Iterator[bytes]:
        message = {**self._message(), "content": [], "stop_reason": None, "usage": _counts({})}
        yield _event("message_start", {"message": message})

    def _add_content(self, piece: Piece) -> Iterator[bytes]:
        if self._is_in_calls and isinstance(piece, (TextPiece, RefusalPiece, ReasoningPiece, SignedPiece)):
            self._waiting_pieces.append(piece)
            return
        match piece:
            case TextPiece() | RefusalPiece():
                delta: Mapping[str, JsonValue] = {"type": "text_delta", "text": piece.text}
                yield from self._in_block({"type": "text", "text": ""}, "text", delta)
            case ReasoningPiece():
                block = {"type": "thinking", "thinking": "", "signature": ""}
                yield from self._in_block(block, "thinking", {"type": "thinking_delta", "thinking": piece.text})
            case SignedPiece():
                yield from self._sign(piece)
            case CallPiece():
                yield from self._add_call(piece)

    def end(self) -> Iterator[bytes]:
        yield from self._close()
        for call_id, name, *arguments in self._waiting_calls.values():
            yield from self._begin_call(call_id, name)
            yield from self._more_arguments("".join(arguments))
            yield from self._close()
        yield from self._add_waiting()
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        yield _event("message_delta", {"delta": delta, "usage": _counts(self._usage or {})})
        yield _event("message_stop", {})

    def whole(self) -> bytes:
        """Return the reply as one body; the events are not needed for it."""
        for _ in self.end():
            pass
        usage = _counts(self._usage or {})
        return encode_json(
            {**self._message(), "content": self._blocks, "stop_reason": self._stop_reason(), "usage": usage}
        )

    def failure(self, message: str) -> bytes:
        return _event("error", {"error": {"type": "api_error", "message": message}})

    def refusal(self, status: int, body: bytes) -> bytes:
        """Return an upstream's refusal in this dialect's envelope, with its own message and code."""
        try:
            error = json.loads(body)["error"]
        except (ValueError, KeyError, TypeError, RecursionError):
            error = body.decode("utf-8", "replace")[:1_000] or f"The upstream answered with status {status}."
        members = error if isinstance(error, dict) else {"message": str(error)}
        code_and_param = {name: members[name] for name in ("code", "param") if members.get(name) is not None}
        kind = KINDS_BY_STATUS.get(status, "api_error")
        error_members = {"type": kind, "message": str(members.get("message", "")), **code_and_param}
        return encode_json({"type": "error", "error": error_members})

    def _add_waiting(self) -> Iterator[bytes]:
        """Write what came between the pieces of calls behind them; Anthropic refuses texts of white space alone."""
        self._is_in_calls = False
        waiting, self._waiting_pieces = self._waiting_pieces, []
        has_words = any(not isinstance(piece, SignedPiece) and piece.text.strip() for piece in waiting)
        for piece in waiting:
            if has_words or isinstance(piece, SignedPiece):
                yield from self.add(piece)
        yield from self._close()

    def _message(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "stop_sequence": None,
        }

    def _stop_reason(self) -> str:
        return STOP_REASONS.get(self._reason or "", "tool_use" if self._streamed_call is not None else "end_turn")

    def _in_block(self, block: dict[str, Any], member: str, delta: Mapping[str, JsonValue]) -> Iterator[bytes]:
        """Add to the last block, or to a new one of another type."""
        if not self._open or self._blocks[-1]["type"] != block["type"]:
            yield from self._begin(block)
        self._blocks[-1][member] += delta[member]
        yield _event("content_block_delta", {"index": len(self._blocks) - 1, "delta": delta})

    def _sign(self, piece: SignedPiece) -> Iterator[bytes]:
        """Add signatures, whose texts have come as reasoning; sealed thinking is a block of its own."""
        for block in piece.blocks:
            if block.get("type") == "redacted_thinking":
                yield from self._begin(dict(block))
                yield from self._close()
            elif signature := block.get("signature"):
                delta: Mapping[str, JsonValue] = {"type": "signature_delta", "signature": signature}
                empty = {"type": "thinking", "thinking": "", "signature": ""}
                yield from self._in_block(empty, "signature", delta)
                yield from self._close()

    def _begin(self, block: dict[str, Any]) -> Iterator[bytes]:
        yield from self._close()
        self._blocks.append(block)
        self._open = True
        yield _event("content_block_start", {"index": len(self._blocks) - 1, "content_block": dict(block)})

    def _close(self) -> Iterator[bytes]:
        if not self._open:
            return
        self._open = False
        if self._blocks[-1]["type"] == "tool_use":
            self._blocks[-1]["input"] = _input("".join(self._arguments))
        yield _event("content_block_stop", {"index": len(self._blocks) - 1})

    def _add_call(self, piece: CallPiece) -> Iterator[bytes]:
        if self._streamed_call is None:
            self._streamed_call, self._is_in_calls = piece.index, True
            yield from self._begin_call(piece.id, piece.name)
        if piece.index == self._streamed_call and self._open and self._blocks[-1]["type"] == "tool_use":
            yield from self._more_arguments(piece.arguments)
            return
        waiting = self._waiting_calls.setdefault(piece.index, [piece.id, piece.name])
        waiting.append(piece.arguments)

    def _begin_call(self, call_id: str, name: str) -> Iterator[bytes]:
        self._arguments = []
        call_id = call_id or f"toolu_{secrets.token_hex(12)}"
        yield from self._begin({"type": "tool_use", "id": call_id, "name": name, "input": {}})

    def _more_arguments(self, arguments: str) -> Iterator[bytes]:
        if arguments:
            self._arguments.append(arguments)
            delta = {"type": "input_json_delta", "partial_json": arguments}
            yield _event("content_block_delta", {"index": len(self._blocks) - 1, "delta": delta})


def _input(arguments: str) -> JsonValue:
    """Return a call's arguments as an object; a text that is none is kept under a name of its own."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": value}


def _counts(usage: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the counts in this dialect, which counts cached tokens apart from the others."""
    details = object_of(usage.get("prompt_tokens_details"))
    read = _first_count(details.get("cached_tokens"), usage.get("cache_read_input_tokens"))
    creation = _first_count(usage.get("cache_creation_input_tokens"), details.get("cache_creation_tokens"))
    prompt, reply = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return {
        "input_tokens": max(prompt - read - creation, 0) if isinstance(prompt, int) else 0,
        "cache_creation_input_tokens": creation,
        "cache_read_input_tokens": read,
        "output_tokens": reply if isinstance(reply, int) else 0,
    }


def _first_count(*values: JsonValue) -> int:
    """Return the first of some counts; litellm and servers of OpenAI's format name them differently."""
    return next((value for value in values if type(value) is int), 0)


def _event(kind: str, members: Mapping[str, JsonValue]) -> bytes:
    return event_of(kind, encode_json({"type": kind, **members}))
