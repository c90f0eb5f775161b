r"""Finds the whole commands of an append-only file, so that the rest of a damaged one can be cut out.

A file is a sequence of requests in the server's protocol: ``*3\r\n$3\r\nSET\r\n...`` (Valkey documentation,
"Persistence" and "RESP"). The writes of a script stand between MULTI and EXEC: all of them stay, or none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from mmap import mmap

Span = tuple[int, int]
"""The first byte of a part of a file, and the one after its last."""
_COUNT = re.compile(rb"\*([1-9]\d{0,6})\r\n")
_LENGTH = re.compile(rb"\$(0|[1-9]\d{0,9})\r\n")
_START = re.compile(rb"\*[1-9]\d{0,6}\r\n\$[1-9]\d?\r\n[A-Za-z]")
_NOTE = re.compile(rb"#[^\r\n]{0,1000}\r\n")
"""A line between commands, such as the time of the next ones (``aof-timestamp-enabled``)."""
_ENTRY = re.compile(rb"\*\d+\r\n\$\d+\r\n([^\r\n]+)\r\n:(-?\d+)\r\n")
_END = b"\r\n"
Arities = Mapping[bytes, int]
"""The number of words of each command, and of subcommands as ``xgroup|create``; negative for at least so many."""


def read_arities(answer: bytes) -> Arities:
    """Read a server's answer to COMMAND (Valkey documentation, "COMMAND")."""
    arities = {name.lower(): int(arity) for name, arity in _ENTRY.findall(answer)}
    for name in [name for name in arities if b"|" in name]:
        arities.pop(name.partition(b"|")[0], None)  # it is no command without one of its subcommands
    return arities


def whole_spans(data: bytes | mmap, arities: Arities) -> list[Span]:
    """Return the parts of a file whose commands are whole; one part if the whole file is.

    After damage it goes on at the next whole command: the counts of a conversation show that it lost a turn in
    between. No text of a client can look like a command, since JSON has no ``*`` after a line break.
    """
    spans: list[Span] = []
    for start, end in _groups(data, arities):
        if spans and spans[-1][1] == start:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def _groups(data: bytes | mmap, arities: Arities) -> Iterator[Span]:
    """Find commands that stand alone, and transactions from their MULTI to their EXEC."""
    place, opened = 0, -1
    waiting: list[Span] | None = None
    """The commands after damage, until it is known that they stand in no transaction whose beginning is gone."""
    while place < len(data):
        command = _command(data, place, arities)
        name = command[1] if command else b""
        if command is None or (name == b"multi" and opened >= 0):
            yield from waiting or ()
            opened, waiting = -1, []
            place = place if command else _next_command(data, place + 1, arities)
            continue
        start, place = place, command[0]
        if name == b"multi":
            yield from waiting or ()
            opened, waiting = start, None
        elif name == b"exec":
            if opened >= 0:
                yield opened, place
            opened, waiting = -1, None
        elif opened < 0 and waiting is None:
            yield start, place
        elif waiting is not None:
            waiting.append((start, place))
    yield from waiting or ()


def _next_command(data: bytes | mmap, place: int, arities: Arities) -> int:
    """Return where the next whole command begins; the file's length if none does."""
    for match in _START.finditer(data, place):
        if _command(data, match.start(), arities) is not None:
            return match.start()
    return len(data)


def _command(data: bytes | mmap, place: int, arities: Arities) -> tuple[int, bytes] | None:
    """Return where a command ends, and its name in small letters; None if there is no whole one."""
    count = _COUNT.match(data, place)
    if count is None:
        note = _NOTE.match(data, place)
        return None if note is None else (note.end(), b"")
    words: list[bytes] = []
    place, total = count.end(), int(count[1])
    for number in range(total):
        length = _LENGTH.match(data, place)
        if length is None:
            return None
        end = length.end() + int(length[1])
        if data[end : end + 2] != _END:
            return None
        if number < 2:
            words.append(data[length.end() : min(end, length.end() + 40)].lower())
        place = end + 2
    return (place, words[0]) if _is_known(words, total, arities) else None


def _is_known(words: list[bytes], total: int, arities: Arities) -> bool:
    """Return whether the server takes such a command. It ends at an unknown one, and does not count the words."""
    arity = arities.get(words[0]) or arities.get(b"|".join(words))
    return arity is not None and (total == arity if arity > 0 else total >= -arity)
