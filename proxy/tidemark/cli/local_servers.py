"""Finds model servers that answer on this machine: Ollama, llama.cpp, vLLM and LM Studio, on their usual ports.

``tidemark init`` uses it. A server is known by what it answers; the port only says where to ask.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

from tidemark.core.frozen import frozen

HOST = "127.0.0.1"
USUAL_PORTS: tuple[int, ...] = (11434, 8080, 8000, 1234)
"""Of Ollama, llama.cpp, vLLM and LM Studio."""
PROBE_SECONDS = 2.0
"""The longest probe of all ports together, however slowly a server answers."""
MOST_MODELS = 50
"""Models of one server that are taken over."""
_MAX_BYTES = 4_194_304
_NAMES = {"llamacpp": "llama.cpp", "vllm": "vLLM", "library": "Ollama", "organization_owner": "LM Studio"}
"""Servers by the owner that they name for their models."""
_OLLAMA = "Ollama"
_SOME_SERVER = "a local server"


@frozen
class LocalServer:
    """A server that lists models as OpenAI does."""

    name: str
    base_url: str
    models: tuple[str, ...]


def local_servers(ports: Sequence[int] = USUAL_PORTS, seconds: float = PROBE_SECONDS) -> list[LocalServer]:
    """Return the servers that answer, in the order of the ports.

    :param seconds: the longest time for all of them
    """
    until = time.monotonic() + seconds
    probes = [_Probe(port, seconds) for port in ports]
    for probe in probes:
        probe.thread.join(max(0.0, until - time.monotonic()))
    for probe in probes:
        probe.give_up()
    return [probe.server for probe in probes if probe.server is not None]


class _Probe:
    """Asks one port in a thread of its own. Mutable: the server that it has found."""

    def __init__(self, port: int, seconds: float) -> None:
        self.server: LocalServer | None = None
        self._base_url = f"http://{HOST}:{port}"
        # It ignores the environment's proxies. Its time is that of one read, so a server may drip for longer.
        self._connection = HTTPConnection(HOST, port, timeout=seconds)
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def give_up(self) -> None:
        """End the conversation with a server that has not answered whole."""
        with contextlib.suppress(OSError, AttributeError):  # there is no socket, or none any more
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> None:
        try:
            self.server = self._find()
        except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError):
            self.server = None  # nobody answers there, or something else does
        finally:
            self._connection.close()

    def _find(self) -> LocalServer | None:
        listed = self._json("/v1/models")
        if listed["object"] != "list":
            return None
        models = [model for model in listed["data"] if model["object"] == "model"]
        names = dict.fromkeys(name for model in models if isinstance(name := model["id"], str) and name.strip())
        if not names:
            return None
        owners = {str(model.get("owned_by", "")) for model in models}
        product = next((product for owner, product in _NAMES.items() if owner in owners), "") or self._product()
        return LocalServer(product, f"{self._base_url}/v1", tuple(names)[:MOST_MODELS])

    def _product(self) -> str:
        """Name a server whose models have owners of their own: an Ollama tells its version."""
        with contextlib.suppress(OSError, HTTPException, ValueError, KeyError, TypeError):
            if isinstance(self._json("/api/version")["version"], str):
                return _OLLAMA
        return _SOME_SERVER

    def _json(self, path: str) -> Any:
        """Return what the server answers; raises ``ValueError`` and others if that is no success, or no JSON."""
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        body = response.read(_MAX_BYTES)
        if response.status != HTTPStatus.OK:
            raise ValueError(response.status)
        return json.loads(body)
