"""Sends a request in chat completions for a dialect that its upstream does not speak, and writes the reply back.

``upstream.py`` calls it in place of the wire lane's own way. It works over both lanes: over the wire to servers that
speak chat completions only, and through litellm to all other providers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from itertools import takewhile

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import UpstreamBroken
from tidemark.core.ports import Headers, UpstreamReply
from tidemark.upstream.answers import MAX_MESSAGE_CHARACTERS
from tidemark.upstream.bridges.asking import ChatGoal, RequestBridge, WriteMessage, chat_body
from tidemark.upstream.bridges.messages import MessagesReplyWriter, MessagesRequestBridge
from tidemark.upstream.bridges.pieces import ChatReplyReader, CommentPiece, FailurePiece, Piece, ReplyWriter
from tidemark.upstream.bridges.responses import ResponsesReplyWriter, ResponsesRequestBridge
from tidemark.upstream.bridges.thinking import Demand

EVENT_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")
JSON_CONTENT = (b"content-type", b"application/json")
_REPLACED = frozenset({b"content-type", b"content-length", b"content-encoding"})
"""Headers of the upstream's reply that do not hold for the one that is written here."""

BRIDGED = frozenset({"responses", "messages"})
"""The dialects that have a bridge."""
SendChat = Callable[[bytes], Awaitable[UpstreamReply]]
"""Sends the body of a chat request over the route's lane."""


class ChatBridge:
    """Asks in chat completions. It has no state.

    :param write: writes a message of any dialect as one of chat completions
    """

    def __init__(self, write: WriteMessage) -> None:
        self._write = write

    async def send(
        self,
        request: ModelRequest,
        send: SendChat,
        goal: ChatGoal = "server",
        answered_with: Mapping[str, JsonValue] | None = None,
        *,
        demands: Collection[Demand] = (),
    ) -> UpstreamReply:
        """Send a request, and wait for status and headers of its reply.

        :param request: in one of the dialects ``BRIDGED``; its model is already the upstream's
        :param goal: who answers
        :param answered_with: members of a response that the request does not have any more
        :param demands: what the upstream wants of each answer in the request
        :raises InvalidRequest: chat completions cannot say what it asks for
        :raises UpstreamError: there was no answer, or none in chat completions
        """
        writer: ReplyWriter
        asking: RequestBridge
        if request.dialect.name == "responses":
            asking, writer = ResponsesRequestBridge(), ResponsesReplyWriter(request, int(time.time()), answered_with)
        else:
            asking, writer = MessagesRequestBridge(), MessagesReplyWriter(request)
        left_out = asking.left_out(request)
        reply = await send(chat_body(request, asking, self._write, goal, demands=demands))
        is_stream = any(name == b"content-type" and b"event-stream" in value for name, value in reply.headers)
        if request.stream and reply.status < 400:
            return BridgedStream(reply, writer, is_stream=is_stream, left_out=left_out)
        return await _whole(reply, writer, is_stream=is_stream, left_out=left_out)


class BridgedStream:
    """``UpstreamReply`` that writes each event as soon as the upstream's own piece is there.

    :param left_out: members of the request that could not be said
    """

    def __init__(
        self, reply: UpstreamReply, writer: ReplyWriter, *, is_stream: bool, left_out: Sequence[str] = ()
    ) -> None:
        self.left_out = left_out
        self.status = reply.status
        self.headers: Headers = [EVENT_STREAM, *_carried(reply.headers)]
        self._reply = reply
        self._writer = writer
        self._is_stream = is_stream

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the events; the last ones only if the upstream said why its answer ended."""
        if not self._is_stream:
            yield self._all_events(b"".join([data async for data in self._reply.body()]))
            return
        reader, writer, began = ChatReplyReader(), self._writer, False
        async for data in _with_last_line(self._reply.body()):
            pieces = list(reader.read_stream(data))
            ready = pieces if began else list(takewhile(lambda piece: isinstance(piece, CommentPiece), pieces))
            events = _events(writer, ready)
            if not began and len(ready) < len(pieces):
                began = True
                events += b"".join(writer.begin()) + _events(writer, pieces[len(ready) :])
            if events:
                yield events
            if any(isinstance(piece, FailurePiece) for piece in pieces):
                return  # nothing follows an error: a client would take the answer for a whole one
        if writer.finished:
            yield b"".join(writer.end())

    def _all_events(self, whole: bytes) -> bytes:
        """Return all events of a reply that is no stream, although one was asked for.

        :raises UpstreamBroken: it is no chat completion
        """
        writer = self._writer
        pieces = list(ChatReplyReader().read_whole(whole))
        _check_completion(pieces)
        events = b"".join(writer.begin()) + _events(writer, pieces)
        return events + (b"".join(writer.end()) if writer.finished else b"")

    async def close(self) -> None:
        await self._reply.close()


class ReadReply:
    """``UpstreamReply`` whose body is there.

    :param data: the body
    :param left_out: members of the request that could not be said
    """

    def __init__(self, status: int, headers: Headers, data: bytes, left_out: Sequence[str] = ()) -> None:
        self.left_out = left_out
        self.status = status
        self.headers = headers
        self.data = data

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body in one piece."""
        yield self.data

    async def close(self) -> None:
        """Do nothing: no connection is open."""


async def _whole(
    reply: UpstreamReply, writer: ReplyWriter, *, is_stream: bool, left_out: Sequence[str]
) -> UpstreamReply:
    """Read a reply to its end, and write it as one body."""
    try:
        data = b"".join([piece async for piece in reply.body()])
    finally:
        await reply.close()
    headers: Headers = [JSON_CONTENT, *_carried(reply.headers)]
    if reply.status >= 400:
        return ReadReply(reply.status, headers, writer.refusal(reply.status, data))
    reader = ChatReplyReader()
    pieces = list(reader.read_stream(data + b"\n") if is_stream else reader.read_whole(data))
    _check_completion(pieces)
    for piece in pieces:
        for _ in writer.add(piece):
            pass
    if is_stream and not writer.finished:
        raise UpstreamBroken("The upstream's answer broke off before its end.")
    return ReadReply(reply.status, headers, writer.whole(), left_out)


async def _with_last_line(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a body, and the end of its last line, which some servers leave out."""
    async for data in body:
        yield data
    yield b"\n"


def _check_completion(pieces: Sequence[Piece]) -> None:
    """Refuse a reply that is an error, or no chat completion.

    :raises UpstreamBroken: it is one of these
    """
    failure = next((piece.message for piece in pieces if isinstance(piece, FailurePiece)), None)
    if failure is not None or not pieces:
        reason = failure or "the answer is no chat completion"
        raise UpstreamBroken(f"The upstream did not answer in chat completions: {reason[:MAX_MESSAGE_CHARACTERS]}.")


def _events(writer: ReplyWriter, pieces: Sequence[Piece]) -> bytes:
    """Return the events of pieces, up to an error; comments stay comments, since nobody's patience shall end."""
    events: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, FailurePiece):
            return b"".join([*events, writer.failure(piece.message)])
        if isinstance(piece, CommentPiece):
            events.append(piece.line + b"\n\n")
        else:
            events += writer.add(piece)
    return b"".join(events)


def _carried(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers that hold for the reply as it is written here."""
    return [line for line in headers if line[0] not in _REPLACED]
