"""Reads a reply of chat completions, streamed or whole, as pieces that every bridge writes in its own dialect.

A bridge (``bridge.py``) reads the upstream's reply with it, and gives the pieces to a writer, whose base is here. Only
the first choice counts, because the other dialects have one answer. Source: OpenAI API reference, "The chat completion
chunk object".
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamBroken
from tidemark.core.frozen import frozen
from tidemark.dialects.raw_json import decode_or_none
from tidemark.upstream.bridges.json_members import objects_of

MAX_LINE_BYTES = 67_108_864
"""The longest line of a stream that is read; a whole answer with images takes less."""
DONE = b"[DONE]"
REASONING_MEMBERS = ("reasoning_content", "reasoning")
"""Members of other vendors: DeepSeek's, llama.cpp's and vLLM's, then OpenRouter's."""


@frozen
class TextPiece:
    """More of the answer's text."""

    text: str


@frozen
class RefusalPiece:
    """More of a refusal, which takes the answer's place."""

    text: str


@frozen
class ReasoningPiece:
    """More of the model's reasoning."""

    text: str


@frozen
class SignedPiece:
    """Pieces of litellm's ``thinking_blocks``, whose text came as reasoning, too."""

    blocks: Sequence[Mapping[str, JsonValue]]


@frozen
class CallPiece:
    """More of a tool call. The first piece of a call has its id and name."""

    index: int
    arguments: str
    id: str = ""
    name: str = ""


@frozen
class FinishPiece:
    """The reason why the answer ended: ``stop``, ``length``, ``tool_calls``, ``content_filter``."""

    reason: str


@frozen
class CountsPiece:
    """The upstream's own counts, as it wrote them."""

    usage: Mapping[str, JsonValue]


@frozen
class FailurePiece:
    """The upstream's own error within a stream."""

    message: str


@frozen
class CommentPiece:
    """A comment of an event stream, with which servers say that they still work."""

    line: bytes


Piece = (
    TextPiece
    | RefusalPiece
    | ReasoningPiece
    | SignedPiece
    | CallPiece
    | FinishPiece
    | CountsPiece
    | FailurePiece
    | CommentPiece
)


@dataclass(slots=True)
class ChatReplyReader:
    """Reads one reply. Its state is the beginning of a line, and the indices of calls."""

    _pieces: list[bytes] = field(default_factory=list)
    """The pieces of a line whose end has not come."""
    _line_bytes: int = 0
    _indices: dict[str, int] = field(default_factory=dict)
    """The index of each call by its id, for servers that send none."""
    _thinking: str = ""
    """The text of a thinking block that has no signature yet."""
    _unfinished: str = ""
    """The reason to end if the stream says none before ``[DONE]``; empty without an answer."""

    def read_stream(self, data: bytes) -> Iterator[Piece]:
        """Yield the pieces of the lines that these bytes complete; the bytes may end anywhere.

        :raises UpstreamBroken: a line is longer than ``MAX_LINE_BYTES``
        """
        ended, mark, rest = data.rpartition(b"\n")
        if mark:
            lines = b"".join([*self._pieces, ended]).split(b"\n")
            self._pieces, self._line_bytes = [], 0
            for line in lines:
                yield from self._pieces_of_line(line)
        if rest:
            self._pieces.append(rest)
            self._line_bytes += len(rest)
            if self._line_bytes > MAX_LINE_BYTES:
                raise UpstreamBroken(f"The upstream sent an event of more than {MAX_LINE_BYTES:,} bytes.")

    def _pieces_of_line(self, line: bytes) -> Iterator[Piece]:
        if line.startswith(b"data:"):
            payload = line[5:].strip()
            chunk = decode_or_none(payload)
            if isinstance(chunk, dict):
                for piece in self._pieces_of(chunk):
                    self._note(piece)
                    yield piece
            elif payload == DONE and self._unfinished:
                yield FinishPiece(self._unfinished)
        elif line.startswith(b":"):
            yield CommentPiece(line.rstrip(b"\r"))

    def _note(self, piece: Piece) -> None:
        """Note what an answer without a reason to end would have ended for."""
        if isinstance(piece, (FinishPiece, FailurePiece)):
            self._unfinished = ""
        elif isinstance(piece, CallPiece):
            self._unfinished = "tool_calls"
        elif isinstance(piece, (TextPiece, RefusalPiece)) and not self._unfinished:
            self._unfinished = "stop"

    def read_whole(self, data: bytes) -> Iterator[Piece]:
        reply = decode_or_none(data)
        if isinstance(reply, dict):
            yield from self._pieces_of(reply)

    def _pieces_of(self, chunk: Mapping[str, JsonValue]) -> Iterator[Piece]:
        error = chunk.get("error")
        if error:
            message = error.get("message") if isinstance(error, dict) else error
            yield FailurePiece(str(message))
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                yield from self._pieces_of_choice(choice)
        usage = chunk.get("usage")
        if isinstance(usage, dict) and usage:
            yield CountsPiece(usage)

    def _pieces_of_choice(self, choice: Mapping[str, JsonValue]) -> Iterator[Piece]:
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            yield from self._reasoning_of(delta)
            if text := _text_of(delta.get("content")):
                yield TextPiece(text)
            if isinstance(refusal := delta.get("refusal"), str) and refusal:
                yield RefusalPiece(refusal)
            calls = delta.get("tool_calls")
            for place, call in enumerate(calls if isinstance(calls, list) else ()):
                if isinstance(call, dict):
                    yield self._call_piece(call, place)
        if isinstance(reason := choice.get("finish_reason"), str):
            yield FinishPiece(reason)

    def _reasoning_of(self, delta: Mapping[str, JsonValue]) -> Iterator[Piece]:
        """Yield the reasoning; if litellm's blocks have its text, too, each block's text stands before its signature.

        litellm repeats the text of a block in the piece with its signature.
        """
        blocks = objects_of(delta.get("thinking_blocks"))
        if any(block.get("thinking") for block in blocks):
            for block in blocks:
                text = block.get("thinking")
                text = text if isinstance(text, str) else ""
                if block.get("signature"):
                    text, self._thinking = text.removeprefix(self._thinking), ""
                else:
                    self._thinking += text
                if text:
                    yield ReasoningPiece(text)
                yield SignedPiece([{**block, "thinking": text} if "thinking" in block else block])
            return
        reasoning = next((text for name in REASONING_MEMBERS if (text := delta.get(name))), None)
        if isinstance(reasoning, str):
            yield ReasoningPiece(reasoning)
        if blocks:
            self._thinking = ""
            yield SignedPiece(blocks)

    def _call_piece(self, call: Mapping[str, JsonValue], place: int) -> CallPiece:
        function = call.get("function") or call.get("custom")
        members = function if isinstance(function, dict) else {}
        call_id = call.get("id") if isinstance(call.get("id"), str) else ""
        index = call.get("index")
        if not isinstance(index, int):
            index = self._indices.setdefault(str(call_id), len(self._indices)) if call_id else place
        name, arguments = members.get("name"), members.get("arguments", members.get("input"))
        if isinstance(arguments, dict):  # Ollama's own habit
            arguments = json.dumps(arguments)
        return CallPiece(index, arguments if isinstance(arguments, str) else "", str(call_id), str(name or ""))


def _text_of(content: JsonValue) -> str:
    """Return a content's text; some servers send parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join([str(part.get("text") or "") for part in parts if isinstance(part, dict)])


class ReplyWriter(ABC):
    """Writes a reply in one dialect, piece by piece."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._usage: Mapping[str, JsonValue] | None = None

    @property
    def finished(self) -> bool:
        """Whether the reason is there why the answer ended."""
        return self._reason is not None

    @abstractmethod
    def begin(self) -> Iterator[bytes]:
        """Yield the first events."""

    def add(self, piece: Piece) -> Iterator[bytes]:
        """Take in a piece, and return its events, which must all be taken."""
        match piece:
            case FinishPiece():
                self._reason = piece.reason
            case CountsPiece():
                self._usage = piece.usage
            case _:
                return self._add_content(piece)
        return iter(())

    @abstractmethod
    def _add_content(self, piece: Piece) -> Iterator[bytes]:
        """Yield the events of a piece of the answer."""

    @abstractmethod
    def end(self) -> Iterator[bytes]:
        """Yield the events that end the stream."""

    @abstractmethod
    def whole(self) -> bytes:
        """Return the reply as one body."""

    @abstractmethod
    def failure(self, message: str) -> bytes:
        """Return the event of an error of the upstream within the stream."""

    def refusal(self, status: int, body: bytes) -> bytes:
        """Return an upstream's refusal in the dialect's own envelope; OpenAI's formats have one."""
        del status
        return body
