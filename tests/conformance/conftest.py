"""Two upstreams that do the same, one of them behind Tidemark, and a client that records all it gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest

from tests.conformance.cases import Case
from tests.conformance.differences import Lines
from tests.request.conftest import benched
from tests.support.scripted import Received, ScriptedUpstream
from tests.support.serving import NO_TLS, Serving
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.upstream.litellm import load as load_litellm

BRIDGED = """
model_list:
  - model_name: scripted
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{dialects: [chat], max_input_tokens: 100000, max_output_tokens: 1000}}
"""
BY_LITELLM = 'upstream: "{base}"\ntransport: {{lane: litellm}}\n'


@dataclass
class Seen:
    """What a client gets."""

    status: int
    headers: Lines
    body: bytes
    broken: bool = False
    """Whether the connection was cut."""

    def header(self, name: str) -> list[str]:
        """All values of a header, in order."""
        return [value for key, value in self.headers if key == name]


@dataclass
class Way:
    """One way to an upstream: straight, or through Tidemark."""

    upstream: ScriptedUpstream
    http: httpx.Client

    def ask(self, case: Case) -> tuple[Seen, Received]:
        """Send a request; return what the client got, and the one request that the upstream got."""
        seen, [received] = self.ask_freely(case)
        return seen, received

    def ask_freely(self, case: Case) -> tuple[Seen, list[Received]]:
        """Send a request; return what the client got, and all requests that the upstream got."""
        self.upstream.script = case.script
        self.http.cookies.clear()
        before = len(self.upstream.received)
        request = self.http.build_request(case.method, case.target, content=case.content, headers=case.sent_headers)
        answer = self.http.send(request, stream=True)
        pieces, broken = [], False
        try:
            for piece in answer.iter_raw():
                pieces.append(piece)  # noqa: PERF402 - a cut must not lose those before it
        except httpx.RemoteProtocolError:
            broken = True
        finally:
            answer.close()
        seen = Seen(answer.status_code, answer.headers.multi_items(), b"".join(pieces), broken)
        return seen, self.upstream.received[before:]


@dataclass
class Ways:
    """The ways that are compared."""

    straight: Way
    through: Way
    bridged: Way
    """Through Tidemark to an upstream that speaks chat completions only."""
    litellm: Way
    """Through Tidemark and litellm."""


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """All ways, for the tests of one module."""
    load_litellm().result(60)
    with ExitStack() as stack:
        store = stack.enter_context(EmbeddedValkey(tmp_path_factory.mktemp("valkey"))).url

        def way(upstream: ScriptedUpstream, url: str) -> Way:
            return Way(upstream, stack.enter_context(httpx.Client(base_url=url, timeout=30, verify=NO_TLS)))

        alone = ScriptedUpstream()
        straight = way(alone, stack.enter_context(Serving(alone)).url)
        front = stack.enter_context(benched(store, tmp_path_factory.mktemp("front")))
        through = way(front.upstream, front.start(own=True, config='upstream: "{base}"\n'))
        bridge = stack.enter_context(benched(store, tmp_path_factory.mktemp("bridge")))
        bridge.upstream.dialects = {"chat"}
        bridged = way(bridge.upstream, bridge.start(own=True, config=BRIDGED))
        switched = stack.enter_context(benched(store, tmp_path_factory.mktemp("switched")))
        yield Ways(straight, through, bridged, way(switched.upstream, switched.start(own=True, config=BY_LITELLM)))
