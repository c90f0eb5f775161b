"""Defines the demo's client: the official `openai` package, with nothing of Tidemark's own.

`run.py` calls `converse` once for the model's server and once for Tidemark, and `screen.py` renders the turns.
Importing this file imports `openai`, which takes about a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import httpx
import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessageParam

from proxy.demo.screen import AnsweredTurn, Failed, Side
from proxy.demo.script import SYSTEM, Question

REPLY_TOKENS = 32
"""The longest answer: a sentence or two, so that forty turns take about a minute."""
_SEED = 7
_TIMEOUT_SECONDS = 90.0
_OVERFLOWS = frozenset({"exceed_context_size_error", "context_length_exceeded"})  # of llama.cpp and of OpenAI


@dataclass(frozen=True, slots=True)
class Talker:
    """The client of one side, with its model."""

    side: Side
    client: openai.OpenAI
    model: str


@dataclass(slots=True)
class _Reply:
    """An answer as far as it has arrived."""

    text: str = ""
    finished: bool = False
    usage: CompletionUsage | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def talker(side: Side, port: int, model: str) -> Talker:
    """Return a client of the server on `port` of this machine."""
    client = openai.OpenAI(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key="unused",
        max_retries=0,  # the demo shows failures
        timeout=_TIMEOUT_SECONDS,
        http_client=openai.DefaultHttpxClient(trust_env=False),  # it ignores the environment's proxies
    )
    return Talker(side, client, model)


def converse(
    chat: Talker, questions: Sequence[Question], listen: Callable[[str], None]
) -> Iterator[AnsweredTurn | Failed]:
    """Ask the questions in turn, always sending the whole history, and stop at the first failure.

    `listen` is called with the answer so far whenever more of it arrives.
    """
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": SYSTEM}]
    for number, question in enumerate(questions, start=1):
        messages.append({"role": "user", "content": question.text})
        started = time.monotonic()
        try:
            reply = _ask(chat, messages, listen)
        except (openai.APIError, httpx.HTTPError) as error:  # inside a stream the client raises httpx's own errors
            yield _failed(chat.side, number, question, error, time.monotonic() - started)
            return
        yield _answered(chat.side, number, question, reply, time.monotonic() - started)
        messages.append({"role": "assistant", "content": reply.text})


def _ask(chat: Talker, messages: Sequence[ChatCompletionMessageParam], listen: Callable[[str], None]) -> _Reply:
    response = chat.client.chat.completions.with_raw_response.create(
        model=chat.model,
        messages=list(messages),
        max_tokens=REPLY_TOKENS,
        temperature=0,
        seed=_SEED,
        stream=True,
        stream_options={"include_usage": True},
    )
    reply = _Reply(headers=response.headers)
    with response.parse() as stream:
        for chunk in stream:
            for choice in chunk.choices:
                reply.text += choice.delta.content or ""
                reply.finished |= choice.finish_reason is not None
                listen(reply.text)
            if chunk.usage is not None:
                reply.usage = chunk.usage
    if not reply.finished:
        raise httpx.RemoteProtocolError("the answer ended early, without a finish_reason")
    return reply


def _answered(side: Side, number: int, question: Question, reply: _Reply, seconds: float) -> AnsweredTurn:
    details = reply.usage.prompt_tokens_details if reply.usage else None
    prompt_tokens = reply.usage.prompt_tokens if reply.usage else 0
    return AnsweredTurn(
        side=side,
        number=number,
        question=question.text,
        answer=reply.text,
        before_tokens=int(reply.headers.get("x-tidemark-tokens-before", prompt_tokens)),
        after_tokens=int(reply.headers.get("x-tidemark-tokens-after", prompt_tokens)),
        limit_tokens=int(reply.headers["x-tidemark-limit"]) if "x-tidemark-limit" in reply.headers else None,
        action=reply.headers.get("x-tidemark-action", "-"),
        prompt_tokens=prompt_tokens,
        cached_tokens=(details.cached_tokens or 0) if details else 0,
        reply_tokens=reply.usage.completion_tokens if reply.usage else 0,
        seconds=seconds,
    )


def _failed(side: Side, number: int, question: Question, error: Exception, seconds: float) -> Failed:
    body = error.body if isinstance(error, openai.APIError) and isinstance(error.body, dict) else {}
    prompt_tokens = body.get("n_prompt_tokens")
    return Failed(
        side=side,
        number=number,
        question=question.text,
        status=error.status_code if isinstance(error, openai.APIStatusError) else None,
        message=str(body.get("message") or str(error) or type(error).__name__),
        overflow=bool(_OVERFLOWS & {body.get("type"), body.get("code")}),
        prompt_tokens=prompt_tokens if isinstance(prompt_tokens, int) else None,
        seconds=seconds,
    )
