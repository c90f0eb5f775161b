"""The console as its visitors meet it: a real server, a real store, a scripted upstream behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from tests.request.conftest import SECRET, WINDOW, Client
from tests.support.fresh_stores import fresh_store
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.console.openid_pages import CALLBACK
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.upstream.litellm import load as load_litellm

TOKEN = "t" * 40
_FORM_TOKEN = re.compile(r'<meta name="csrf" content="([0-9a-f]+)"')


@dataclass
class Console:
    """A Tidemark with a console, and what stands behind it."""

    url: str
    upstream: ScriptedUpstream
    server: Serving
    stack: ExitStack
    token: str
    store: EmbeddedValkey
    app: Starlette

    def visitor(self, *, signed_in: bool = True) -> Visitor:
        """A browser without a screen; it has a cookie jar of its own, and says that the console's pages ask."""
        own = {"sec-fetch-site": "same-origin"}
        http = self.stack.enter_context(httpx.Client(base_url=self.url, headers=own, timeout=30, verify=NO_TLS))
        visitor = Visitor(http)
        if signed_in and self.token:
            assert http.post("/console/login", data={"token": self.token}).status_code == 303
        return visitor

    def client(self, key: str = "key") -> Client:
        """A client of chat completions."""
        return Client(self.stack.enter_context(httpx.Client(base_url=self.url, timeout=30, verify=NO_TLS)), key)

    def settle(self) -> None:
        """Wait until nothing is asked, prepared or stored any more."""
        self.server.settle()


@dataclass
class Visitor:
    """Somebody who looks at pages and sends forms."""

    http: httpx.Client

    def get(self, path: str) -> httpx.Response:
        """Open a page."""
        return self.http.get(path)

    def send(self, path: str, at: str = "/console", **fields: str) -> httpx.Response:
        """Send a form, with the token that a page of this session has.

        :param at: the page that the form stands on
        """
        token = _FORM_TOKEN.search(self.get(at).text)
        return self.http.post(path, data={"csrf": token[1] if token else "", **fields})


def paths(console: Console, method: str, *, tenants: bool = False) -> list[str]:
    """The paths of all pages or forms of an operator's session, those of new families too.

    :param tenants: with those that serve tenants only
    """
    routes = [route for route in console.app.routes if isinstance(route, Route) and "/console" in route.path]
    found = {
        route.path for route in routes if method in (route.methods or ()) and (tenants or "/own/" not in route.path)
    }
    sign_in = {"/console/login", "/console/login/openid", CALLBACK}
    return sorted(found - sign_in - {"/console/static/{name}", "/console/{path:path}", "/console/events"})


@pytest.fixture(scope="session", autouse=True)
def litellm() -> None:
    """Imported once and beforehand: pytest's filter of warnings is the whole process's, threads included."""
    load_litellm().result(60)


@contextmanager
def consoled(
    folder: Path,
    *,
    token: str = TOKEN,
    window: int = 2000,
    strategy: str = "extractive",
    key: str = "",
    config: str = WINDOW,
    auditor: str = "",
    **variables: str,
) -> Iterator[Console]:
    """A console with a store of its own; everything is stopped at the end.

    :param token: the admin token; none where it is empty
    :param key: the configured key of the upstream; none where it is empty
    :param auditor: the auditor's token; none where it is empty
    :param variables: other variables of the environment
    :param config: the configuration, with the places that ``WINDOW`` has
    """
    upstream = ScriptedUpstream()
    with ExitStack() as stack:
        store = stack.enter_context(fresh_store())
        behind = stack.enter_context(Serving(upstream))
        path = folder / "tidemark.yaml"
        text = config.format(base=f"{behind.url}/v1", window=window, strategy=strategy, more="")
        path.write_text(text.replace("api_base:", f"api_key: {key}, api_base:") if key else text)
        environ = {"TIDEMARK_DATA_DIR": str(folder), **({"TIDEMARK_ADMIN_TOKEN": token} if token else {})}
        environ |= {"TIDEMARK_AUDITOR_TOKEN": auditor, **variables}
        app = create_app(load(path, environ), store_url=store.url, secret=SECRET, warn=lambda _: None)
        server = stack.enter_context(Serving(app))
        yield Console(server.url, upstream, server, stack, token, store, app)


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    """A console with an admin token."""
    with consoled(tmp_path) as made:
        yield made


@pytest.fixture
def visitor(console: Console) -> Visitor:
    """The operator."""
    return console.visitor()


@pytest.fixture
def client(console: Console) -> Client:
    """A client of chat completions."""
    return console.client()


@pytest.fixture
def open_console(tmp_path: Path) -> Iterator[Console]:
    """A console without an admin token, on this machine."""
    with consoled(tmp_path, token="") as made:
        yield made


@pytest.fixture
def start_console(tmp_path: Path) -> Iterator[Callable[..., Console]]:
    """Starts consoles with other options."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(consoled(tmp_path, **options))
