"""Finds the tool results that must keep their bytes: what an agent edits by line, and errors.

A result is judged by itself and by its call. In doubt it keeps its bytes, since that costs tokens only. The judgement
never changes, so a result stays in the form in which it was first forwarded (promise 5).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from tidemark.core.conversation.messages import Message, ToolCall

_READERS = frozenset(
    {
        *("bat", "blame", "cat", "cell", "diff", "edit", "editor", "file", "files", "grep", "head", "less", "more"),
        *("notebook", "open", "patch", "read", "readfile", "rg", "sed", "show", "tail", "view", "write"),
    }
)
"""Words in the names of functions that read or change files."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_PATHS = re.compile(r'"\w*(?:path|(?<!pro)file)(?:s|_?names?)?"\s*:', re.IGNORECASE)
"""Arguments that state a file."""
_COMMANDS = re.compile(
    r"(?<![\w./-])(?:[\w./-]{1,99}/|/)?(?:cat|nl|bat|batcat|sed|awk|"
    r"git\s+(?:-\S+\s+(?:[^-\s]\S*\s+)?){0,4}(?:show|diff|blame|grep|log|cat-file))(?![\w=-])"
    r"""|(?:^|[;&({`"'\n][ \t]*|\|\|[ \t]*|\b(?:sudo|xargs|exec|then|do|else)[ \t]+)(?:[\w./-]{1,99}/|/)?"""
    r"(?:head|tail|[ef]?grep|rg|ag|ack|less|more|tac|od|xxd|hexdump|strings|cut|diff|view|vim?|nano|type|gc|[jy]q)"
    r'(?=\s|" ?[,\]])'  # behind a pipe these read no file
    r"|\bGet-Content\b|\bopen\(|\bread_text\b|\bread-?file|\.read\(|file://|--(?:word-diff|color-words)",
    re.IGNORECASE,
)
"""Commands that print files, and programs that read them."""
_ESCAPED = re.compile(r"\\u00([2-7][0-9a-f])", re.IGNORECASE)
"""ASCII as an escape: the JSON of Go has its ``&`` so, and that of .NET its quotes."""
LONGEST_ARGUMENTS = 4_000
"""In characters. The result of a call with longer ones is exact: nobody looks through a program for reads."""
_NUMBERED = re.compile(r"^[ \t]*(\d+)(?:[ \t]*[|:→│]|-|\t|[ ]{2,}|$)")
_PLACED = re.compile(r"^[^\s:]*\.[A-Za-z]\w{0,9}[:-]\d+[:-]")
LOOKED_AT = 40
"""The lines at the beginning in which line numbers are looked for."""
NUMBERED_SHARE = 0.5
"""The least share of lines with numbers, of those with content."""
_ENDS = 400
"""The characters of each end in which an error says so."""
_ERROR = re.compile(
    r"\b(?:error|exception|traceback|fatal|panic|failed|failure|denied|refused|not found|no such file|timed out|"
    r"aborted|invalid|cannot|could not|unable to)\b|<tool_use_error>|\w(?:Error|Exception)\b",
    re.IGNORECASE,
)
_ERROR_MEMBER = re.compile(
    r'"(?:errors?|exception|fault|error_message)"\s*:\s*+(?!null|false|0|""|\[\s*\]|\{\s*\})', re.IGNORECASE
)
_EXIT = re.compile(r"\bexit(?:ed)?(?:[ _]with)?(?:[ _](?:code|status))?\W{1,4}[1-9]", re.IGNORECASE)
_FLAG = re.compile(rb'"(?:is_error|isError)"\s*:\s*true')
"""In a message's own JSON a quote within a text is escaped, so this is a member."""
_TRACEBACK = "Traceback (most recent call last)"


def is_exact(result: Message, call: ToolCall | None) -> bool:
    """Return whether a result must keep its bytes.

    :param call: None if it is not in the request, so that nobody knows what the result is
    """
    if call is None or result.media or _reads_file(call) or is_error(result):
        return True
    return _has_line_numbers(result.text)


def calls_by_result(messages: Sequence[Message]) -> Iterator[tuple[int, ToolCall | None]]:
    """Yield the place of each tool result, with the newest call before it that has its id."""
    calls: dict[str, ToolCall] = {}
    for place, message in enumerate(messages):
        if message.calls:
            calls.update((call.id, call) for call in message.calls)
        elif message.role == "tool":
            yield place, calls.get(message.answers or "")


def _reads_file(call: ToolCall) -> bool:
    if len(call.name) + len(call.arguments) > LONGEST_ARGUMENTS:
        return True
    words = {word.lower() for word in _WORD.findall(call.name)}
    if not _READERS.isdisjoint(words) or _PATHS.search(call.arguments):
        return True
    arguments = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), call.arguments)
    arguments = arguments.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    return _COMMANDS.search(arguments) is not None


def is_error(result: Message) -> bool:
    """Return whether a result reports an error, by its flag, its beginning or its exit code."""
    text = result.text
    if _FLAG.search(result.raw) or _TRACEBACK in text:
        return True
    start, end = text[:_ENDS], text[-_ENDS:]
    if text.lstrip()[:1] in ("{", "["):
        return _ERROR_MEMBER.search(start) is not None or _EXIT.search(start) is not None
    first_lines = "\n".join(start.split("\n")[:2])
    return any(pattern.search(first_lines) for pattern in (_ERROR, _EXIT)) or _EXIT.search(end) is not None


def _has_line_numbers(text: str) -> bool:
    """Return whether lines begin with ascending numbers, or with a file's name and a number."""
    lines = [line for line in text[: LOOKED_AT * 200].split("\n")[:LOOKED_AT] if line.strip()]
    numbers = [int(match[1][:9]) for match in map(_NUMBERED.match, lines) if match]
    is_ascending = all(first < second for first, second in itertools.pairwise(numbers))
    least = NUMBERED_SHARE * len(lines)
    return (len(numbers) >= least and is_ascending) or sum(bool(_PLACED.match(line)) for line in lines) >= least
