"""Runs the server until a signal comes: in this process, or in several that share the listening sockets.

The command calls it after the application is configured. With ``transport.server: library`` uvicorn's own server,
protocol and supervisor take the place of this package, and nothing of ``bounds`` applies.
"""

from __future__ import annotations

import socket
from typing import Any

import uvicorn
from uvicorn.supervisors.multiprocess import Multiprocess

from tidemark.server.connections.bounds import Bounds
from tidemark.server.connections.server import Server, ServingConfig
from tidemark.server.connections.workers import Workers


def run(app: Any, listeners: list[socket.socket], bounds: Bounds | None, *, workers: int = 1, **options: Any) -> None:
    """Serve an application until a signal comes.

    :param app: the application; for several workers a function that makes it, which can be pickled
    :param bounds: what the clients of a worker may take; None uses uvicorn's protocol, which has no such bounds
    :param options: further options of ``uvicorn.Config``
    """
    if bounds is None:
        # Without a WebSocket library a handshake reaches the application, which refuses it by itself.
        library = uvicorn.Config(app, http="httptools", factory=workers > 1, workers=workers, **options)
        if workers > 1:
            Multiprocess(library, sockets=listeners).run()
        else:
            uvicorn.Server(library).run(sockets=listeners)
        return
    config = ServingConfig(app, bounds=bounds, factory=workers > 1, workers=workers, **options)
    if workers > 1:
        Workers(config, sockets=listeners).run()
    else:
        Server(config).run(sockets=listeners)
