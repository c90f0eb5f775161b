"""Messages describe what was said in a conversation, in terms that hold for every client format.

A dialect (``proxy/dialects/``) parses a request into messages, and the core plans over them. A message keeps the
client's own JSON (``raw``), so a message that does not change is forwarded as the bytes that came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]
"""``developer`` is read as ``system``, the legacy ``function`` as ``tool`` (OpenAI chat reference)."""

DIGEST_BYTES = 16
"""128 bits: no two of 2**50 messages collide by accident; a pair takes 2**64 work, a double of a given one 2**128."""

_UNFED = blake2b(digest_size=DIGEST_BYTES)
"""Copied for each digest, which is quicker than to make one of that size."""

STEP_CHARS = 1_000_000
"""Longer texts are encoded and digested in steps: one call for 60 MB holds the interpreter for a tenth of a second."""
_SHORT = 256
_LENGTHS = [size.to_bytes(8, "little") for size in range(_SHORT)]
"""The frames of short pieces, which most are."""

LONGEST_MODEL_NAME = 256
"""Characters; Hugging Face allows 96. Caches by name and the globs of policies take a name to be short."""

JsonValue = object
"""A decoded JSON value: ``None | bool | int | float | str | list | dict``."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that an assistant message asks for. ``arguments`` is the model's own JSON text, as it was written."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """One message of a conversation, in the client's bytes and in the core's words."""

    raw: bytes
    """The client's own JSON object."""
    role: Role
    text: str
    """All text parts and a refusal, joined by line ends; empty when there are none. It can always be encoded."""
    digest: bytes
    """``DIGEST_BYTES`` over what the message means (``dialects/chat/message.py`` says what that leaves out)."""
    name: str | None = None
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    """The id of the call whose result this is; only for ``tool``."""
    media: tuple[Mapping[str, JsonValue], ...] = ()
    """Parts that are no text (images, audio, files), as the client wrote them."""
    is_system: bool = field(init=False, compare=False)
    """Whether the message is the operator's (system or developer) and so never part of a prefix."""
    wording: bytes = field(init=False, compare=False)
    """What tells messages of one digest apart whose tokens differ: ``DIGEST_BYTES``, or empty; see ``_wording``."""

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
        # What a dataclass generates sets by name, which takes twice as long; a long request makes a thousand messages.
        _set_raw(self, raw)
        _set_role(self, role)
        _set_text(self, text)
        _set_digest(self, digest)
        _set_name(self, name)
        _set_calls(self, calls)
        _set_answers(self, answers)
        _set_media(self, media)
        # Both are asked for every message of every request, while the message itself is made once.
        _set_is_system(self, role == "system")
        plain = not (calls or media or role == "assistant" or answers == "")
        _set_wording(self, b"" if plain else _wording(self))

    def __repr__(self) -> str:
        """Short, and without contents, which must not reach a log."""
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
) = [getattr(Message, one.name).__set__ for one in fields(Message)]
"""The slots themselves: for the constructor alone."""


def _wording(message: Message) -> bytes:
    """A digest of all that is counted of a message, where its own digest passes over some of that.

    A digest passes over white space around an assistant's text, how the JSON of arguments is written, in which order
    the members of a part stand, and whether an id is missing or empty. All of these cost tokens, and one memory of
    counts serves all tenants: who could write another message of the same key would set the count of both (promise 8).
    """
    text, calls = message.text, message.calls
    if message.media:
        return digest_of_steps([[b"raw"], [message.raw]])
    edged = message.role == "assistant" and bool(text) and (text[0].isspace() or text[-1].isspace())
    if not (calls or edged or message.answers == ""):
        return b""  # nearly always
    read = [text, message.name or "", "" if message.answers is None else "=" + message.answers]
    for call in calls:
        read += (call.id, call.name, call.arguments)
    if len(message.raw) > STEP_CHARS:
        return digest_of_steps([[b"read"], *map(encoded_steps, read)])
    return digest_of(b"read", *[one.encode(errors="surrogatepass") for one in read])


def system_message(text: str) -> Message:
    """Return a system message of our own. Its dialect writes the bytes, so ``raw`` is empty."""
    return Message(raw=b"", role="system", text=text, digest=digest_of(b"own", *encoded_steps(text)))


def printable(text: str) -> str:
    """The text with U+FFFD for half a character: clients cut emoji in two, and nothing can encode what is left."""
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
    """The text in UTF-8, cut into steps; half a character is kept as what it is."""
    return [text[at : at + STEP_CHARS].encode("utf-8", "surrogatepass") for at in range(0, len(text), STEP_CHARS)] or [
        b""
    ]


def digest_of(*pieces: bytes) -> bytes:
    """A digest of the pieces in order, each framed by its length, so that no two lists of pieces are confused."""
    return hashed(framed(*pieces))


def digest_of_steps(pieces: Iterable[Sequence[bytes]]) -> bytes:
    """The same digest of long pieces, each in steps that are never put together."""
    made = _UNFED.copy()
    for steps in pieces:
        made.update(sum(map(len, steps)).to_bytes(8, "little"))
        for step in steps:
            made.update(step)
    return made.digest()


def hashed(framed_pieces: bytes) -> bytes:
    """The digest of one piece, or of several that are framed already."""
    made = _UNFED.copy()
    made.update(framed_pieces)
    return made.digest()


def framed(*pieces: bytes) -> bytes:
    """What ``digest_of`` hashes; where most pieces are always the same, they are framed once."""
    parts: list[bytes] = []
    for piece in pieces:
        size = len(piece)
        parts.append(_LENGTHS[size] if size < _SHORT else size.to_bytes(8, "little"))
        parts.append(piece)
    return b"".join(parts)
