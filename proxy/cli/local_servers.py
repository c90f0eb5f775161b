"""Finds model servers that answer on this machine: Ollama, llama.cpp, vLLM and LM Studio, on their usual ports.

``tidemark init`` uses it. A server is known by what it answers; the port only says where to ask.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

HOST = "127.0.0.1"
USUAL_PORTS: tuple[int, ...] = (11434, 8080, 8000, 1234)
"""Of Ollama, llama.cpp, vLLM and LM Studio."""
PROBE_SECONDS = 1.0
MOST_MODELS = 50
"""Models of one server that are taken over."""
_MAX_BYTES = 4_194_304
_NAMES = {"llamacpp": "llama.cpp", "vllm": "vLLM", "library": "Ollama", "organization_owner": "LM Studio"}
"""Servers by the owner that they name for their models."""
_SOME_SERVER = "a local server"


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that lists models as OpenAI does."""

    name: str
    base_url: str
    models: tuple[str, ...]


def local_servers(ports: Sequence[int] = USUAL_PORTS) -> list[LocalServer]:
    """Return the servers that answer, in the order of the ports."""
    with ThreadPoolExecutor(len(ports) or 1) as threads:
        return [server for server in threads.map(_probe, ports) if server is not None]


def _probe(port: int) -> LocalServer | None:
    """Ask for the list of models; None where nobody answers, or something else does."""
    connection = HTTPConnection(HOST, port, timeout=PROBE_SECONDS)  # it ignores the environment's proxies
    try:
        connection.request("GET", "/v1/models")
        response = connection.getresponse()
        body = response.read(_MAX_BYTES)
        if response.status != HTTPStatus.OK:
            return None
        models = [model for model in json.loads(body)["data"] if isinstance(model["id"], str) and model["id"].strip()]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()
    owners = {str(model.get("owned_by", "")) for model in models}
    name = next((product for owner, product in _NAMES.items() if owner in owners), _SOME_SERVER)
    names = dict.fromkeys(model["id"] for model in models)
    return LocalServer(name, f"http://{HOST}:{port}/v1", tuple(names)[:MOST_MODELS])
