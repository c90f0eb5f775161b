"""Messages describe a conversation in terms that hold for every client format.

A dialect (``tidemark/dialects/``) parses a request into messages, and the core plans over them. A message keeps the
client's own JSON (``raw``), so a message that does not change is forwarded as the bytes that came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Literal

from tidemark.core.frozen import frozen

Role = Literal["system", "user", "assistant", "tool"]
"""``developer`` is read as ``system``, the legacy ``function`` as ``tool`` (OpenAI chat reference)."""

DIGEST_BYTES = 16
"""128 bits. No two of 2**50 messages collide by accident. Any pair takes 2**64 steps, a second preimage 2**128."""

_key = b""
_empty_hash = blake2b(digest_size=DIGEST_BYTES)
"""A hash of nothing. A copy of it is quicker to make than a new hash of that size."""

STEP_CHARS = 131_072
"""Longer texts are encoded and digested in steps. One call for so many half characters holds the interpreter for four
milliseconds."""
_SHORT = 256
_LENGTHS = [size.to_bytes(8, "little") for size in range(_SHORT)]
"""The length prefixes of short pieces. Most pieces are short."""

LONGEST_MODEL_NAME = 256
"""In characters; Hugging Face allows 96. Caches by name and the globs of policies rely on short names."""

NO_CONTENT = "(no content)"
"""Stands for a message without any content in a dialect whose servers refuse one; Claude Code has the same."""

JsonValue = object
"""A decoded JSON value: ``None | bool | int | float | str | list | dict``."""


@frozen
class ToolCall:
    """One tool call of an assistant message. ``arguments`` is the model's own JSON text, unchanged."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """One message of a conversation, as the client's bytes and as fields that no dialect changes."""

    raw: bytes
    """The client's own JSON object."""
    role: Role
    text: str
    """All text parts and a refusal, joined by line ends; empty without any. UTF-8 can encode it."""
    digest: bytes
    """``DIGEST_BYTES`` over what the message means (``dialects/chat/message.py`` says what that leaves out)."""
    name: str | None = None
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    """The id of the call whose result this is; only for ``tool``."""
    media: tuple[Mapping[str, JsonValue], ...] = ()
    """Parts that are no text (images, audio, files), as the client wrote them."""
    is_system: bool = field(init=False, compare=False)
    """Whether the role is system or developer. Such a message is never part of a prefix."""
    wording: bytes = field(init=False, compare=False)
    """Distinguishes messages of equal digest and different token counts: ``DIGEST_BYTES``, or empty (``_wording``)."""

    def __init__(
        self,
        raw: bytes,
        role: Role,
        text: str,
        digest: bytes,
        *,
        name: str | None = None,
        calls: tuple[ToolCall, ...] = (),
        answers: str | None = None,
        media: tuple[Mapping[str, JsonValue], ...] = (),
    ) -> None:
        # The generated constructor sets attributes by name, which is twice as slow; long requests have 1,000 messages.
        _set_raw(self, raw)
        _set_role(self, role)
        _set_text(self, text)
        _set_digest(self, digest)
        _set_name(self, name)
        _set_calls(self, calls)
        _set_answers(self, answers)
        _set_media(self, media)
        # Every request reads both for each of its messages, while a message is made once.
        _set_is_system(self, role == "system")
        plain = not (calls or media or role == "assistant" or answers == "")
        _set_wording(self, b"" if plain else _wording(self))

    def __repr__(self) -> str:
        """Return a short text without contents, which must not reach a log."""
        marks = [*(f"calls {call.id}" for call in self.calls), *([f"answers {self.answers}"] if self.answers else [])]
        return f"<{' '.join([self.role, f'{len(self.raw)}B', *marks])}>"


(
    _set_raw,
    _set_role,
    _set_text,
    _set_digest,
    _set_name,
    _set_calls,
    _set_answers,
    _set_media,
    _set_is_system,
    _set_wording,
) = [getattr(Message, slot.name).__set__ for slot in fields(Message)]
"""The setters of the slots; only the constructor uses them."""


def _wording(message: Message) -> bytes:
    """Return a digest of everything that is counted of a message, if ``digest`` ignores some of it.

    ``digest`` ignores white space around an assistant's text, how the JSON of arguments is written, the order of the
    members of a part, and whether an id is missing or empty. All of these cost tokens, and one cache of counts serves
    all tenants: a client with another message of the same key could set the count of both (promise 8).
    """
    text, calls = message.text, message.calls
    if message.media:
        return digest_of_steps([[b"raw"], [message.raw]])
    has_outer_space = message.role == "assistant" and bool(text) and (text[0].isspace() or text[-1].isspace())
    if not (calls or has_outer_space or message.answers == ""):
        return b""  # nearly always
    pieces = [text, message.name or "", "" if message.answers is None else "=" + message.answers]
    for call in calls:
        pieces += (call.id, call.name, call.arguments)
    if len(message.raw) > STEP_CHARS:
        return digest_of_steps([[b"read"], *map(encoded_steps, pieces)])
    return digest_of(b"read", *[piece.encode(errors="surrogatepass") for piece in pieces])


def system_message(text: str) -> Message:
    """Return a system message that Tidemark writes. Its dialect writes the bytes, so ``raw`` is empty."""
    return Message(raw=b"", role="system", text=text, digest=digest_of(b"own", *encoded_steps(text)))


def kind_of(part: Mapping[str, JsonValue]) -> str:
    """Return a part's ``type``; empty if it is no text, which clients may send and upstreams judge."""
    kind = part.get("type")
    return kind if isinstance(kind, str) else ""


def printable(text: str) -> str:
    """Return the text with U+FFFD for each half character.

    Clients cut emoji in two, and UTF-8 cannot encode a half.
    """
    if len(text) > STEP_CHARS:
        steps = [text[at : at + STEP_CHARS] for at in range(0, len(text), STEP_CHARS)]
        printed = [printable(step) for step in steps]
        return text if printed == steps else "".join(printed)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encoded_steps(text: str) -> list[bytes]:
    """Return the text in UTF-8, cut into steps; a half character stays as it is."""
    return [text[at : at + STEP_CHARS].encode("utf-8", "surrogatepass") for at in range(0, len(text), STEP_CHARS)] or [
        b""
    ]


def key_digests(key: bytes) -> None:
    """Key all digests of this process, before it makes the first one (docs/adr/0046).

    :param key: at most 64 bytes; with it a digest tells a text only to those who have the key
    """
    global _key, _empty_hash
    _key, _empty_hash = key, blake2b(digest_size=DIGEST_BYTES, key=key)


def digest_mark() -> str:
    """Return what tells two keys of digests apart; empty without a key."""
    return digest_of(b"the key of these digests").hex() if _key else ""


def sized_digest(data: bytes, size: int) -> bytes:
    """Return a digest of ``size`` bytes."""
    return blake2b(data, digest_size=size, key=_key).digest()


def digest_of(*pieces: bytes) -> bytes:
    """Return a digest of the pieces in order. Each has its length before it, so no two lists give the same bytes."""
    return hashed(framed(*pieces))


def digest_of_steps(pieces: Iterable[Sequence[bytes]]) -> bytes:
    """Return the same digest as ``digest_of`` for long pieces, each in steps that are never joined."""
    running_hash = _empty_hash.copy()
    for steps in pieces:
        running_hash.update(sum(map(len, steps)).to_bytes(8, "little"))
        for step in steps:
            running_hash.update(step)
    return running_hash.digest()


def hashed(framed_pieces: bytes) -> bytes:
    """Return the digest of bytes that have their length prefixes already."""
    running_hash = _empty_hash.copy()
    running_hash.update(framed_pieces)
    return running_hash.digest()


def framed(*pieces: bytes) -> bytes:
    """Return the bytes that ``digest_of`` hashes; callers with constant pieces make their part once."""
    parts: list[bytes] = []
    for piece in pieces:
        size = len(piece)
        parts.append(_LENGTHS[size] if size < _SHORT else size.to_bytes(8, "little"))
        parts.append(piece)
    return b"".join(parts)
