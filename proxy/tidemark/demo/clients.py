"""Defines the demo's clients, one for each dialect: the official packages, with nothing of Tidemark's own.

`talk.py` asks its questions with one of them. Importing this file imports `openai` and `anthropic`, which takes about
two seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import anthropic
import httpx
import httpx2
import openai

DialectName = Literal["chat", "responses", "messages"]
REPLY_TOKENS = 32
"""The longest answer: a sentence or two, so that forty turns take about a minute."""
_SEED = 7
_TIMEOUT_SECONDS = 90.0
_OVERFLOWS = frozenset({"exceed_context_size_error", "context_length_exceeded"})  # of llama.cpp and of OpenAI
_KEPT_CONNECTIONS = 0
"""Each question has a connection of its own. llama.cpp may close a kept one at the moment of the next question."""
_TOO_EARLY = "the answer ended early, without a reason"

ClientError = (openai.APIError, anthropic.APIError, httpx.HTTPError, httpx2.HTTPError)
"""The errors of a question; inside a stream each package raises those of its HTTP client."""
Listen = Callable[[str], None]
"""Takes the answer so far, whenever more of it arrives."""


@dataclass(slots=True)
class Answer:
    """An answer as far as it has arrived."""

    text: str = ""
    finished: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """The prompt's tokens from the server's prompt cache."""
    reply_tokens: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


class DemoClient(Protocol):
    """Asks one question after the other, and always sends the whole history."""

    def ask(self, question: str, listen: Listen) -> Answer:
        """Ask, and return the whole answer; it is part of the history from then on.

        :raises ClientError: there was none, or not all of it
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class ChatClient:
    """Speaks chat completions."""

    def __init__(self, client: openai.OpenAI, model: str, system: str) -> None:
        self._client = client
        self._model = model
        self._messages: list[Any] = [{"role": "system", "content": system}]

    def ask(self, question: str, listen: Listen) -> Answer:
        """Ask, and return the whole answer."""
        self._messages.append({"role": "user", "content": question})
        response = self._client.chat.completions.with_raw_response.create(
            model=self._model,
            messages=self._messages,
            max_tokens=REPLY_TOKENS,
            temperature=0,
            seed=_SEED,
            stream=True,
            stream_options={"include_usage": True},
        )
        answer = Answer(headers=response.headers)
        with response.parse() as stream:
            for chunk in stream:
                for choice in chunk.choices:
                    answer.text += choice.delta.content or ""
                    answer.finished |= choice.finish_reason is not None
                    listen(answer.text)
                if chunk.usage is not None:
                    details = chunk.usage.prompt_tokens_details
                    answer.prompt_tokens = chunk.usage.prompt_tokens
                    answer.cached_tokens = (details.cached_tokens or 0) if details else 0
                    answer.reply_tokens = chunk.usage.completion_tokens
        self._messages.append({"role": "assistant", "content": answer.text})
        return _whole(answer)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class ResponsesClient:
    """Speaks OpenAI's Responses, and sends the items of each response back."""

    def __init__(self, client: openai.OpenAI, model: str, system: str) -> None:
        self._client = client
        self._model = model
        self._system = system
        self._items: list[Any] = []

    def ask(self, question: str, listen: Listen) -> Answer:
        """Ask, and return the whole answer."""
        self._items.append({"role": "user", "content": question})
        response = self._client.responses.with_raw_response.create(
            model=self._model,
            instructions=self._system,
            input=self._items,
            max_output_tokens=REPLY_TOKENS,
            temperature=0,
            stream=True,
            extra_body={"seed": _SEED},
        )
        answer = Answer(headers=response.headers)
        with response.parse() as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    answer.text += event.delta
                    listen(answer.text)
                elif event.type in ("response.completed", "response.incomplete"):
                    answer.finished = True
                    self._items += [item.model_dump(exclude_none=True) for item in event.response.output]
                    if (usage := event.response.usage) is not None:
                        answer.prompt_tokens = usage.input_tokens
                        answer.cached_tokens = usage.input_tokens_details.cached_tokens
                        answer.reply_tokens = usage.output_tokens
        return _whole(answer)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class MessagesClient:
    """Speaks Anthropic's messages."""

    def __init__(self, client: anthropic.Anthropic, model: str, system: str) -> None:
        self._client = client
        self._model = model
        self._system = system
        self._messages: list[Any] = []

    def ask(self, question: str, listen: Listen) -> Answer:
        """Ask, and return the whole answer."""
        self._messages.append({"role": "user", "content": question})
        response = self._client.messages.with_raw_response.create(
            model=self._model,
            system=self._system,
            messages=self._messages,
            max_tokens=REPLY_TOKENS,
            stream=True,
            extra_body={"seed": _SEED, "temperature": 0},
        )
        answer = Answer(headers=response.headers)
        with response.parse() as stream:
            for event in stream:
                if event.type == "message_start":
                    usage = event.message.usage
                    answer.cached_tokens = usage.cache_read_input_tokens or 0
                    answer.prompt_tokens = usage.input_tokens + answer.cached_tokens
                elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                    answer.text += event.delta.text
                    listen(answer.text)
                elif event.type == "message_delta":
                    answer.reply_tokens = event.usage.output_tokens
                elif event.type == "message_stop":
                    answer.finished = True
        self._messages.append({"role": "assistant", "content": answer.text})
        return _whole(answer)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def client_of(dialect: DialectName, port: int, model: str, system: str) -> DemoClient:
    """Return a client of the server on `port` of this machine; it never tries again, since the demo shows failures."""
    base = f"http://127.0.0.1:{port}"
    if dialect == "messages":
        limits = httpx2.Limits(max_keepalive_connections=_KEPT_CONNECTIONS)
        own = anthropic.DefaultHttpxClient(trust_env=False, limits=limits)  # it ignores the environment's proxies
        return MessagesClient(
            anthropic.Anthropic(
                base_url=base, api_key="unused", max_retries=0, timeout=_TIMEOUT_SECONDS, http_client=own
            ),
            model,
            system,
        )
    speaking = ChatClient if dialect == "chat" else ResponsesClient
    return speaking(openai_client(port), model, system)


def openai_client(port: int) -> openai.OpenAI:
    """Return the plain client of the server on `port` of this machine."""
    return openai.OpenAI(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key="unused",
        max_retries=0,
        timeout=_TIMEOUT_SECONDS,
        http_client=openai.DefaultHttpxClient(
            trust_env=False, limits=httpx.Limits(max_keepalive_connections=_KEPT_CONNECTIONS)
        ),
    )


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """What a server said of a question that it refused."""

    status: int | None
    """The HTTP status; `None` where there was no response, or an interrupted one."""
    message: str
    is_overflow: bool
    prompt_tokens: int | None


def facts_of(error: Exception) -> ErrorFacts:
    """Read an error of any of the clients."""
    body = error.body if isinstance(error, (openai.APIError, anthropic.APIError)) else None
    body = body if isinstance(body, dict) else {}
    if isinstance(body.get("error"), dict):  # anthropic's package leaves the envelope on
        body = body["error"]
    prompt_tokens = body.get("n_prompt_tokens")
    return ErrorFacts(
        status=error.status_code if isinstance(error, (openai.APIStatusError, anthropic.APIStatusError)) else None,
        message=str(body.get("message") or str(error) or type(error).__name__),
        is_overflow=bool(_OVERFLOWS & {body.get("type"), body.get("code")}),
        prompt_tokens=prompt_tokens if isinstance(prompt_tokens, int) else None,
    )


def _whole(answer: Answer) -> Answer:
    if not answer.finished:
        raise httpx.RemoteProtocolError(_TOO_EARLY)
    return answer
