"""Bounds of a body, checked before anything of it is decoded: UTF-8, the number of values, the number of messages.

Dialects call it through ``raw_json.py`` and ``prefix_reuse.py``. The checks walk over large bodies in steps, so that a
thread that makes them does not block the event loop.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

from tidemark.core.errors import InvalidRequest

STEP_BYTES = 131_072
"""A call over so many bytes keeps the interpreter for three milliseconds at most. The event loop needs the interpreter
several times for one answer, and may wait for such a call each time."""
LIGHT_BYTES = 65_536
"""A body with more new bytes is parsed in a thread. So many usually take some 0.2 ms, and 20 ms at worst."""
MAX_MESSAGES = 20_000
"""In one request; OpenAI accepts 2,048. A step that walks over so many takes some 20 ms."""
MAX_VALUES = 400_000
"""Members and elements in a whole body: twenty for each of ``MAX_MESSAGES``."""
MAX_PART_VALUES = 20_000
"""Members and elements in one message. To decode and write so many keeps the interpreter for some 10 ms."""
MAX_MEMBER_VALUES = 50_000
"""Members and elements in any other member; each tool has some tens."""
_decoder = getincrementaldecoder("utf-8")
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_MARK = re.compile(rb'["{\[,]')


def is_utf8(body: bytes) -> bool:
    """Return whether all of a body is UTF-8. The JSON decoder does not check members that it skips."""
    if body.isascii():
        return True
    decoder, view = _decoder(), memoryview(body)
    try:
        for at in range(0, len(body), STEP_BYTES):
            decoder.decode(view[at : at + STEP_BYTES], final=at + STEP_BYTES >= len(body))
    except UnicodeDecodeError:
        return False
    return True


def check_values(raw: bytes, most: int, what: str, param: str | None = None) -> None:
    """Refuse JSON with more members and elements than ``most``.

    :param what: the name of the JSON in the error
    :raises InvalidRequest: the JSON has more
    """
    if len(raw) > 2 * most and _has_more(raw, most):  # each takes at least two bytes
        raise InvalidRequest(
            f"{what} holds more than {most:,} members and elements. Send less at once.",
            param=param,
            code="too_many_values",
        )


def check_messages(count: int, member: str) -> None:
    """Refuse a request with more messages than ``MAX_MESSAGES``.

    :param member: the member that has the messages
    :raises InvalidRequest: the request has more
    """
    if count > MAX_MESSAGES:
        raise InvalidRequest(
            f"'{member}' must hold at most {MAX_MESSAGES:,} messages, not {count:,}. Send the newest ones only, "
            "or keep the conversation in Tidemark with 'X-Tidemark-History: stored'.",
            param=member,
            code="array_above_max_length",
        )


def _has_more(raw: bytes, most: int) -> bool:
    """Return whether there are more than ``most`` commas and opening brackets outside strings.

    The first count includes those inside strings, because it is quick; only a count that is too high is made again.
    """
    marks = 0
    for at in range(0, len(raw), STEP_BYTES):
        marks += sum([raw.count(mark, at, at + STEP_BYTES) for mark in (b",", b"{", b"[")])
        if marks > most:
            return _has_more_outside_strings(raw, most)
    return False


def _has_more_outside_strings(raw: bytes, most: int) -> bool:
    """Return the same, but skip strings. The work is bounded by ``most`` and the length of the strings."""
    marks = at = 0
    while marks <= most and at < len(raw):
        mark = _MARK.search(raw, at, at + STEP_BYTES)
        if mark is None:
            at += STEP_BYTES
            continue
        at = mark.end()
        if mark[0] == b'"':
            at = end_of_string(raw, at)
        else:
            marks += 1
    return marks > most


def end_of_string(raw: bytes, at: int) -> int:
    """Return the place after the closing quotation mark of the string whose contents begin at ``at``."""
    while at < len(raw):
        step = _IN_STRING.match(raw, at, at + STEP_BYTES)
        end = step.end() if step else at
        if raw[end : end + 1] == b'"':
            return end + 1
        at = end + 2 if end == at else end  # the step ended inside an escape
    return len(raw)
