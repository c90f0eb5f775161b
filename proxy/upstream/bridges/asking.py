"""Writes the body of a chat request from a request of another dialect: what both bridges have in common.

The conversation comes from the core's messages, which are the same in every dialect; each bridge adds its members.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from proxy.core.conversation.messages import JsonValue, Message, system_message
from proxy.core.conversation.request import ModelRequest
from proxy.dialects.bodies import array_of, body_of
from proxy.dialects.raw_json import decode_value

WriteMessage = Callable[[Message], bytes]
"""Writes a message of any dialect as one of chat completions."""
Members = dict[str, JsonValue]


class RequestBridge(Protocol):
    """Says in chat completions what a dialect's request says beside its messages."""

    def members_of(self, request: ModelRequest) -> Members:
        """Return the members of the chat request.

        :raises InvalidRequest: chat completions cannot say it; ``param`` names the member
        """
        ...

    def system_of(self, request: ModelRequest) -> str:
        """Return the system text that stands beside the messages."""
        ...

    def adapted(self, request: ModelRequest, message: Message) -> Message:
        """Return a message as it must be written in chat completions."""
        ...


def chat_body(request: ModelRequest, bridge: RequestBridge, write: WriteMessage, *, to_openai: bool = False) -> bytes:
    """Write the body of the chat request that means the same.

    :param to_openai: whether it goes to OpenAI, whose newer models refuse ``max_tokens``, as all do ``top_k``
    :raises InvalidRequest: chat completions cannot say it
    """
    members: Members = {"model": request.model, **bridge.members_of(request)}
    if to_openai:
        members.pop("top_k", None)
        if "max_tokens" in members:
            members["max_completion_tokens"] = members.pop("max_tokens")
    if request.stream:
        members |= {"stream": True, "stream_options": {"include_usage": True}}
    raws = [write(bridge.adapted(request, message)) for message in request.messages]
    if system := bridge.system_of(request):
        raws.insert(0, write(system_message(system)))
    fields = {name: json.dumps(value).encode() for name, value in members.items()}
    return body_of({**fields, "messages": array_of(raws)}, {})


def value_of(fields: Mapping[str, bytes], name: str) -> JsonValue:
    """Return a member's value; None where it is missing."""
    return decode_value(fields[name], name) if name in fields else None


def object_of(value: JsonValue) -> Mapping[str, JsonValue]:
    """Return an object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def objects_of(value: JsonValue) -> Sequence[Mapping[str, JsonValue]]:
    """Return the objects of a list, and none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def without_none(members: Members) -> Members:
    """Return the members that are not null."""
    return {name: value for name, value in members.items() if value is not None}
