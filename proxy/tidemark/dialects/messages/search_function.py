"""The search function in the Messages API: its definition, and the requests that offer it.

``searched_replies.py`` reads the replies. Source: Anthropic API reference, "Create a Message",
``tools`` and ``tool_choice``; its guide "Extended thinking", "Preserving thinking blocks".
"""

from __future__ import annotations

import json

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.recall.search_function import FUNCTION_DESCRIPTION, FUNCTION_NAME
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.messages.message import RESULT
from tidemark.dialects.messages.searched_replies import SearchedMessageBody, SearchedMessageStream
from tidemark.dialects.messages.writing import as_sent
from tidemark.dialects.searching import PARAMETERS, is_about_functions, member_of, with_function, with_member

DEFINITION = encode_json({"name": FUNCTION_NAME, "description": FUNCTION_DESCRIPTION, "input_schema": PARAMETERS})


class MessagesSearchFunction:
    """``SearchFunctionFormat`` of the Messages API; it has no state."""

    definition = DEFINITION.decode()

    def offering(self, request: ModelRequest) -> ModelRequest | None:
        """Return the request with the function at the end of its tools.

        None if the client chooses a tool itself or none, or has one of this name.
        """
        choice = member_of(request.fields, "tool_choice")
        if choice is not None and not (isinstance(choice, dict) and choice.get("type") == "auto"):
            return None
        return with_function(request, DEFINITION)

    def without_calls(self, request: ModelRequest, offering: ModelRequest) -> ModelRequest:
        """Return the client's own request or, if it has no tools, the offering one with calls forbidden.

        Anthropic refuses a conversation with calls in a request that has no tools.
        """
        if member_of(request.fields, "tools"):
            return request
        return with_member(offering, "tool_choice", b'{"type":"none"}')

    def call_message(self, message: Message) -> bytes:
        """Return the answer as a request may have it. Thinking stays whole, and each call gets an id and an input."""
        members: dict[str, JsonValue] = json.loads(as_sent(message.raw))
        content = members["content"]
        blocks = content if isinstance(content, list) else ()
        members["content"] = [_sendable(block, place) for place, block in enumerate(blocks)]
        return encode_json(members)

    def result(self, call: str, text: str) -> bytes:
        """Return a message of the user with one result; those of a round go out as one message."""
        block = {"type": RESULT, "tool_use_id": call, "content": text}
        return encode_json({"role": "user", "content": [block]})

    def is_refused(self, body: bytes) -> bool:
        """Return whether a refusal is about tools."""
        return is_about_functions(body)

    def whole(self) -> SearchedMessageBody:
        return SearchedMessageBody()

    def stream(self) -> SearchedMessageStream:
        return SearchedMessageStream()


def _sendable(block: JsonValue, place: int) -> JsonValue:
    """Return a call with an id, and with an empty input if the model's is no object. Other blocks stay."""
    if not isinstance(block, dict) or block.get("type") != "tool_use":
        return block
    own = block.get("input")
    return {**block, "id": block.get("id") or f"toolu_search_{place}", "input": own if isinstance(own, dict) else {}}
