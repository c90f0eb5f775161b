"""Beyond ``limits`` a worker answers 503 ``overloaded`` before it reads the body, and serves all that it has taken."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.request.conftest import Bench
from tests.request.talk import user
from tests.server.connections.served import Client as Wire
from tests.support.scripted import Answer, Received, streamed
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until

CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
limits: """
CHAT = "/v1/chat/completions"
BODY = {"model": "small", "messages": [user("Hello.")], "stream": True}
EXAMPLES: dict[str, Any] = {
    CHAT: BODY,
    "/v1/responses": {"model": "small", "input": "Hello.", "stream": True},
    "/v1/messages": BODY | {"max_tokens": 10},
    "/v1/embeddings": {"model": "small", "input": "Hello."},
    "/v1/audio/transcriptions": {"model": "small"},
    "/v1/messages/count_tokens": BODY,
}


class Crowd:
    """Clients whose streams end when they may. Each has a key of its own, ``a`` unless stated."""

    def __init__(self, bench: Bench, url: str, stack: ExitStack) -> None:
        self.url = url
        self.free = threading.Event()
        self.http = stack.enter_context(httpx.Client(base_url=url, timeout=30, verify=NO_TLS))
        self._bench = bench
        self._threads = stack.enter_context(ThreadPoolExecutor(8))
        stack.callback(self.free.set)
        bench.upstream.script = self._answer

    def _answer(self, _: Received) -> Answer:
        return replace(streamed("Hello there."), waits=[self.free])

    def ask(self, path: str = CHAT, key: str = "a") -> httpx.Response:
        """Send a request and wait for its answer."""
        return self.http.post(path, json=EXAMPLES[path], headers={"authorization": f"Bearer {key}"})

    def begin(self, key: str = "a") -> Future[httpx.Response]:
        """Send a request, and return its answer to come."""
        return self._threads.submit(self.ask, CHAT, key)

    def stream(self, number: int) -> list[Future[httpx.Response]]:
        """Begin so many streams, and return when the upstream has them all."""
        before = len(self._bench.upstream.received)
        answers = [self.begin() for _ in range(number)]
        wait_until(lambda: len(self._bench.upstream.received) == before + number)
        return answers

    def metric(self, name: str) -> float:
        """A series' value."""
        page = self.http.get("/metrics").text
        return next((float(line.split()[-1]) for line in page.splitlines() if line.startswith(name)), 0.0)

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        """A connection on which a test sends bytes of its own."""
        address = urlsplit(self.url)
        with socket.create_connection((str(address.hostname), address.port or 0), timeout=30) as wire:
            yield Wire(wire)


@pytest.fixture
def crowd(bench: Bench) -> Iterator[Callable[[str], Crowd]]:
    """Starts a Tidemark with limits, and its clients."""
    with ExitStack() as stack:
        yield lambda limits: Crowd(bench, bench.start(config=CONFIG + f"{{{{{limits}}}}}\n", own=True), stack)


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an error."""
    return answer.status_code, answer.json()["error"]["code"]


def test_one_request_too_many_is_refused_and_the_others_are_whole(crowd: Callable[[str], Crowd]) -> None:
    """The default lets none wait; when a stream has ended, the next one is served."""
    some = crowd("max_streams: 2")
    streams = some.stream(2)
    refused = some.ask()
    assert code(refused) == (503, "overloaded")
    assert 1 <= int(refused.headers["retry-after"]) <= 4
    assert "limits.max_streams" in refused.json()["error"]["message"]
    some.free.set()
    assert all(stream.result().text.endswith("data: [DONE]\n\n") for stream in streams)
    assert some.ask().status_code == 200


def test_every_endpoint_is_refused_in_its_own_shape(crowd: Callable[[str], Crowd]) -> None:
    """OpenAI's envelope or Anthropic's, whatever would have been done with the body."""
    some = crowd("max_streams: 1")
    some.stream(1)
    for path in EXAMPLES:
        refused = some.ask(path)
        assert code(refused) == (503, "overloaded"), path
        assert ("type" in refused.json()) == path.startswith("/v1/messages"), path
    assert some.ask("/v1/messages").json()["error"]["type"] == "overloaded_error"


def test_pages_of_the_operator_are_never_refused(crowd: Callable[[str], Crowd]) -> None:
    """They tell that the worker is full; readiness has 200, because the streams need the worker."""
    some = crowd("max_streams: 1")
    some.stream(1)
    assert code(some.ask()) == (503, "overloaded")
    assert some.http.get("/health/readiness").json() == {"status": "ready", "store": "ok", "load": "full"}
    for path in ("/health/liveliness", "/metrics", "/tidemark/stats", "/v1/models"):
        assert some.http.get(path).status_code == 200, path
    assert some.http.post("/tidemark/count", json=BODY).status_code == 200
    assert some.metric('tidemark_requests_shed_total{reason="streams"}') == 1
    assert some.metric("tidemark_requests_in_flight") == 1
    assert some.http.get("/tidemark/stats").json()["shed"] >= 1
    some.free.set()
    wait_until(lambda: some.metric("tidemark_requests_in_flight") == 0)
    assert "load" not in some.http.get("/health/readiness").json()


def test_a_refusal_comes_before_the_body_and_leaves_the_connection_usable(crowd: Callable[[str], Crowd]) -> None:
    """The body that comes after it is dropped, and no byte of it becomes the next request."""
    some = crowd("max_streams: 1")
    some.stream(1)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"
    with some.wire() as wire:
        for size in (10, 500_000):
            wire.send(head % size)
            status, lines, body = wire.answer()
            assert (status, json.loads(body)["error"]["code"]) == (503, "overloaded")
            assert "connection" not in lines
            wire.send(b"x" * size)
        some.free.set()
        wait_until(lambda: some.metric("tidemark_requests_in_flight") == 0)
        whole = json.dumps(BODY | {"stream": False}).encode()
        wire.send(head % len(whole) + whole)
        assert wire.answer()[0] == 200


def test_a_client_that_sends_on_after_its_refusal_is_disconnected(crowd: Callable[[str], Crowd]) -> None:
    """Nobody reads megabytes for nothing."""
    some = crowd("max_streams: 1")
    some.stream(1)
    with some.wire() as wire:
        wire.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 90000000\r\n\r\n")
        assert wire.answer()[0] == 503
        wire.send(b"x" * 2_000_000)
        assert wire.ended


def test_requests_wait_for_a_place_as_many_as_may(crowd: Callable[[str], Crowd]) -> None:
    """They are served in the end, and one more is refused at once."""
    some = crowd("max_streams: 1, max_waiting: 2")
    answers = some.stream(1)
    answers += [some.begin(), some.begin()]
    wait_until(lambda: some.metric("tidemark_requests_waiting") == 2)
    assert code(some.ask()) == (503, "overloaded")
    assert some.metric('tidemark_requests_shed_total{reason="waiting"}') == 1
    some.free.set()
    assert [answer.result().status_code for answer in answers] == [200, 200, 200]
    wait_until(lambda: some.metric("tidemark_requests_in_flight") == 0)


def test_who_crowds_the_queue_gives_way_to_others(crowd: Callable[[str], Crowd]) -> None:
    """A full queue refuses the newest request of the credential that has the most."""
    some = crowd("max_streams: 1, max_waiting: 2")
    answers = some.stream(1)
    crowding = [some.begin("a"), some.begin("a")]
    wait_until(lambda: some.metric("tidemark_requests_waiting") == 2)
    other = some.begin("b")
    wait_until(lambda: any(answer.done() for answer in crowding))
    some.free.set()
    assert sorted(answer.result().status_code for answer in crowding) == [200, 503]
    assert (other.result().status_code, answers[0].result().status_code) == (200, 200)


def test_refusals_are_one_line_in_the_log(crowd: Callable[[str], Crowd], capsys: pytest.CaptureFixture[str]) -> None:
    """However many there are; the line of a request that was served has no neighbour for each refused one."""
    some = crowd("max_streams: 1")
    some.stream(1)
    for _ in range(5):
        assert some.ask().status_code == 503
    lines = [line for line in capsys.readouterr().out.splitlines() if "request." in line]
    assert len(lines) == 1
    assert "request.shed" in lines[0]
