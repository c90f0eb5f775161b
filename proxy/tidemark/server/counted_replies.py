"""Counts the tokens of carried requests, whose answers nobody reads: by the counts that stand in their bytes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from tidemark.core.ports import Upload, UpstreamReply
from tidemark.server.quotas import CHARACTERS_A_TOKEN, Permission

_TOTAL = re.compile(rb'"total_tokens"\s*:\s*(\d{1,15})')
_LONGEST = 64
"""Bytes of one piece that are looked at again with the next one."""


class CountedReply:
    """An ``UpstreamReply`` that notes what it took: the largest count in it, else by the lengths of both bodies.

    :param request_bytes: those of the request that may be text
    """

    def __init__(self, reply: UpstreamReply, permission: Permission, request_bytes: int) -> None:
        self.status, self.headers = reply.status, reply.headers
        self._reply = reply
        self._permission = permission
        self._request_bytes = request_bytes

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the answer's pieces as they come."""
        counted, size, rest = 0, 0, b""
        async for piece in self._reply.body():
            size += len(piece)
            text = rest + piece
            counted = max([counted, *(int(total) for total in _TOTAL.findall(text))])
            rest = text[-_LONGEST:]
            # Noted with each piece: a client may leave before the last one.
            self._permission.tokens = counted or (self._request_bytes + size) // CHARACTERS_A_TOKEN
            yield piece

    async def close(self) -> None:
        await self._reply.close()


def sent_bytes(body: bytes | Upload) -> int:
    """Return the bytes of a request that may be text: forms mostly have files."""
    return len(body) if isinstance(body, bytes) and not body.startswith(b"--") else 0
