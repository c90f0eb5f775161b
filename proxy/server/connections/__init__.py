"""The clients' connections: uvicorn's server and protocol, with bounds on what a client may take.

``docs/adr/0014-the-clients-connections.md`` says why this code exists. ``reading`` parses requests, whose first parts
``heads`` judges; ``connection`` bounds them in time; ``exchange`` writes answers; ``bounds`` and ``load`` limit what
all clients take together; ``accepting`` and ``server`` take connections; ``workers`` starts several processes.
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
