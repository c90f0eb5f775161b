"""Reads stored messages of every dialect: the shape of the bytes shows in which dialect they came.

The pipeline and the features call it for whatever they read from the store, so a conversation that came in one dialect
goes on in another, and whoever reads the store needs to know none. Messages have no mark, because most are a
role and a text, which have the same bytes in all dialects. Sources: OpenAI API reference, "Create chat completion" and
"Create a model response"; Anthropic API reference, "Create a Message".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import msgspec

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import Dialect, RequestFormat
from tidemark.core.errors import InvalidRequest

CHAT, RESPONSES, MESSAGES = "chat", "responses", "messages"
"""Names of dialects whose shapes are known; any other is asked whether it knows the bytes."""
_TEXT_PARTS = frozenset({"text"})
_CHAT_PARTS = frozenset({"text", "refusal", "image_url", "input_audio", "audio", "file", "video_url"})
_RESPONSES_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file", "summary_text"})
_MEMBERS = frozenset({"role", "content"})
"""All members of a message that means the same in every dialect."""


_CHAT_ONLY = frozenset({CHAT})
_PLAIN_SHAPES = {
    "user": frozenset({CHAT, RESPONSES, MESSAGES}),
    "assistant": frozenset({CHAT, RESPONSES, MESSAGES}),
    "system": frozenset({CHAT, RESPONSES}),
    "developer": frozenset({CHAT, RESPONSES}),
}
"""Which dialects have a message that is a role and a text; Anthropic's has system text beside the messages."""


class _Plain(msgspec.Struct, forbid_unknown_fields=True):
    """A role and a text, as most messages are."""

    role: str
    content: str


class _Typed(msgspec.Struct):
    """A value, of which only the type is decoded."""

    type: str = ""


_PLAIN = msgspec.json.Decoder(_Plain)
_ITEMS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_TYPES = msgspec.json.Decoder(list[_Typed])


class MessageFormats:
    """The formats of stored messages, of every dialect. It reads them in any thread, and holds no state.

    :param dialects: those whose messages may be stored; one of them is chat completions
    """

    def __init__(self, dialects: Iterable[Dialect]) -> None:
        self._dialects = {dialect.name: dialect for dialect in dialects}
        self.names = tuple(self._dialects)
        self._checks = [dialect.is_message for dialect in self._dialects.values()]

    def is_message(self, raw: bytes) -> bool:
        return any(check(raw) for check in self._checks)

    def read(self, raws: Sequence[bytes]) -> list[Message]:
        """Read stored messages; each is one.

        :raises InvalidRequest: one is of no dialect
        """
        messages: list[Message] = []
        for name, run in groupby(raws, key=self._name_of):
            messages += self._dialects[name].parse_messages(list(run))
        return messages

    def is_native(self, raw: bytes, dialect: RequestFormat) -> bool:
        """Return whether a stored message has the form of this dialect; a plain text has that of several."""
        names = shapes(raw)
        return any(self._dialects.get(name) is dialect for name in names) if names else dialect.is_message(raw)

    def sendable(self, raws: Sequence[bytes], dialect: RequestFormat) -> list[bytes]:
        """Return stored messages as a client of ``dialect`` would send them; one of another dialect is written anew.

        One that the dialect has no place for is empty: only a system message can be.

        :raises InvalidRequest: one is of no dialect
        """
        return [
            dialect.as_sent(raw) if self.is_native(raw, dialect) else dialect.write(self.read([raw])[0]) for raw in raws
        ]

    def _name_of(self, raw: bytes) -> str:
        """Return the name of a dialect that reads a stored message."""
        names = shapes(raw)
        for name in (CHAT, RESPONSES, MESSAGES):
            if name in names and name in self._dialects:
                return name
        for name, dialect in self._dialects.items():
            if dialect.is_message(raw):
                return name
        raise InvalidRequest("A stored message is of no dialect that is served.")


def shapes(raw: bytes) -> frozenset[str]:
    """Return the names of the dialects whose form stored bytes have; none if they are of another dialect.

    - Several objects with commas between them, and one with a ``type``, are items of the Responses API.
    - Content blocks that chat completions lacks are Anthropic's.
    - A role and a text are a message of all three dialects; a role and parts that are texts, of two. Anthropic has no
      system messages.
    - Everything else with a role is a message of chat completions, where unknown members are usual.
    """
    try:
        return _PLAIN_SHAPES.get(_PLAIN.decode(raw).role, _CHAT_ONLY)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    try:
        items = _ITEMS.decode(b"[" + raw + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _CHAT_ONLY  # an unpaired surrogate, which json accepts: its own parser decides
    if len(items) != 1:
        return frozenset({RESPONSES}) if items else frozenset()
    return _shapes_of_object(items[0])


def _shapes_of_object(item: Mapping[str, msgspec.Raw]) -> frozenset[str]:
    if "role" not in item:
        return frozenset({RESPONSES}) if "type" in item else frozenset()
    content = bytes(item.get("content", b""))
    kinds = _part_kinds(content)
    if kinds & _RESPONSES_PARTS or ("type" in item and kinds <= _CHAT_PARTS):
        return frozenset({RESPONSES})
    if kinds - _CHAT_PARTS:
        return frozenset({MESSAGES})
    role = bytes(item["role"]).strip(b'"').decode(errors="replace")
    if not item.keys() <= _MEMBERS or role not in _PLAIN_SHAPES or kinds - _TEXT_PARTS:
        return _CHAT_ONLY
    return _PLAIN_SHAPES[role] - {RESPONSES} if content[:1] == b"[" else _CHAT_ONLY


def _part_kinds(content: bytes) -> frozenset[str]:
    """Return the types of a content's parts; none if it is a text."""
    if not content.startswith(b"["):
        return frozenset()
    try:
        return frozenset([part.type for part in _TYPES.decode(content)])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return frozenset()
