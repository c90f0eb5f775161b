"""A conversation's messages, a real counter, and an upstream that says what it is told to say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import CachedPrefix
from tidemark.core.errors import ModelNotFound, TidemarkError
from tidemark.core.ports import Caller, Route, TextRequest, UpstreamReply
from tidemark.dialects.chat.message import parse_message
from tidemark.tokens import LocalTokenCounter

COUNTER = LocalTokenCounter()


@dataclass(slots=True)
class Asked:
    """One call that a summarizer made."""

    route: Route
    messages: Sequence[Mapping[str, JsonValue]]
    max_tokens: int
    timeout_seconds: float
    caller: Caller
    live: CachedPrefix | None = None

    @property
    def prompt(self) -> str:
        """All that the model was told."""
        return "\n".join(str(message["content"]) for message in self.messages)


@dataclass(slots=True)
class ScriptedUpstream:
    """Implements the ``Upstream`` port: gives its answers in turn, the last one again and again."""

    answers: Sequence[str | TidemarkError]
    served: Sequence[str] = ("small",)
    asked: list[Asked] = field(default_factory=list)

    async def resolve(self, model: str, *, by_operator: bool = False) -> Route:
        """A route for the models that are served, whoever names them."""
        del by_operator
        if model not in self.served:
            raise ModelNotFound(f"nobody serves {model}")
        return Route("wire", model, model, "test", "http://upstream.invalid/v1")

    async def send(self, route: Route, body: bytes, caller: Caller, *, stream: bool) -> UpstreamReply:
        """Never called."""
        raise AssertionError("a summarizer sends no client's request")

    async def complete(self, route: Route, request: TextRequest, caller: Caller) -> str:
        """The next answer; an error is raised."""
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(
            Asked(route, request.messages, request.max_tokens, request.timeout_seconds, caller, request.cached_prefix)
        )
        if isinstance(answer, TidemarkError):
            raise answer
        return answer


@pytest.fixture
def anyio_backend() -> str:
    """Asyncio only, as the product."""
    return "asyncio"


@pytest.fixture
def counter() -> LocalTokenCounter:
    """The product's own counter, loaded once."""
    return COUNTER


@pytest.fixture
def scripted() -> Callable[..., ScriptedUpstream]:
    """Makes an upstream from its answers."""
    return lambda *answers, **options: ScriptedUpstream(answers, **options)


@pytest.fixture
def talk() -> Callable[..., tuple[Message, ...]]:
    """Makes messages: plain texts are the user's and the assistant's in turn, objects are messages."""

    def make(*said: str | Mapping[str, JsonValue]) -> tuple[Message, ...]:
        values = [
            {"role": "assistant" if place % 2 else "user", "content": one} if isinstance(one, str) else one
            for place, one in enumerate(said)
        ]
        return tuple(parse_message(json.dumps(value).encode(), value, 0) for value in values)

    return make
