"""Bounds of a body: what it must be made of, and how much may be in it, looked at before anything of it is decoded.

Below ``body.py`` and ``beginnings.py``. All of it goes in steps, so that in a thread nobody else waits for it.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

from proxy.core.errors import InvalidRequest

STEP_BYTES = 1_048_576
"""A call that holds the interpreter for so much takes about a millisecond."""
LIGHT_BYTES = 65_536
"""More new bytes are parsed in a thread: so many take some 0.2 ms, and 20 ms where they are as odd as can be."""
MAX_MESSAGES = 20_000
"""Of one request; OpenAI takes 2,048. What walks over so many takes some 20 ms a step."""
MAX_VALUES = 400_000
"""Members and elements of a whole body: twenty for each of the most messages."""
MAX_PART_VALUES = 20_000
"""The same of one message: decoding and writing so many holds the interpreter for some 10 ms."""
MAX_MEMBER_VALUES = 50_000
"""The same of any other member; tools have some tens each."""
_decoder = getincrementaldecoder("utf-8")
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_MARK = re.compile(rb'["{\[,]')


def is_utf8(body: bytes) -> bool:
    """Whether a body is UTF-8 to its last byte. The decoder of JSON passes over what nobody asks for."""
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

    :param what: what the JSON is called in the error
    :raises InvalidRequest: it has more
    """
    if len(raw) > 2 * most and _has_more(raw, most):  # each takes two bytes at least
        raise InvalidRequest(
            f"{what} holds more than {most:,} members and elements. Send less at once.",
            param=param,
            code="too_many_values",
        )


def check_messages(count: int, member: str) -> None:
    """Refuse a request with more messages than ``MAX_MESSAGES``.

    :param member: the member that has the messages

    :raises InvalidRequest: it has more
    """
    if count > MAX_MESSAGES:
        raise InvalidRequest(
            f"'{member}' must hold at most {MAX_MESSAGES:,} messages, not {count:,}. Send the newest ones only, "
            "or keep the conversation in Tidemark with 'X-Tidemark-History: stored'.",
            param=member,
            code="array_above_max_length",
        )


def _has_more(raw: bytes, most: int) -> bool:
    """Whether there are more than ``most`` commas and brackets that open, within strings or not, and then without."""
    marks = 0
    for at in range(0, len(raw), STEP_BYTES):
        marks += sum([raw.count(mark, at, at + STEP_BYTES) for mark in (b",", b"{", b"[")])
        if marks > most:
            return _has_more_outside_strings(raw, most)
    return False


def _has_more_outside_strings(raw: bytes, most: int) -> bool:
    """The same, without what stands in strings: at most so many steps as ``most`` and the strings take."""
    marks = at = 0
    while marks <= most and at < len(raw):
        found = _MARK.search(raw, at, at + STEP_BYTES)
        if found is None:
            at += STEP_BYTES
            continue
        at = found.end()
        if found[0] == b'"':
            at = end_of_string(raw, at)
        else:
            marks += 1
    return marks > most


def end_of_string(raw: bytes, at: int) -> int:
    """The place after the quotation mark that ends the string whose contents begin at ``at``."""
    while at < len(raw):
        step = _IN_STRING.match(raw, at, at + STEP_BYTES)
        end = step.end() if step else at
        if raw[end : end + 1] == b'"':
            return end + 1
        at = end + 2 if end == at else end  # an escape where a step ends
    return len(raw)
