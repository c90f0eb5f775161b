"""The clients' connections: uvicorn's server and protocol, with bounds on what a client may use.

A request comes here first: its bytes come in and go to the ASGI application. ``request_reader`` parses requests and
``heads`` checks their heads; ``connection`` bounds them in time; ``exchange`` writes answers; ``bounds`` and ``load``
limit what all clients use together; ``server`` accepts connections, over TLS by ``tls``; ``running`` starts processes.

The package stands in for uvicorn's protocol over httptools, and replaces private parts of it. It saves little: 21,000
of the 1,084,000 instructions that a small request takes with uvicorn's, 2 %. One write for each answer (``exchange``)
saves 3.3 %, and the bounds cost 1.4 %. It stays for its bounds, which ``tests/server/connections`` tests.
``transport.server: library`` uses uvicorn's own code instead (``docs/adr/0014-the-clients-connections.md``).
"""

from __future__ import annotations

from tidemark.server.connections.bounds import Bounds, allowed_connections, raise_descriptor_limit
from tidemark.server.connections.connection import ClientConnection
from tidemark.server.connections.running import run
from tidemark.server.connections.server import Server, ServingConfig
from tidemark.server.connections.tls import Certificates, TlsFiles
