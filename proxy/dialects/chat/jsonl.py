"""A conversation from lines of JSON: read, and refused with line numbers where it is none.

Beside the road: an export of Tidemark's own, or of anybody's messages in OpenAI's format, one a line.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import NoReturn

from proxy.core.conversation.messages import Message
from proxy.core.errors import BadImport, InvalidRequest
from proxy.dialects.chat.message import parse_message

MOST_PROBLEMS = 20
"""Told at once; a file of another format has one in every line."""


@dataclass(frozen=True, slots=True)
class JsonLine:
    """A message and where it stands, counted from 1."""

    number: int
    message: Message


def read_lines(data: bytes) -> list[JsonLine]:
    """The messages, each in the bytes of its line; empty lines are passed over.

    :raises BadImport: a line is no message, or a tool call and its results have come apart; nothing is taken then
    """
    lines: list[JsonLine] = []
    problems: list[str] = []
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            value = json.loads(raw.decode(), parse_constant=_refuse, parse_float=_finite)
            lines.append(JsonLine(number, parse_message(raw.strip(), value, len(lines))))
        except InvalidRequest as error:
            problems.append(f"line {number}: {error}")
        except (ValueError, RecursionError):
            problems.append(f"line {number}: this is no JSON")
    problems += broken_pairs(lines) if not problems else []
    if not problems and all(line.message.is_system for line in lines):
        problems.append("line 1: there is no message but system messages")
    if problems:
        more = f"\nand {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
        raise BadImport("\n".join(problems[:MOST_PROBLEMS]) + more)
    return lines


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(said: str) -> float:
    number = float(said)
    return number if math.isfinite(number) else _refuse(said)


def broken_pairs(lines: list[JsonLine]) -> list[str]:
    """Where a result answers no call, or a call has no result although the talk goes on; at the end one may be open."""
    problems: list[str] = []
    waiting: dict[str, int] = {}
    for line in lines:
        message = line.message
        if message.is_system:
            continue
        if message.role == "tool":
            if waiting.pop(message.answers or "", None) is None:
                problems.append(f"line {line.number}: this result answers no call before it: {message.answers!r}")
            continue
        for call, place in waiting.items():
            problems.append(f"line {place}: the call {call!r} has no result before line {line.number}")
        waiting = {call.id: line.number for call in message.calls}
    return problems
