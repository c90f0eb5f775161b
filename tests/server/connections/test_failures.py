"""An endpoint that fails: its client gets an error, and knows that the connection ends."""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.server.connections.served import Served
from tidemark.app.application import create_app
from tidemark.config import load


async def fail(_: Request) -> Response:
    """Fail as no endpoint should."""
    raise RuntimeError("an endpoint's own fault")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_next_request_after_a_failure_is_not_reset(tmp_path: Path, method: str) -> None:
    """The server closes the connection and says so, so that a client opens another one."""
    environ = {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_UPSTREAM": "http://127.0.0.1:1/v1"}
    app = create_app(load(None, environ), store_url="redis://127.0.0.1:1", secret=b"s", warn=lambda _: None)
    app.router.routes.insert(0, Route("/failing", fail, methods=["GET", "POST"]))
    with Served(app, lifespan="off") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request(method, "/failing", b"body" if method == "POST" else None)
        answer = connection.getresponse()
        assert answer.status == 500
        assert answer.getheader("connection") == "close"
        assert b"internal_error" in answer.read()
        connection.request("GET", "/health/liveliness")
        assert connection.getresponse().status == 200
        connection.close()
