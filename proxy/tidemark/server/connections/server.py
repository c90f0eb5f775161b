"""uvicorn's server, with connections from ``accepting`` and bounds over all of them."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import uvicorn

from tidemark.server.connections.accepting import Acceptor
from tidemark.server.connections.bounds import Bounds
from tidemark.server.connections.connection import ClientConnection
from tidemark.server.connections.load import Load


class ServingConfig(uvicorn.Config):
    """uvicorn's configuration and the bounds of a worker. Both are sent to worker processes."""

    def __init__(self, app: Any, *, bounds: Bounds, **options: Any) -> None:
        super().__init__(app, http=ClientConnection, **options)
        self.bounds = bounds


class Server(uvicorn.Server):
    """The server of one worker."""

    def __init__(self, config: ServingConfig) -> None:
        super().__init__(config)
        self.load = Load(config.bounds)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn: start the application, then listen."""
        await super().startup(sockets=[])
        make = partial(
            ClientConnection,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            load=self.load,
        )
        for listener in sockets or ():
            listener.listen(self.config.backlog)  # a parent without workers lets it refuse
            acceptor = Acceptor(listener, make, self.load)
            self.servers.append(acceptor)  # type: ignore[arg-type] # has what uvicorn asks of a server
            acceptor.resume()
