"""Digests of a conversation's prompt, which the store keeps: so Tidemark reports a client's change of it once.

Each conversation has one record: the changes that were reported, a line end, then digests of each tool and each
leading part of the system text. A request whose digests are the same costs one comparison.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.core.conversation.messages import JsonValue, sized_digest
from tidemark.core.conversation.prompt_changes import ChangedPart, PromptChange, SentPrompt, first_change
from tidemark.core.frozen import frozen

NAME_CHARACTERS = 4
"""Of a digest of a tool's name, in base64: 24 bits distinguish the tools of one request."""
DIGEST_CHARACTERS = 8
"""Of a digest of a tool or a part of the system text, in base64: 48 bits."""
MOST_PARTS = 500
"""More tools, or parts of the system text, are compared as one."""
_TOOL = NAME_CHARACTERS + DIGEST_CHARACTERS
_MARK = "cache_control"
"""What clients move from part to part; no provider compares it."""


@frozen
class PromptNews:
    """What a request's prompt adds to its conversation."""

    stored: bytes = b""
    """What the turn stores in place of ``ConversationState.prompt_record``; empty if that stays."""
    change: PromptChange | None = None
    """What the client has changed, if the response must report it."""


NO_NEWS = PromptNews()


def tool_digests(tools: JsonValue) -> bytes:
    """Return digests of the value of a member that declares tools, as they are stored.

    The order of members counts: a provider's cache breaks if a client writes them in another order (Anthropic,
    "Prompt caching").
    """
    return b"".join([_digest(_name_of(tool), NAME_CHARACTERS) + _digest_of_json(tool) for tool in _parts_of(tools)])


def system_digests(system: JsonValue) -> bytes:
    """Return digests of the member that has the system text: one text or several blocks."""
    return b"".join(map(_digest_of_json, _parts_of(system)))


def message_digest(digest: bytes) -> bytes:
    """Return what is stored of a leading system message.

    :param digest: ``Message.digest``
    """
    return base64.b64encode(digest[: DIGEST_CHARACTERS * 3 // 4])


def packed(tools: bytes, systems: bytes) -> bytes:
    """Return what is stored of a prompt beside the changes that were told."""
    return tools + b"." + systems


def news_of(prompt_record: bytes, prompt: bytes, *, is_fork: bool) -> PromptNews:
    """Return what a request's prompt adds to its conversation.

    A request without any system text changes nothing: there are clients that send it once only.

    :param prompt_record: ``ConversationState.prompt_record`` of the conversation that it goes on with, or leaves
    :param prompt: what ``packed`` returned for the request
    :param is_fork: whether the request leaves the conversation; then its tools and system text are those of the fork
    """
    told_words, _, earlier = prompt_record.partition(b"\n")
    if earlier == prompt and not is_fork:
        return NO_NEWS
    if not earlier:  # a new conversation, or one that an earlier version stored
        return PromptNews(told_words + b"\n" + prompt)
    tools, _, systems = prompt.partition(b".")
    prompt = packed(tools, systems or earlier.partition(b".")[2])
    if is_fork:
        return PromptNews(told_words + b"\n" + prompt)
    before, now = _read(earlier), _read(prompt)
    if is_told(prompt_record, "tools"):
        before = replace(before, tools=now.tools)
    if is_told(prompt_record, "system"):
        before = replace(before, systems=now.systems)
    change = first_change(before, now)
    return NO_NEWS if change is None else told_news(PromptNews(told_words + b"\n" + prompt), change)


def told_news(news: PromptNews, change: PromptChange) -> PromptNews:
    """Return the news with one more change, which the response reports."""
    told_words, _, prompt = news.stored.partition(b"\n")
    words = change.words.encode()
    return PromptNews((told_words + b", " + words if told_words else words) + b"\n" + prompt, change)


def is_told(prompt_record: bytes, part: ChangedPart) -> bool:
    """Return whether a change of a part was told in a conversation already."""
    return any(words.startswith(part) for words in told_changes(prompt_record))


def told_changes(prompt_record: bytes) -> Sequence[str]:
    """Return the changes that were told in a conversation, as ``PromptChange.words``, oldest first."""
    told_words = prompt_record.partition(b"\n")[0].decode("ascii", "replace")
    return told_words.split(", ") if told_words else ()


def _read(prompt: bytes) -> SentPrompt:
    tools, _, systems = prompt.partition(b".")
    return SentPrompt(
        tuple([(tool[:NAME_CHARACTERS], tool[NAME_CHARACTERS:]) for tool in _cut(tools, _TOOL)]),
        tuple(_cut(systems, DIGEST_CHARACTERS)),
        (),
    )


def _cut(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _parts_of(content: JsonValue) -> Sequence[JsonValue]:
    if content is None or content == "":
        return ()
    if not isinstance(content, list):
        return [content]
    return content if len(content) <= MOST_PARTS else [*content[:MOST_PARTS], content[MOST_PARTS:]]


def _name_of(tool: JsonValue) -> bytes:
    """Return a tool's name: in chat completions its function has it, and built-in tools have a type only."""
    if not isinstance(tool, Mapping):
        return b""
    function = tool.get("function")
    name = tool.get("name") or (function.get("name") if isinstance(function, Mapping) else None) or tool.get("type")
    return str(name).encode(errors="surrogatepass")


def _digest_of_json(part: JsonValue) -> bytes:
    if isinstance(part, list):  # thousands of tools, which one call would write for some 40 ms
        data = b"[%b]" % b", ".join([json.dumps(element).encode() for element in part])
    else:
        data = json.dumps(_unmarked(part)).encode()
    return _digest(data, DIGEST_CHARACTERS)


def _unmarked(part: JsonValue) -> JsonValue:
    """Return a part without its cache mark; a tool's function may have it, too."""
    if not isinstance(part, dict):
        return part
    part = {name: content for name, content in part.items() if name != _MARK}
    function = part.get("function")
    return {**part, "function": _unmarked(function)} if isinstance(function, dict) else part


def _digest(data: bytes, characters: int) -> bytes:
    return base64.b64encode(sized_digest(data, characters * 3 // 4))
