"""Ollama, as far as it matters to a long talk: it loads a model at its first request, and forgets without a word.

It is a script for `tests/support/scripted.py`. A model is loaded with the context that the operator set. A prompt that
is longer loses its oldest messages, but for system messages and the newest one, and the answer says nothing of it.
Source: Ollama's guide "Context length", its API reference of ``/api/ps``, and issues 3839 and 5902 of its repository.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.answers import Answer, Json, Received
from tests.support.scripted import ScriptedUpstream, says
from tidemark.tokens.vocabulary import vocabulary

TOKENS_OF_A_MESSAGE = 4
"""What a chat template adds to each."""


@dataclass
class ForgetfulOllama:
    """One server; ``context`` may be set at any time, and holds from the next time that a model is loaded."""

    context: int
    models: tuple[str, ...] = ("llama3.2:latest", "qwen3:8b")
    loaded: dict[str, int] = field(default_factory=dict)
    """The contexts of what is loaded, by full name."""
    forgotten: list[int] = field(default_factory=list)
    """How many messages each request lost."""

    def serve(self, upstream: ScriptedUpstream) -> None:
        """Answer all that an upstream is asked."""
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "library"} for name in self.models]
        upstream.models = {"object": "list", "data": listed}
        upstream.others.documents["/api/ps"] = self.running
        upstream.script = self

    def running(self) -> Json:
        """What ``/api/ps`` shows."""
        return {"models": [{"name": name, "model": name, "context_length": size} for name, size in self.loaded.items()]}

    def __call__(self, received: Received) -> Answer:
        """Load the model, drop what does not fit, and answer."""
        name = received.json["model"]
        name = name if ":" in name else f"{name}:latest"
        context = self.loaded.setdefault(name, self.context)
        messages = received.messages
        kept = list(messages)
        while sum(map(_tokens, kept)) > context and (oldest := _oldest(kept)) is not None:
            kept.remove(oldest)
        self.forgotten.append(len(messages) - len(kept))
        return says("Noted.")(received)


def _tokens(message: Json) -> int:
    return vocabulary("o200k_base").count(str(message["content"])) + TOKENS_OF_A_MESSAGE


def _oldest(messages: list[Json]) -> Json | None:
    """The message that is dropped first."""
    return next((message for message in messages[:-1] if message["role"] != "system"), None)
