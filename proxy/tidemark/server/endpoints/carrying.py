"""Sends an upstream's answer to the client as it arrives, for requests that Tidemark does not understand.

It is the last step of ``forwarding.py``. Only errors are read and kept: they are short, and Tidemark's own error
replaces one that has no end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidemark.core.errors import UpstreamError
from tidemark.core.events import Outcome
from tidemark.core.ports import Headers, UpstreamReply
from tidemark.pipeline.plain_replies import codings_of
from tidemark.server.asgi import Response
from tidemark.server.headers import returned_lines
from tidemark.server.request_log import RequestLog

JOINED_BYTES = 65_536
"""A shorter answer of known length is sent at once, with its head. It also fails as a whole."""
FIRST_ERROR = 400
LENGTH = b"content-length"
WITHOUT_BODY = frozenset({204, 304})


async def carry(log: RequestLog, reply: UpstreamReply, *, is_head: bool) -> Outcome:
    """Send an answer.

    :param is_head: the request was ``HEAD``: the answer states a length and has no body
    :return: how the exchange ended
    :raises UpstreamError: it broke off before anything of it was sent
    """
    response, length = log.response, _length_of(reply.headers)
    lines = returned_lines(reply.headers)
    body = reply.body()
    is_short = reply.status >= FIRST_ERROR or (length is not None and length <= JOINED_BYTES)
    if not is_head and is_short and reply.status not in WITHOUT_BODY:
        data = b"".join([piece async for piece in body])
        log.note_first_byte()
        if length is None:  # its end is in its framing, as the upstream's was
            await response.start(reply.status, lines)
            await response.end(data)
        else:
            await response.send_whole(reply.status, lines, data)
        return _outcome_of(reply.status)
    if length is not None and reply.status not in WITHOUT_BODY:
        lines.append((LENGTH, b"%d" % length))
    await response.start(reply.status, lines)
    try:
        await _send_pieces(log, response, body)
    except UpstreamError as error:
        log.note_error(error)
        if length is None and _is_events(lines):
            await response.send_error(error)
        return "incomplete"  # without an end the connection is closed, so the client notices
    await response.end()
    return _outcome_of(reply.status)


async def _send_pieces(log: RequestLog, response: Response, body: AsyncIterator[bytes]) -> None:
    async for piece in body:
        if log.first_byte is None:
            log.note_first_byte()
        await response.send_piece(piece)


def _outcome_of(status: int) -> Outcome:
    return "complete" if status < FIRST_ERROR else "refused"


def _length_of(headers: Headers) -> int | None:
    """Return the length that an answer states; None if it states none, or two."""
    lengths = {value for name, value in headers if name == LENGTH}
    length = lengths.pop() if len(lengths) == 1 else b""
    return int(length) if length.isdigit() else None


def _is_events(lines: Headers) -> bool:
    """Whether an answer is an event stream that an event of ours may end."""
    kinds = [value for name, value in lines if name == b"content-type"]
    return any(kind.startswith(b"text/event-stream") for kind in kinds) and not codings_of(lines)
