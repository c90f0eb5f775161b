"""Writes messages as items of a Responses request: those of other dialects, and those that Tidemark made.

``dialect.py`` calls it for the requests that go upstream. Source: OpenAI API reference, "Create a model response",
``input``.
"""

from __future__ import annotations

from functools import lru_cache

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.responses.parts import item_part

RENDERED = 128
"""System messages of our own whose bytes are cached; a summary goes out turn after turn."""


@lru_cache(maxsize=RENDERED)
def system_item(text: str) -> bytes:
    """Write a system message of our own. Its bytes depend on the text only (promise 5, frozen)."""
    return encode_json({"role": "system", "content": text})


def write_message(message: Message) -> bytes:
    """Write a message of any dialect; its digest stays the same.

    An assistant's turn becomes an item for its text and one for each call, with commas between them. Its media are no
    input of this API.
    """
    if message.role == "tool":
        output: JsonValue = message.text
        if message.media:
            output = _parts(message)
        return encode_json({"type": "function_call_output", "call_id": message.answers or "", "output": output})
    if message.role != "assistant":
        return encode_json({"role": message.role, "content": _parts(message) if message.media else message.text})
    items: list[bytes] = []
    if message.text or not message.calls:
        items.append(encode_json(assistant_message(message.text)))
    for call in message.calls:
        members = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        items.append(encode_json({"type": "function_call", **members}))
    return b",".join(items)


def assistant_message(text: str) -> dict[str, JsonValue]:
    """Return an assistant's text as the message that every server accepts.

    llama.cpp demands the type, and vLLM refuses parts of text without an id and a status (vLLM issue 54224).
    """
    return {"type": "message", "role": "assistant", "content": text}


def _parts(message: Message) -> JsonValue:
    texts = [{"type": "input_text", "text": message.text}] if message.text else []
    return [*texts, *map(item_part, message.media)]
