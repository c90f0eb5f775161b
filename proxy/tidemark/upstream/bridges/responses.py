"""The bridge of Responses: says a request in chat completions, and writes the reply, streamed or whole.

Built-in tools of the provider, such as ``web_search``, are left out, because the model cannot use them there. A request
is refused if it demands such a tool, or anything else that only the provider could do. Each event of a reply has its
number, and every item that was added is done before the last event. Source: OpenAI API reference, "Create a model
response", "Create chat completion", "The response object" and "Streaming events".
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.responses import REPEATED_MEMBERS
from tidemark.core.errors import EarlierResponseUnknown, InvalidRequest
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
from tidemark.upstream.bridges.thinking import Blocks, joined_blocks, sealed_blocks

SAME = (
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "seed",
    "service_tier",
    "store",
    "temperature",
    "top_p",
    "user",
)
"""Members of one name and one meaning in both formats."""
BY_PROVIDER = ("background", "conversation", "prompt")
"""Members that ask for something that only the provider has."""
REMEDY = (
    "This upstream speaks chat completions only, which has nothing like it. Leave it out, use an upstream that speaks "
    "Responses, or set model_info.dialects for this model if its upstream does."
)
INPUT = "input"
"""The argument of the function that stands for a custom tool."""
INCOMPLETE: Mapping[str, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a response is incomplete, by the reason of chat completions."""
REPEATED: Mapping[str, JsonValue] = {**REPEATED_MEMBERS, "store": True}
"""Members of the request that a response repeats, with their defaults."""
TEXT, REFUSAL, REASONING = "output_text", "refusal", "reasoning_text"


class ResponsesRequestBridge:
    """``RequestBridge`` of Responses; it has no state."""

    def members_of(self, request: ModelRequest) -> Members:
        fields = request.fields
        for name in BY_PROVIDER:
            if value_of(fields, name):
                raise InvalidRequest(f"{name!r} cannot be served. {REMEDY}", param=name, code="unsupported_parameter")
        if request.continues:  # Tidemark has put the messages of every response that it knows into the request
            raise EarlierResponseUnknown(request.continues)
        text, reasoning = object_of(value_of(fields, "text")), object_of(value_of(fields, "reasoning"))
        members: Members = {name: value_of(fields, name) for name in SAME}
        members |= {
            "max_tokens": request.max_output_tokens,
            "reasoning_effort": reasoning.get("effort"),
            "verbosity": text.get("verbosity"),
            "response_format": _format(object_of(text.get("format"))),
            "tools": _allowed(_tools(value_of(fields, "tools")), value_of(fields, "tool_choice")) or None,
        }
        if members["tools"] is None:
            members["parallel_tool_calls"] = None
        return without_none(members | {"tool_choice": _choice(fields, has_tools=members["tools"] is not None)})

    def left_out(self, request: ModelRequest) -> Sequence[str]:
        """Return nothing: what only the provider could do is refused."""
        del request
        return ()

    def system_of(self, request: ModelRequest) -> str:
        instructions = value_of(request.fields, "instructions")
        return instructions if isinstance(instructions, str) else ""

    def adapted(self, request: ModelRequest, message: Message) -> Message:
        """Return a message whose calls of custom tools are calls of functions."""
        custom = custom_tools(request) if message.calls else frozenset()
        if not any(call.name in custom for call in message.calls):
            return message
        calls = [
            replace(call, arguments=json.dumps({INPUT: call.arguments})) if call.name in custom else call
            for call in message.calls
        ]
        return Message(
            b"", message.role, message.text, message.digest, name=message.name, calls=tuple(calls), media=message.media
        )


def custom_tools(request: ModelRequest) -> frozenset[str]:
    """Return the names of the request's custom tools, whose input is free text."""
    tools = objects_of(value_of(request.fields, "tools"))
    return frozenset(str(tool.get("name")) for tool in tools if tool.get("type") == "custom")


def namespaces(request: ModelRequest) -> Mapping[str, str]:
    """Return the namespace of each function that has one, by the function's name."""
    spaces = [tool for tool in objects_of(value_of(request.fields, "tools")) if tool.get("type") == "namespace"]
    pairs = [(tool.get("name"), space.get("name")) for space in spaces for tool in objects_of(space.get("tools"))]
    return {str(name): str(space) for name, space in pairs}


def _tools(value: JsonValue) -> list[JsonValue]:
    """Return the tools that the model can call in chat completions."""
    tools: list[JsonValue] = []
    for tool in objects_of(value):
        match tool.get("type"):
            case "function":
                tools.append(_function(tool, tool.get("parameters")))
            case "custom":
                schema = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
                tools.append(_function(tool, schema))
            case "namespace":
                tools += _tools(tool.get("tools"))
            case _:
                continue
    return tools


def _allowed(tools: list[JsonValue], choice: JsonValue) -> list[JsonValue]:
    """Return the tools that ``tool_choice`` allows: all, unless it lists some."""
    members = object_of(choice)
    if members.get("type") != "allowed_tools":
        return tools
    names = [tool.get("name") for tool in objects_of(members.get("tools"))]
    return [tool for tool in tools if object_of(object_of(tool).get("function")).get("name") in names]


def _function(tool: Mapping[str, JsonValue], schema: JsonValue) -> JsonValue:
    function: Members = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": schema,
        "strict": tool.get("strict"),
    }
    return {"type": "function", "function": without_none(function)}


def _choice(fields: Mapping[str, bytes], *, has_tools: bool) -> JsonValue:
    """Return ``tool_choice``; None if the model may choose."""
    choice = value_of(fields, "tool_choice")
    members = object_of(choice)
    kind = members.get("type")
    demands = choice == "required" or kind in ("function", "custom") or members.get("mode") == "required"
    if demands and not has_tools:
        message = f"'tool_choice' demands a tool that cannot be served. {REMEDY}"
        raise InvalidRequest(message, param="tool_choice", code="unsupported_value")
    if isinstance(choice, str):
        return choice if has_tools else None
    if kind in ("function", "custom"):
        return {"type": "function", "function": {"name": members.get("name")}}
    if kind == "allowed_tools":
        return members.get("mode") if has_tools else None
    if kind is not None:
        message = f"The tool {kind!r} cannot be served. {REMEDY}"
        raise InvalidRequest(message, param="tool_choice", code="unsupported_value")
    return None


def _format(value: Mapping[str, JsonValue]) -> JsonValue:
    """Return ``response_format``; None for plain text."""
    if value.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {name: item for name, item in value.items() if name != "type"}}
    return {"type": "json_object"} if value.get("type") == "json_object" else None


class ResponsesReplyWriter(ReplyWriter):
    """Writes one reply. Its state is the items so far, and the number of the next event.

    :param created_at: seconds since 1970
    :param answered_with: members that the request does not have any more
    """

    def __init__(
        self,
        request: ModelRequest,
        created_at: int,
        answered_with: Mapping[str, JsonValue] | None = None,
    ) -> None:
        super().__init__()
        self._head: dict[str, Any] = {
            "id": f"resp_{secrets.token_hex(24)}",
            "object": "response",
            "created_at": created_at,
            "background": False,
            "error": None,
            "model": request.model,
        }
        for name, default in REPEATED.items():
            value = value_of(request.fields, name)
            self._head[name] = default if value is None else value
        self._head |= answered_with or {}
        self._custom = custom_tools(request)
        self._namespaces = namespaces(request)
        self._number = 0
        self._items: list[dict[str, Any]] = []
        self._open: int | None = None
        """The index of the message or the reasoning that may still get more."""
        self._calls: dict[int, int] = {}
        """The index of each call's item, by the call's own index. Their pieces may come in any order."""
        self._thinking: Blocks = ()
        """The signed blocks of the open reasoning."""

    def begin(self) -> Iterator[bytes]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, {"response": {**self._response("in_progress"), "output": []}})

    def _add_content(self, piece: Piece) -> Iterator[bytes]:
        match piece:
            case TextPiece():
                yield from self._in_part(TEXT, piece.text)
            case RefusalPiece():
                yield from self._in_part(REFUSAL, piece.text)
            case ReasoningPiece():
                yield from self._in_part(REASONING, piece.text)
            case SignedPiece():
                yield from self._sign(piece)
            case CallPiece():
                yield from self._add_call(piece)

    def end(self) -> Iterator[bytes]:
        yield from self._close_items()
        status = self._status()
        yield self._event(f"response.{status}", {"response": self._response(status)})

    def whole(self) -> bytes:
        """Return the reply as one body; the events are not needed for it."""
        for _ in self._close_items():
            pass
        return encode_json(self._response(self._status()))

    def failure(self, message: str) -> bytes:
        return self._event("error", {"code": "upstream_error", "message": message, "param": None})

    def _status(self) -> str:
        return "incomplete" if self._reason in INCOMPLETE else "completed"

    def _response(self, status: str) -> dict[str, Any]:
        details = {"reason": INCOMPLETE[self._reason or ""]} if status == "incomplete" else None
        usage = None if status == "in_progress" else _counts(self._usage)
        return {**self._head, "status": status, "incomplete_details": details, "output": self._items, "usage": usage}

    def _event(self, kind: str, members: Mapping[str, JsonValue]) -> bytes:
        body = encode_json({"type": kind, "sequence_number": self._number, **members})
        self._number += 1
        return event_of(kind, body)

    def _in_part(self, kind: str, text: str) -> Iterator[bytes]:
        """Add to the open item, or to a new one of another kind."""
        yield from self._open_item("reasoning" if kind == REASONING else "message")
        index = self._open or 0
        content = self._items[index]["content"]
        member = "refusal" if kind == REFUSAL else "text"
        if not content or content[-1]["type"] != kind:
            content.append(_part(kind))
            place = self._place(index, len(content) - 1)
            yield self._event("response.content_part.added", {**place, "part": _part(kind)})
        content[-1][member] += text
        place = self._place(index, len(content) - 1)
        more: dict[str, JsonValue] = {"logprobs": []} if kind == TEXT else {}
        yield self._event(f"response.{kind}.delta", {**place, "delta": text, **more})

    def _open_item(self, kind: str) -> Iterator[bytes]:
        """Begin an item, unless one of its kind is open."""
        if self._open is not None and self._items[self._open]["type"] == kind:
            return
        yield from self._close_open()
        item: dict[str, Any] = {"id": f"msg_{secrets.token_hex(24)}", "type": "message", "role": "assistant"}
        if kind == "reasoning":
            item = {"id": f"rs_{secrets.token_hex(24)}", "type": "reasoning", "summary": []}
        yield from self._add_item({**item, "status": "in_progress", "content": []})
        self._open = len(self._items) - 1

    def _sign(self, piece: SignedPiece) -> Iterator[bytes]:
        """Keep signed blocks for the end of the reasoning, which seals them."""
        yield from self._open_item("reasoning")
        self._thinking = joined_blocks(self._thinking, piece.blocks)

    def _place(self, index: int, part: int) -> dict[str, JsonValue]:
        return {"item_id": self._items[index]["id"], "output_index": index, "content_index": part}

    def _add_item(self, item: dict[str, Any]) -> Iterator[bytes]:
        self._items.append(item)
        yield self._event("response.output_item.added", {"output_index": len(self._items) - 1, "item": item})

    def _close_open(self) -> Iterator[bytes]:
        """Yield the events that end the open message or reasoning."""
        index, self._open = self._open, None
        if index is None:
            return
        item = self._items[index]
        if self._thinking:
            item["encrypted_content"], self._thinking = sealed_blocks(self._thinking), ()
        for place_of_part, part in enumerate(item["content"]):
            place, kind = self._place(index, place_of_part), part["type"]
            member = "refusal" if kind == REFUSAL else "text"
            more: dict[str, JsonValue] = {"logprobs": []} if kind == TEXT else {}
            yield self._event(f"response.{kind}.done", {**place, member: part[member], **more})
            yield self._event("response.content_part.done", {**place, "part": part})
        yield from self._item_done(index)

    def _item_done(self, index: int) -> Iterator[bytes]:
        item = self._items[index]
        is_last = index == len(self._items) - 1
        item["status"] = self._status() if is_last else "completed"
        yield self._event("response.output_item.done", {"output_index": index, "item": item})

    def _add_call(self, piece: CallPiece) -> Iterator[bytes]:
        index = self._calls.get(piece.index)
        if index is None:
            yield from self._close_open()
            yield from self._add_item(self._call_item(piece))
            index = self._calls[piece.index] = len(self._items) - 1
        item = self._items[index]
        if not piece.arguments:
            return
        if item["type"] == "custom_tool_call":  # its input is within the arguments, so it goes out at the end
            item["input"] += piece.arguments
            return
        item["arguments"] += piece.arguments
        place = {"item_id": item["id"], "output_index": index, "delta": piece.arguments}
        yield self._event("response.function_call_arguments.delta", place)

    def _call_item(self, piece: CallPiece) -> dict[str, Any]:
        call_id = piece.id or f"call_{secrets.token_hex(12)}"
        if piece.name in self._custom:
            item: dict[str, Any] = {"id": f"ctc_{secrets.token_hex(24)}", "type": "custom_tool_call", "input": ""}
        else:
            item = {"id": f"fc_{secrets.token_hex(24)}", "type": "function_call", "arguments": ""}
        if piece.name in self._namespaces:
            item["namespace"] = self._namespaces[piece.name]
        return {**item, "call_id": call_id, "name": piece.name, "status": "in_progress"}

    def _close_items(self) -> Iterator[bytes]:
        """Yield the events that end every item that is still open."""
        yield from self._close_open()
        for index in self._calls.values():
            item = self._items[index]
            place = {"item_id": item["id"], "output_index": index}
            if item["type"] == "custom_tool_call":
                item["input"] = _input_of(item["input"])
                yield self._event("response.custom_tool_call_input.delta", {**place, "delta": item["input"]})
                yield self._event("response.custom_tool_call_input.done", {**place, "input": item["input"]})
            else:
                done = {**place, "name": item["name"], "arguments": item["arguments"]}
                yield self._event("response.function_call_arguments.done", done)
            yield from self._item_done(index)
        self._calls = {}


def _part(kind: str) -> dict[str, Any]:
    if kind == TEXT:
        return {"type": TEXT, "text": "", "annotations": [], "logprobs": []}
    return {"type": kind, "refusal" if kind == REFUSAL else "text": ""}


def _input_of(arguments: str) -> str:
    """Return a custom tool's input out of the arguments of the function that stood for it."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = value.get(INPUT) if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


def _counts(usage: Mapping[str, JsonValue] | None) -> Mapping[str, JsonValue] | None:
    if usage is None:
        return None
    prompt, reply = _number(usage.get("prompt_tokens")), _number(usage.get("completion_tokens"))
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": _detail(usage, "prompt_tokens_details", "cached_tokens"),
            "cache_write_tokens": 0,
        },
        "output_tokens": reply,
        "output_tokens_details": {"reasoning_tokens": _detail(usage, "completion_tokens_details", "reasoning_tokens")},
        "total_tokens": prompt + reply,
    }


def _detail(usage: Mapping[str, JsonValue], name: str, member: str) -> int:
    details = usage.get(name)
    return _number(details.get(member)) if isinstance(details, dict) else 0


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
