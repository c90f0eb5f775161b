"""Reads and writes OpenAI's small JSON objects: the text of a completion, the message of an error.

Both lanes use it; it does no I/O. Source: OpenAI API reference, "The chat completion object" and "Error codes".
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.prose import GAP
from tidemark.core.errors import SummaryRejected, UpstreamError
from tidemark.core.ports import Route

MAX_MESSAGE_CHARACTERS = 1000
"""The longest error text of a provider that is passed on; some providers answer with whole HTML pages."""


def text_of(answer: JsonValue, route: Route) -> str:
    """Return the text of a chat completion object; one that was cut off at its longest length ends with ``GAP``.

    :raises SummaryRejected: the model called a tool, refused or was stopped by a filter, whatever it wrote beside that
    :raises UpstreamError: there is no text
    """
    choice = _first_choice(answer)
    message = _message_of(choice)
    if message.get("tool_calls") or message.get("function_call"):
        raise SummaryRejected("the summarizer answered with a tool call")
    if message.get("refusal") or choice.get("finish_reason") == "content_filter":
        raise SummaryRejected("the summarizer refused")
    text = content_of(answer)
    if not text.strip():
        error = answer.get("error") if isinstance(answer, dict) else None  # OpenRouter's, with status 200
        words = error.get("message") if isinstance(error, dict) else error
        reason = f"with an error: {words}"[:MAX_MESSAGE_CHARACTERS] if words else "without any text."
        raise UpstreamError(f"The upstream of {route.name!r} answered {reason}")
    return f"{text.rstrip()} {GAP}" if choice.get("finish_reason") == "length" else text


def content_of(answer: JsonValue) -> str:
    """Return what a chat completion object says; empty if that is nothing."""
    return _content(_message_of(_first_choice(answer)).get("content"))


def error_fields(text: str) -> Mapping[str, JsonValue]:
    """Return the provider's own error object, from a text that holds its JSON somewhere; empty when there is none.

    litellm wraps a provider's answer into sentences and, on streams, into the ``repr`` of bytes.
    """
    braces = text[max(text.find("{"), 0) : text.rfind("}") + 1]
    for candidate in (braces, braces.replace("\\'", "'").replace("\\\\", "\\").replace("\\n", "\n")):
        try:
            value = msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
        error = value.get("error") if isinstance(value, dict) else None
        if isinstance(error, dict):
            return error
        if isinstance(error, str):  # Ollama
            return {"message": error}
        return value if isinstance(value, dict) and isinstance(value.get("message"), str) else {}
    return {}


def error_envelope(message: str, *, kind: str, code: str | None, param: str | None = None) -> bytes:
    """Return OpenAI's error envelope as JSON."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def _first_choice(answer: JsonValue) -> Mapping[str, JsonValue]:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _message_of(choice: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    message = choice.get("message")
    return message if isinstance(message, dict) else {}


def _content(content: JsonValue) -> str:
    if isinstance(content, list):  # some servers answer in parts
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""
