"""Asks the demo's questions with the plain `openai` client, and turns each answer into a turn of the comparison.

`run.py` calls `converse` once for the model's server and once for Tidemark, and `screen.py` renders the turns.
Importing this file imports `openai`, which takes about a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx
import openai

from tidemark.demo.llama import MODEL
from tidemark.demo.screen import AnsweredTurn, FailedTurn
from tidemark.demo.script import SYSTEM

REPLY_TOKENS = 32
"""The longest answer: a sentence or two, so that forty turns take about a minute."""
_SEED = 7
_TIMEOUT_SECONDS = 90.0
_OVERFLOWS = frozenset({"exceed_context_size_error", "context_length_exceeded"})  # of llama.cpp and of OpenAI

Listen = Callable[[str], None]
"""Takes the answer so far, whenever more of it arrives."""


def client_of(port: int) -> openai.OpenAI:
    """Return a client of the server on `port` of this machine; it never tries again, since the demo shows failures."""
    # Each question has a connection of its own: llama.cpp may close a kept one at the moment of the next question.
    limits = httpx.Limits(max_keepalive_connections=0)
    return openai.OpenAI(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key="unused",
        max_retries=0,
        timeout=_TIMEOUT_SECONDS,
        http_client=openai.DefaultHttpxClient(trust_env=False, limits=limits),  # it ignores the environment's proxies
    )


def converse(client: openai.OpenAI, questions: Sequence[str], listen: Listen) -> Iterator[AnsweredTurn | FailedTurn]:
    """Ask the questions in turn, always sending the whole history, and stop at the first failure."""
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    for number, question in enumerate(questions, start=1):
        messages.append({"role": "user", "content": question})
        try:
            turn = _ask(client, number, messages, listen)
        except (openai.APIError, httpx.HTTPError) as error:  # inside a stream the errors are httpx's
            yield _failed(number, error)
            return
        messages.append({"role": "assistant", "content": turn.answer})
        yield turn


def _ask(client: openai.OpenAI, number: int, messages: list[Any], listen: Listen) -> AnsweredTurn:
    """Ask, and return the whole answer.

    :raises openai.APIError: there was none
    :raises httpx.HTTPError: not all of it came
    """
    started = time.monotonic()
    text, is_finished, usage = "", False, None
    response = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=messages,
        max_tokens=REPLY_TOKENS,
        temperature=0,
        seed=_SEED,
        stream=True,
        stream_options={"include_usage": True},
    )
    with response.parse() as stream:
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                is_finished |= choice.finish_reason is not None
                listen(text)
            usage = chunk.usage or usage
    if not is_finished:
        raise httpx.RemoteProtocolError("the answer ended early, without a reason")
    headers: Mapping[str, str] = response.headers
    prompt_tokens = usage.prompt_tokens if usage else 0
    details = usage.prompt_tokens_details if usage else None
    return AnsweredTurn(
        number=number,
        question=messages[-1]["content"],
        answer=text,
        before_tokens=int(headers.get("x-tidemark-tokens-before", prompt_tokens)),
        after_tokens=int(headers.get("x-tidemark-tokens-after", prompt_tokens)),
        limit_tokens=int(headers["x-tidemark-limit"]) if "x-tidemark-limit" in headers else None,
        action=headers.get("x-tidemark-action", "-"),
        prompt_tokens=prompt_tokens,
        cached_tokens=(details.cached_tokens or 0) if details else 0,
        seconds=time.monotonic() - started,
    )


def _failed(number: int, error: Exception) -> FailedTurn:
    body = error.body if isinstance(error, openai.APIError) else None
    body = body if isinstance(body, dict) else {}
    return FailedTurn(
        number=number,
        status=error.status_code if isinstance(error, openai.APIStatusError) else None,
        message=str(body.get("message") or str(error) or type(error).__name__),
        is_overflow=bool(_OVERFLOWS & {body.get("type"), body.get("code")}),
    )
