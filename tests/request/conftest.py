"""Tidemark as its users run it: a real server, a real store, a scripted upstream behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.connections.served import Served
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.core.conversation.request import Dialect
from tidemark.store.codec import Codec
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.upstream.litellm import load as load_litellm
from tidemark.worker.dialects import build_dialects

SECRET = b"a secret of the tests"
WINDOW = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 200, min_tokens: 300{more}}}
"""


@pytest.fixture(scope="session")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Valkey server for all tests of the flow; each test uses credentials of its own."""
    with EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server.url


@pytest.fixture(scope="session", autouse=True)
def litellm() -> None:
    """Imported once and beforehand: pytest's filter of warnings is the whole process's, threads included."""
    load_litellm().result(60)


@dataclass
class Client:
    """A client of one Tidemark, with a credential of its own."""

    http: httpx.Client
    key: str = "key"

    def headers(self, **asked: str) -> dict[str, str]:
        """The request headers; ``summarize="force"`` becomes ``X-Tidemark-Summarize: force``."""
        own = {f"x-tidemark-{name.replace('_', '-')}": value for name, value in asked.items()}
        return {"authorization": f"Bearer {self.key}", "content-type": "application/json", **own}

    def post(self, body: Any, **asked: str) -> httpx.Response:
        """Send a chat request: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post("/v1/chat/completions", content=content, headers=self.headers(**asked))

    def chat(self, messages: list[dict[str, Any]], *, model: str = "small", **asked: str) -> httpx.Response:
        """Send messages, not streamed."""
        return self.post({"model": model, "messages": messages, "max_tokens": 100}, **asked)


@dataclass
class Bench:
    """A scripted upstream and what stands before it."""

    upstream: ScriptedUpstream
    upstream_url: str
    start: Callable[..., str]
    """Starts a Tidemark before the upstream and gives its address; keywords fill the configuration."""
    stack: ExitStack
    servers: list[Serving]
    """Each Tidemark that was started."""
    warnings: list[str]
    """What they warned of."""

    def settle(self) -> None:
        """Wait until no Tidemark does anything any more: nothing is asked, prepared or stored."""
        for server in self.servers:
            server.settle()

    def client(self, key: str, **settings: Any) -> Client:
        """A client of a Tidemark that is started for it."""
        http = self.stack.enter_context(httpx.Client(base_url=self.start(**settings), timeout=30, verify=NO_TLS))
        return Client(http, key)


@contextmanager
def benched(store_url: str, folder: Path) -> Iterator[Bench]:
    """A bench whose configuration lies in ``folder``; everything is stopped at the end."""
    upstream = ScriptedUpstream()
    servers: list[Serving] = []
    warnings: list[str] = []
    with ExitStack() as stack:
        served = stack.enter_context(Serving(upstream))

        def start(
            *,
            window: int = 2000,
            strategy: str = "extractive",
            more: str = "",
            store: str = store_url,
            config: str = "",
            codec: Codec | None = None,
            dialects: Mapping[str, Dialect] | None = None,
            own: bool = False,
            environ: Mapping[str, str] | None = None,
        ) -> str:
            path = folder / "tidemark.yaml"
            text = config or WINDOW
            path.write_text(text.format(base=f"{served.url}/v1", window=window, strategy=strategy, more=more))
            settings = load(path, {"TIDEMARK_DATA_DIR": str(folder), **(environ or {})})
            app = create_app(
                settings,
                store_url=store,
                secret=SECRET,
                warn=warnings.append,
                codec=codec,
                dialects={**build_dialects(), **(dialects or {})},
            )
            if own:  # Tidemark's own transport, which its users have; uvicorn's is quicker to start and to settle
                served_app = Served(app, lifespan="on", server_header=False, date_header=False)
                return f"http://127.0.0.1:{stack.enter_context(served_app).port}"
            server = stack.enter_context(Serving(app))
            servers.append(server)
            return server.url

        yield Bench(upstream, served.url, start, stack, servers, warnings)


@pytest.fixture
def bench(store_url: str, tmp_path: Path) -> Iterator[Bench]:
    """A bench of the test's own."""
    with benched(store_url, tmp_path) as made:
        yield made


@pytest.fixture
def client(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark whose model ``small`` has a window of 2,000 tokens; the test's name is its key."""
    return bench.client(request.node.nodeid)
