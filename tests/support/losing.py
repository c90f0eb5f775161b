"""A way to a server on which a reply is lost: the command was done, and whoever sent it does not hear so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.waiting import settled


class Losing:
    """Stands between a client and the server behind a Unix socket.

    :param folder: where its own socket is made; short, as the paths of sockets are
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url = f"unix://{folder}/lossy"
        self.armed = False
        """Set it, and the reply to the next command is lost together with its connection."""
        self._behind = url.removeprefix("unix://")

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Losing]:
        """Stand there while the block runs."""
        server = await asyncio.start_unix_server(self._serve, self.url.removeprefix("unix://"))
        try:
            yield self
        finally:
            server.close()
            await settled()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asked = await asyncio.open_unix_connection(self._behind)
        cut = asyncio.Event()

        async def forth() -> None:
            while piece := await reader.read(65_536):
                if self.armed:
                    self.armed = False
                    cut.set()
                asked.write(piece)
            asked.close()

        async def back() -> None:
            while piece := await answers.read(65_536):
                if cut.is_set():
                    writer.transport.abort()
                    break
                writer.write(piece)

        await asyncio.gather(forth(), back(), return_exceptions=True)
        writer.close()
        asked.close()
