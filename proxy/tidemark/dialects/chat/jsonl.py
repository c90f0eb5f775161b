"""Reads a conversation from lines of JSON, one message a line, and names the lines with errors.

Imports call it, on no request's path. The lines are an export of Tidemark or messages in OpenAI's format.
"""

from __future__ import annotations

import json
import math
from typing import NoReturn

from tidemark.core.conversation.messages import Message
from tidemark.core.errors import BadImport, InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.dialects.chat.message import parse_message

MOST_PROBLEMS = 20
"""Problems that one error names; a file of another format has one in every line."""


@frozen
class JsonLine:
    """A message and the number of its line, counted from 1."""

    number: int
    message: Message


def read_lines(data: bytes) -> list[JsonLine]:
    """Read the messages, each in the bytes of its line; empty lines are skipped.

    :raises BadImport: a line is not a message, or a tool call or a result is alone; nothing is imported then
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
            problems.append(f"line {number}: this is not JSON")
    problems += broken_pairs(lines) if not problems else []
    if not problems and all(line.message.is_system for line in lines):
        problems.append("line 1: there is no message but system messages")
    if problems:
        more = f"\nand {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
        raise BadImport("\n".join(problems[:MOST_PROBLEMS]) + more)
    return lines


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


def broken_pairs(lines: list[JsonLine]) -> list[str]:
    """Return the problems of tool calls: a result without its call, or a call without its result.

    The last message's calls need no results yet.
    """
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
