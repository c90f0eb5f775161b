"""The clients' connections: uvicorn's server and protocol, with bounds on what a client may use.

First on the path of a request: bytes come in here and go to the ASGI application. ``reading`` parses requests and
``heads`` checks their heads; ``connection`` bounds them in time; ``exchange`` writes answers; ``bounds`` and ``load``
limit what all clients use together; ``accepting`` and ``server`` accept connections; ``workers`` and ``running``
start processes.

The package stands in for uvicorn's protocol over httptools, of which it replaces private parts. It saves nothing in
all: a small request takes 1.06 million instructions with it and 1.09 million without. Writing an answer at once
(``exchange``) saves 4 %, and the bounds cost most of that. It stays for the bounds, which
``tests/server/connections`` holds. ``transport.server: library`` uses uvicorn's own code instead
(``docs/adr/0014-the-clients-connections.md``).
"""

from __future__ import annotations

from proxy.server.connections.bounds import Bounds, allowed_connections, raise_descriptor_limit
from proxy.server.connections.connection import ClientConnection
from proxy.server.connections.running import run
from proxy.server.connections.server import Server, ServingConfig

__all__ = [
    "Bounds",
    "ClientConnection",
    "Server",
    "ServingConfig",
    "allowed_connections",
    "raise_descriptor_limit",
    "run",
]
