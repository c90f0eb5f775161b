"""Reads and writes the small OpenAI envelopes of the upstream room: a completion's text, an error's message.

Beside the two lanes; pure. Source: OpenAI API reference, "The chat completion object" and "Error codes".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from proxy.core.errors import UpstreamError
from proxy.core.messages import JsonValue
from proxy.core.ports import Route

MESSAGE_CHARACTERS = 1000
"""Of a provider's error text, at most this much is handed on; some answer with whole HTML pages."""


def text_of(answer: JsonValue, route: Route) -> str:
    """The text of a chat completion object.

    :raises UpstreamError: there is none
    """
    text = _content(answer)
    if not text.strip():
        raise UpstreamError(f"The upstream of {route.name!r} answered without any text.")
    return text


def _content(answer: JsonValue) -> str:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
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
