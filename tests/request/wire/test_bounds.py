"""What is stored is bounded: whoever makes up a key imports little, and what is full says so and is still served."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.request.conftest import SECRET, WINDOW, Bench, Client
from tests.request.talk import user
from tests.support.scripted import error
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.store.embedded.server import EmbeddedValkey

TOKEN = "the operator's token"
MEGABYTE = 1_048_576
Start = Callable[..., httpx.Client]


@pytest.fixture
def start(bench: Bench, store_url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a Tidemark with an operator and other bounds."""
    with ExitStack() as stack:

        def started(store: str = store_url, more: str = "store: {max_tenant_mb: 1}") -> httpx.Client:
            path = tmp_path / "bounded.yaml"
            text = WINDOW.format(base=f"{bench.upstream_url}/v1", window=2000, strategy="extractive", more="")
            path.write_text(f"{text}\n{more}\n")
            settings = load(path, {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_ADMIN_TOKEN": TOKEN})
            app = create_app(settings, store_url=store, secret=SECRET, warn=lambda _: None)
            return stack.enter_context(
                httpx.Client(base_url=stack.enter_context(Serving(app)).url, timeout=60, verify=NO_TLS)
            )

        yield started


def talk(size: int) -> bytes:
    """A conversation of so many bytes, as lines; compression takes a quarter of it away."""
    said = [
        {"role": "user", "content": f"{uuid.uuid4()} {secrets.token_urlsafe(size * 3 // 4)}"},
        {"role": "assistant", "content": "Yes."},
    ]
    return b"".join(json.dumps(one).encode() + b"\n" for one in said)


def import_of(client: Client, size: int) -> httpx.Response:
    """The answer to an import."""
    path = "/tidemark/conversations/import?model=small"
    return client.http.post(path, content=talk(size), headers=client.headers())


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal."""
    return answer.status_code, answer.json()["error"]["code"]


def test_a_made_up_key_imports_a_megabyte_in_all(client: Client) -> None:
    """No upstream knows it; one answer of an upstream, and it may import more. Words name the mend."""
    assert import_of(client, MEGABYTE // 2).status_code == 201
    refused = import_of(client, MEGABYTE // 2 + 1000)
    assert code(refused) == (429, "import_limit_exceeded")
    assert "Send a chat request with this credential first" in refused.json()["error"]["message"]
    assert import_of(client, MEGABYTE // 3).status_code == 201
    assert client.chat([user("Hello")]).status_code == 200
    assert import_of(client, 2 * MEGABYTE).status_code == 201


def test_an_import_that_failed_is_not_counted(client: Client) -> None:
    """Lines that are no conversation use up nothing."""
    path = "/tidemark/conversations/import?model=small"
    for _ in range(3):
        wrong = client.http.post(path, content=b"x" * (MEGABYTE // 2), headers=client.headers())
        assert code(wrong) == (400, "invalid_import")
    assert import_of(client, MEGABYTE // 2).status_code == 201


def test_a_key_that_the_upstream_refuses_stays_unknown(bench: Bench, client: Client) -> None:
    """Its 401 is no answer that accepts."""
    bench.upstream.script = lambda _: error(401, "invalid_api_key")
    assert client.chat([user("Hello")]).status_code == 401
    assert code(import_of(client, MEGABYTE + 1000)) == (429, "import_limit_exceeded")


def test_the_operator_imports_any(start: Start) -> None:
    """By the admin token; whoever else sends it beside another key as well."""
    operator = Client(start(more=""), TOKEN)
    assert import_of(operator, 2 * MEGABYTE).status_code == 201


def test_a_full_tenant_is_served_and_told(start: Start, request: pytest.FixtureRequest) -> None:
    """Nothing more is stored: the headers say so, imports and stored history are 507, and others go on."""
    client = Client(start(), request.node.nodeid)
    other = Client(client.http, f"another than {request.node.nodeid}")
    assert "x-tidemark-warning" not in client.chat([user("Hello")]).headers
    while (answer := import_of(client, MEGABYTE // 4)).status_code == 201:
        pass
    assert code(answer) == (507, "store_full")
    assert "store.max_tenant_mb" in answer.json()["error"]["message"]
    for _ in range(3000):  # an import is refused before it is at the bound, a turn at it
        full = client.chat([user(f"{uuid.uuid4()} {'word ' * 200}")])
        assert full.status_code == 200
        if "store.max_tenant_mb" in full.headers.get("x-tidemark-warning", ""):
            break
    else:
        pytest.fail("the bound was never reached")
    assert full.headers["x-tidemark-store"] == "degraded"
    stored = client.chat([user("Hello")], conversation="name", history="stored")
    assert code(stored) == (507, "store_full")
    assert "x-tidemark-warning" not in other.chat([user("Hello")]).headers


def test_a_full_store_refuses_imports(start: Start, tmp_path: Path) -> None:
    """``store.max_mb``: 507 with the mend, and conversations can be forgotten."""
    with EmbeddedValkey(tmp_path / "v", options=("--maxmemory", "8mb", "--maxmemory-policy", "noeviction")) as server:
        client = Client(start(server.url, "store: {max_tenant_mb: null}"), "filling")
        assert client.chat([user("Hello")]).status_code == 200
        made = []
        while (answer := import_of(client, MEGABYTE)).status_code == 201:
            made.append(answer.json()["id"])
        assert code(answer) == (507, "store_full")
        assert "store.max_mb" in answer.json()["error"]["message"]
        assert made
        assert client.chat([user("Hello again")]).status_code == 200
        for id_ in made:
            gone = client.http.delete(f"/tidemark/conversations/{id_}", headers=client.headers())
            assert gone.status_code == 200
        assert import_of(client, MEGABYTE).status_code == 201
