"""Reads and writes the small OpenAI envelopes of the upstream room: a completion's text, an error's message.

Beside the two lanes; pure. Source: OpenAI API reference, "The chat completion object" and "Error codes".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from proxy.core.conversation.messages import JsonValue
from proxy.core.errors import SummaryRejected, UpstreamError
from proxy.core.ports import Route

MESSAGE_CHARACTERS = 1000
"""Of a provider's error text, at most this much is handed on; some answer with whole HTML pages."""


def text_of(answer: JsonValue, route: Route) -> str:
    """The text of a chat completion object.

    :raises SummaryRejected: the model called a tool, refused or was stopped by a filter, whatever it wrote beside that
    :raises UpstreamError: there is none
    """
    choice = _first_choice(answer)
    message = choice.get("message")
    said: Mapping[str, JsonValue] = message if isinstance(message, dict) else {}
    if said.get("tool_calls") or said.get("function_call"):
        raise SummaryRejected("the summarizer answered with a tool call")
    if said.get("refusal") or choice.get("finish_reason") == "content_filter":
        raise SummaryRejected("the summarizer refused")
    text = _content(said.get("content"))
    if not text.strip():
        raise UpstreamError(f"The upstream of {route.name!r} answered without any text.")
    return text


def _first_choice(answer: JsonValue) -> Mapping[str, JsonValue]:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _content(content: JsonValue) -> str:
    if isinstance(content, list):  # some servers answer in parts
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def upstream_refused(route: Route, status: int, body: bytes) -> UpstreamError:
    """The error for an answer of another status than 200, with the provider's own words."""
    said = error_fields(body.decode("utf-8", "replace")).get("message")
    told = f": {said}" if isinstance(said, str) else "."
    return UpstreamError(
        f"The upstream of {route.name!r} answered with status {status}{told}"[:MESSAGE_CHARACTERS],
        internal=f"{route!r}: {body[:MESSAGE_CHARACTERS]!r}",
    )


def error_fields(text: str) -> Mapping[str, JsonValue]:
    """The provider's own error object, out of a text that holds its JSON somewhere; empty when there is none.

    litellm wraps a provider's answer into sentences and, on streams, into the ``repr`` of bytes.
    """
    found = re.search(r"\{.*\}", text, re.DOTALL)
    if found is None:
        return {}
    inner = found.group()
    for candidate in (inner, inner.replace("\\'", "'").replace("\\\\", "\\").replace("\\n", "\n")):
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
    """OpenAI's error envelope."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})
