"""Takes the plain text of a translated stream past the steps that litellm takes with each chunk.

Nearly every chunk of a stream is a piece of text and nothing else. litellm's ``CustomStreamWrapper`` makes three
objects of pydantic for it, which is half of the CPU of a stream, and changes nothing but its id, time and model, which
all chunks share. ``chunks.py`` uses it; all other chunks go litellm's way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROVIDERS_CHUNK = "ModelResponseStream"
"""litellm's class of what most of its providers make of a chunk; others have dictionaries or the SDK's objects."""
SHARED = ("id", "created", "model", "object", "system_fingerprint")
"""The members that all chunks of a stream share."""
WITH_SPECIAL_TOKENS = "sagemaker"
"""The provider whose text litellm searches for tokens of the model."""


class PlainChunks:
    """Stands in the place of a stream's ``chunk_creator``.

    :param stream: litellm's ``CustomStreamWrapper``
    :raises AttributeError: this version of litellm has no such method
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._create = stream.chunk_creator
        self._newest: Any = None
        self._text = ""
        self._shared: dict[str, Any] = {}
        is_changed = stream.merge_reasoning_content_in_choices or stream.custom_llm_provider == WITH_SPECIAL_TOKENS
        if not is_changed:
            stream.chunk_creator = self._create_or_pass

    def event_of(self, chunk: Any) -> dict[str, Any] | None:
        """Return the event of a chunk that was passed; None if litellm made it."""
        if chunk is not self._newest:
            return None
        return {**self._shared, "choices": [{"index": 0, "delta": {"content": self._text}}]}

    def note(self, event: Mapping[str, Any]) -> None:
        """Remember what all events share, from one of a chunk that litellm made."""
        self._shared = {name: event[name] for name in SHARED if name in event}

    def _create_or_pass(self, chunk: Any) -> Any:
        stream = self._stream
        text = plain_text(chunk) if self._shared and stream.received_finish_reason is None else None
        if text is None:
            return self._create(chunk=chunk)
        stream.raise_on_model_repetition()
        self._newest, self._text = chunk, text
        return chunk


def plain_text(chunk: Any) -> str | None:
    """Return the text of a provider's chunk that has nothing else to say; None for any other."""
    if type(chunk).__name__ != PROVIDERS_CHUNK or any(chunk.__pydantic_extra__.values()):
        return None
    members, choices = vars(chunk), chunk.choices
    if (
        len(choices) != 1
        or members["provider_specific_fields"] is not None
        or members["system_fingerprint"] is not None
    ):
        return None
    choice = choices[0].__pydantic_extra__
    if choice["finish_reason"] is not None or choice["index"] or choice.get("logprobs") is not None:
        return None
    delta = choice["delta"]
    values = [value for value in delta.__pydantic_extra__.values() if value is not None]
    text = delta.__pydantic_extra__["content"]
    is_plain = isinstance(text, str) and text and values == [text] and delta.provider_specific_fields is None
    return text if is_plain else None
