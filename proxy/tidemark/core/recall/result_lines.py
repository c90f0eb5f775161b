"""The line that stands for a masked result: its length, its beginning and end, and its handle.

The call stays where it is, right before its result, so the line need not repeat it. ``core/planning/masks.py`` chooses
the results, and the store keeps their lines, so that every worker sends the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidemark.core.conversation.messages import Message
from tidemark.core.recall.passage import handle_of, line_count

QUOTED_CHARS = 72
"""The most characters of a line that are quoted."""
OPENING = "[Left out:"
_TELLING = re.compile(r"\w", re.ASCII)
_EXIT = re.compile(
    r"\bexit(?:ed)?(?:[ _]?(?:code|status))?[\"']?(?: with(?: code)?)?\s{0,3}[:=]?\s{0,3}(-?\d{1,5})\b", re.IGNORECASE
)
_EXAMINED_CHARS = 2_000
"""Of its beginning and its end."""


def line_for(message: Message, *, handle: bool, most: int = QUOTED_CHARS) -> str:
    """Return the line for a result.

    :param message: the result as the client sent it
    :param handle: whether the model can ask for the result by its handle
    :param most: the most characters that are quoted of each line; with 0 nothing is quoted
    """
    text = message.text
    first, last = (_shortened(each, most) for each in _first_and_last(text))
    count = line_count(text)
    size = f"{count} lines, {len(text.encode())} bytes" if count > 1 else f"{len(text.encode())} bytes"
    quoted = [f'it begins "{first}"' if first else "", f'ends "{last}"' if last and last != first else ""]
    code = exit_code(text)
    parts = [size, *filter(None, quoted), f"exit {code}" if code else ""]
    line = f"{OPENING} {', '.join(filter(None, parts))}"
    return f"{line}; whole by its handle {handle_of(message)}]" if handle else f"{line}]"


def exit_code(text: str) -> str:
    """Return the exit code that a result states at its beginning or end; empty if it states none."""
    for part in (text[-_EXAMINED_CHARS:], text[:_EXAMINED_CHARS]):
        if codes := _EXIT.findall(part):
            return str(codes[-1])
    return ""


def _first_and_last(text: str) -> tuple[str, str]:
    """Return the first and the last line that say something; both empty if none does."""
    first = next(_telling_lines(text[:_EXAMINED_CHARS].split("\n")), "")
    last = next(_telling_lines(reversed(text[-_EXAMINED_CHARS:].split("\n"))), "")
    return first, last


def _telling_lines(lines: Iterator[str] | list[str]) -> Iterator[str]:
    return (plain for line in lines if len(_TELLING.findall(plain := line.strip())) > 1 or not plain.isascii())


def _shortened(line: str, most: int) -> str:
    """Return a line without the marks that would end its quotation, in so many characters; empty if those are none."""
    plain = " ".join(line.replace('"', "'").split())
    if len(plain) <= most:
        return plain
    return f"{plain[:most].rstrip()}..." if most else ""
