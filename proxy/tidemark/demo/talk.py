"""Asks the demo's questions, and turns each answer into a line of the comparison.

`run.py` calls `converse` once for the model's server and once for Tidemark, and `screen.py` renders the turns.
Importing this file imports the clients (`clients.py`), which takes about two seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemark.demo.clients import Answer, ClientError, DemoClient, DialectName, Listen, client_of, facts_of
from tidemark.demo.screen import AnsweredTurn, Failed, Side
from tidemark.demo.script import SYSTEM, Question


@dataclass(frozen=True, slots=True)
class Talker:
    """The client of one side."""

    side: Side
    client: DemoClient


def talker(side: Side, port: int, model: str, dialect: DialectName = "chat") -> Talker:
    """Return a client of the server on `port` of this machine."""
    return Talker(side, client_of(dialect, port, model, SYSTEM))


def converse(to: Talker, questions: Sequence[Question], listen: Listen) -> Iterator[AnsweredTurn | Failed]:
    """Ask the questions in turn, always sending the whole history, and stop at the first failure."""
    for number, question in enumerate(questions, start=1):
        started = time.monotonic()
        try:
            answer = to.client.ask(question.text, listen)
        except ClientError as error:
            yield _failed(to.side, number, question, error, time.monotonic() - started)
            return
        yield _answered(to.side, number, question, answer, time.monotonic() - started)


def _answered(side: Side, number: int, question: Question, answer: Answer, seconds: float) -> AnsweredTurn:
    headers, prompt_tokens = answer.headers, answer.prompt_tokens
    return AnsweredTurn(
        side=side,
        number=number,
        question=question.text,
        answer=answer.text,
        before_tokens=int(headers.get("x-tidemark-tokens-before", prompt_tokens)),
        after_tokens=int(headers.get("x-tidemark-tokens-after", prompt_tokens)),
        limit_tokens=int(headers["x-tidemark-limit"]) if "x-tidemark-limit" in headers else None,
        action=headers.get("x-tidemark-action", "-"),
        prompt_tokens=prompt_tokens,
        cached_tokens=answer.cached_tokens,
        reply_tokens=answer.reply_tokens,
        seconds=seconds,
    )


def _failed(side: Side, number: int, question: Question, error: Exception, seconds: float) -> Failed:
    facts = facts_of(error)
    return Failed(
        side=side,
        number=number,
        question=question.text,
        status=facts.status,
        message=facts.message,
        overflow=facts.is_overflow,
        prompt_tokens=facts.prompt_tokens,
        seconds=seconds,
    )
