"""Web pages and a Tidemark of this machine: a foreign one is refused everywhere, an allowed one reads answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from tests.request.conftest import SECRET, Bench
from tests.support.scripted import Answer, Received, says
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load

EVIL = "https://evil.example"
APP = "https://chat.example.com"
KEYED = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}/v1", api_key: sk-the-operators}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
"""
CHAT = {"model": "small", "messages": [{"role": "user", "content": "Hello"}]}
KEY = {"authorization": "Bearer sk-the-clients-own"}
Start = Callable[..., httpx.Client]


@pytest.fixture
def start(bench: Bench, store_url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a Tidemark whose upstream's key is configured, and gives a client without one."""
    with ExitStack() as stack:

        def started(*, host: str = "127.0.0.1", warn: Callable[[str], None] = lambda _: None, more: str = "") -> Any:
            path = tmp_path / "keyed.yaml"
            path.write_text(KEYED.format(base=bench.upstream_url) + more)
            settings = load(path, {"TIDEMARK_DATA_DIR": str(tmp_path)}).listening(host=host)
            app = create_app(settings, store_url=store_url, secret=SECRET, warn=warn)
            served = stack.enter_context(Serving(app))  # on 127.0.0.1, whatever the settings say
            client = stack.enter_context(httpx.Client(base_url=served.url, timeout=30, verify=NO_TLS))
            client.app = app  # type: ignore[attr-defined]
            return client

        yield started


def every_endpoint(client: Any) -> Iterator[tuple[str, str]]:
    """Method and path of all that the application serves, and of what it does not."""
    for route in client.app.routes:
        assert isinstance(route, Route)
        path = route.path.replace("{id}", "some").replace("{model:path}", "some")
        yield from ((method, path) for method in route.methods or ())
    yield from [("GET", "/nowhere"), ("OPTIONS", "/v1/chat/completions"), ("OPTIONS", "*")]


@pytest.mark.parametrize(
    ("headers", "mend"),
    [
        ({"origin": EVIL}, EVIL),
        ({"origin": EVIL, "sec-fetch-site": "cross-site", "content-type": "text/plain"}, EVIL),
        ({"origin": "null"}, "null"),
        ({"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}, "http://localhost:3000"),
        ({"sec-fetch-site": "cross-site"}, "server.allowed_origins"),
        ({"sec-fetch-site": "same-site"}, "server.allowed_origins"),
        ({"host": "evil.example"}, "evil.example"),
        ({"host": "evil.example:8787", "origin": "http://evil.example:8787"}, "evil.example:8787"),
        ({"host": "evil.example:8787", "x-api-key": "made up"}, "server.allowed_hosts"),
        ({"host": "evil.example:8787", **KEY}, "evil.example:8787"),
        ({"host": "evil.example", "sec-fetch-site": "same-origin", "x-api-key": "made up"}, "server.allowed_hosts"),
        ({"host": "10.1.2.3:8787", "x-api-key": "made up"}, "server.allowed_hosts"),
        ({"host": "", "x-api-key": "made up"}, "server.allowed_hosts"),
        ({"host": "localhost.evil.example"}, "127.0.0.1"),
        ({"host": "docker.internal.evil.example"}, "127.0.0.1"),
        ({"host": "evil.example", "origin": "http://evil.example", **KEY}, "server.allowed_origins"),
        ({"origin": EVIL, "cookie": "session=1", "authorization": "Basic YTpi"}, EVIL),
        ({"origin": EVIL, "x-forwarded-user": "alice", "cf-access-jwt-assertion": "t"}, EVIL),
    ],
)
def test_every_endpoint_refuses_a_foreign_page(start: Start, bench: Bench, headers: dict[str, str], mend: str) -> None:
    """403 in OpenAI's envelope, whose words name the mend; nothing is sent upstream, and no page may read it."""
    client = start()
    asked = 0
    for method, path in every_endpoint(client):
        answer = client.request(method, path, headers=headers, json=CHAT if method == "POST" else None)
        assert answer.status_code == 403, (method, path)
        assert "access-control-allow-origin" not in answer.headers
        if method != "HEAD":
            error = answer.json()["error"]
            assert error["code"] == "foreign_origin"
            assert mend in error["message"]
            assert "server.allowed_origins" in error["message"]
        asked += 1
    assert asked > 20
    assert not bench.upstream.received


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost"},
        {"host": "LOCALHOST:8787"},
        {"host": "[::1]:8787"},
        {"host": "127.0.0.2"},
        {"host": "tidemark.localhost:8787"},
        {"host": "localhost:8787", "origin": "http://localhost:8787", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"origin": EVIL, "sec-fetch-site": "cross-site", **KEY},
        {"origin": EVIL, "x-api-key": "sk-the-clients-own"},
        {"host": "host.docker.internal:8787"},
        {"host": "host.containers.internal"},
        {"host": "GATEWAY.example.com", **KEY},
    ],
)
def test_a_client_of_this_machine_or_with_a_key_of_its_own_is_served(start: Start, headers: dict[str, str]) -> None:
    """A key must have been given to a page; containers have a name for their host, and the operator allows others."""
    client = start(more="server: {allowed_hosts: [gateway.example.com]}\n")
    for _ in range(2):
        assert client.post("/v1/chat/completions", json=CHAT, headers=headers).status_code == 200
        assert client.get("/metrics", headers=headers).status_code == 200


def test_a_port_that_others_reach_has_names_of_its_own(start: Start) -> None:
    """Whoever opens it to other machines puts something in front that checks who asks (docs/operations.md)."""
    client = start(host="0.0.0.0")  # noqa: S104 - the setting only
    for headers in ({"host": "tidemark.example.com"}, {"origin": EVIL, "sec-fetch-site": "cross-site"}):
        answer = client.post("/v1/chat/completions", json=CHAT, headers=headers)
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers


def test_a_page_under_a_name_of_its_own_reads_nothing_of_the_operators_account(start: Start, bench: Bench) -> None:
    """DNS rebinding: its GET has no ``Origin``, and the key that it makes up would become the configured one."""
    client = start()
    rebound = {"host": "evil.example:8787", "x-api-key": "made up"}
    for path in ("/v1/files", "/v1/files/file-1/content", "/v1/responses/resp_1", "/v1/batches", "/v1/models"):
        assert client.get(path, headers=rebound).status_code == 403, path
    for path in ("/metrics", "/tidemark/models", "/tidemark/conversations", "/tidemark/events"):
        assert client.get(path, headers=rebound).status_code == 403, path
    assert not bench.upstream.received


def test_a_port_that_others_reach_serves_the_named_hosts_alone_where_any_are_named(start: Start) -> None:
    """The service's name among containers; a health check asks by an address, and pages are the gateway's to refuse."""
    client = start(host="0.0.0.0", more="server: {allowed_hosts: [Tidemark]}\n")  # noqa: S104 - the setting only
    for host in ("tidemark:8787", "localhost", "127.0.0.1:8787", "10.1.2.3:8787", "[fd00::1]:8787"):
        assert client.get("/metrics", headers={"host": host}).status_code == 200, host
        assert client.get("/metrics", headers={"host": host, "origin": EVIL}).status_code == 200, host
    for headers in ({}, KEY, {"origin": EVIL}):
        answer = client.get("/metrics", headers={"host": "evil.example", **headers})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")
        assert "server.allowed_hosts" in answer.json()["error"]["message"]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 - the setting only
def test_an_allowed_page_asks_and_reads(start: Start, bench: Bench, host: str) -> None:
    """CORS: what it may send, and whole answers with all their headers, streams and errors as well; on any bind."""
    client = start(host=host, more=f"server: {{allowed_origins: ['{APP.upper()}:443/', 'app://obsidian.md']}}\n")
    for origin in (APP, "app://obsidian.md"):
        page = {"origin": origin, "sec-fetch-site": "cross-site"}
        asking = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-any"}
        preflight = client.options("/v1/chat/completions", headers={**page, **asking})
        assert (preflight.status_code, preflight.content) == (204, b"")
        assert "content-length" not in preflight.headers
        assert preflight.headers["access-control-allow-origin"] == origin
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert preflight.headers["access-control-allow-headers"] == "authorization,x-any"
        assert "access-control-allow-private-network" not in preflight.headers
        assert "access-control-allow-credentials" not in preflight.headers
        near = client.options("/metrics", headers={**page, **asking, "access-control-request-private-network": "true"})
        assert near.headers["access-control-allow-private-network"] == "true"
        for body in (CHAT, {**CHAT, "stream": True}, {}):
            answer = client.post("/v1/chat/completions", json=body, headers=page)
            assert answer.status_code == (200 if body else 400)
            assert answer.headers.get_list("access-control-allow-origin") == [origin]
            assert "Origin" in answer.headers.get_list("vary")
            shown = answer.headers["access-control-expose-headers"].split(", ")
            assert "content-type" in shown
            assert {name for name in answer.headers if name.startswith("x-tidemark-")} <= set(shown)
        assert client.get("/nowhere", headers=page).headers["access-control-allow-origin"] == origin
        assert client.post("/v1/chat/completions", json=CHAT, headers={**page, "host": "chat.example.com"}).is_success
    assert len(bench.upstream.received) == 6


def test_an_upstreams_own_word_to_browsers_gives_way(start: Start, bench: Bench) -> None:
    """Two of them, and a browser takes neither."""
    own = [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", b"x-nothing")]

    def answer(request: Received) -> Answer:
        said = says("Hi.")(request)
        return replace(said, headers=[*said.headers, *own])

    bench.upstream.script = answer
    client = start(more=f"server: {{allowed_origins: ['{APP}']}}\n")
    got = client.post("/v1/chat/completions", json=CHAT, headers={"origin": APP})
    assert got.headers.get_list("access-control-allow-origin") == [APP]
    assert len(got.headers.get_list("access-control-expose-headers")) == 1


@pytest.mark.parametrize(("method", "path"), [("OPTIONS", "/v1/embeddings"), ("POST", "/v1/chat/completions")])
def test_an_upstream_allows_no_page_to_read_answers(start: Start, bench: Bench, method: str, path: str) -> None:
    """llama.cpp allows every page; on a port that others reach, only ``server.allowed_origins`` says who may."""
    own = [(b"access-control-allow-origin", EVIL.encode()), (b"access-control-allow-credentials", b"true")]

    def answer(request: Received) -> Answer:
        said = says("Hi.")(request)
        return replace(said, headers=[*said.headers, *own])

    bench.upstream.script = answer
    client = start(host="0.0.0.0")  # noqa: S104 - it listens on 127.0.0.1 all the same
    asked = {"access-control-request-method": "POST"} if method == "OPTIONS" else {}
    got = client.request(method, path, json=CHAT, headers={"origin": EVIL, **asked})
    assert got.status_code == 200
    assert not [name for name in got.headers if name.startswith("access-control-")]


def test_the_name_of_an_allowed_page_is_one_of_this_machines(start: Start) -> None:
    """Behind a gateway on this machine, which hands ``Host`` on: the page's own requests tell no other origin."""
    client = start(more=f"server: {{allowed_origins: ['{APP}']}}\n")
    assert client.get("/metrics", headers={"host": "chat.example.com"}).status_code == 200
    assert client.get("/metrics", headers={"host": "other.example.com"}).status_code == 403
    assert client.get("/metrics", headers={"host": "chat.example.com", "origin": EVIL}).status_code == 403


def test_a_refused_origin_is_warned_of_once(start: Start) -> None:
    """A browser hides the answer that names the setting, so the log does; and no page can fill it."""
    warnings: list[str] = []
    client = start(warn=warnings.append)
    for number in range(100):
        for _ in range(2):
            client.get("/metrics", headers={"origin": f"https://{number}.example"})
    assert len(warnings) == len(set(warnings)) <= 32
    assert "https://0.example" in warnings[0]
    assert "server.allowed_origins" in warnings[0]


def test_every_path_tells_its_methods_and_answers_head_where_it_answers_get(start: Start) -> None:
    """Whatever is wired: ``OPTIONS`` lists the methods of the path, with ``HEAD`` beside ``GET``."""
    client = start()
    served: dict[str, set[str]] = {}
    for method, path in every_endpoint(client):
        if path.startswith("/") and path != "/nowhere":
            served.setdefault(path, {"OPTIONS"}).add(method)
    assert len(served) > 20
    for path, methods in served.items():
        got = client.options(path)
        assert got.status_code == 204, path
        assert methods <= set(got.headers["allow"].split(", ")), path
        assert "HEAD" in methods or "GET" not in methods, path
