"""nginx, Caddy and Envoy with the files of ``deploy/`` change nothing about what Tidemark does for its clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import httpx

from tests.deploy.conftest import NAME, TOKEN, Site
from tests.support.scripted import SSE_HEADERS, Answer, Received, says, streamed
from tests.support.waiting import wait_until

CHAT = {"model": "small", "max_tokens": 100, "messages": [{"role": "user", "content": "Count."}]}
WORDS = "one two three four five six seven eight"


class Stepwise:
    """A script whose stream goes on only when the client has read what came before."""

    def __init__(self) -> None:
        self.pieces = list(streamed(WORDS).pieces)
        self.sent = 0
        self.read = [threading.Event() for _ in self.pieces]

    def __call__(self, _: Received) -> Answer:
        """Answer one request."""
        answer = Answer([], headers=list(SSE_HEADERS), waits=self.read)
        answer.pieces = self._counted()  # type: ignore[assignment]
        return answer

    def _counted(self) -> Iterator[bytes | float]:
        for piece in self.pieces:
            self.sent += 1
            yield piece


def test_each_event_of_a_stream_arrives_before_the_next_one_is_sent(site: Site) -> None:
    """Nothing on the way buffers: the upstream sends a piece only after the client has read the one before."""
    site.upstream.script = script = Stepwise()
    with site.client("steps").stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = 0
        for line in answer.iter_lines():
            if line.startswith("data:"):
                assert script.sent == events + 1
                script.read[events].set()
                events += 1
    assert events == len(script.pieces)


def test_a_client_that_leaves_ends_the_call_of_the_upstream(site: Site) -> None:
    """The call would otherwise be paid to its end."""
    site.upstream.script = Stepwise()
    with site.client("leaves").stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
        next(answer.iter_lines())
    wait_until(lambda: site.upstream.last.gone)


def test_a_client_that_leaves_before_the_first_byte_ends_the_call_too(site: Site) -> None:
    """An answer that is not streamed is as dear."""
    site.upstream.script = lambda _: Answer([b"{}"], before_headers=60)
    client = site.client("leaves early")
    threading.Thread(target=_asked_for_a_second, args=(client,), daemon=True).start()
    wait_until(lambda: bool(site.upstream.received) and site.upstream.last.gone)


def _asked_for_a_second(client: httpx.Client) -> None:
    try:
        client.post("/v1/chat/completions", json=CHAT, timeout=1)
    except httpx.TimeoutException:
        client.close()


def test_a_large_upload_passes(site: Site) -> None:
    """No limit but Tidemark's own applies."""
    content = b"x" * 20_000_000
    answer = site.client("uploads").post("/v1/files", files={"file": ("a.bin", content)}, data={"purpose": "batch"})
    assert answer.json()["length"] > len(content)


def test_a_body_beyond_the_limit_gets_tidemarks_own_error(site: Site) -> None:
    """The error names the setting, which a page of the reverse proxy would not."""
    body = {**CHAT, "messages": [{"role": "user", "content": "x" * 1_500_000}]}
    answer = site.client("large").post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert "max_body_mb" in answer.json()["error"]["message"]


def test_live_events_arrive(site: Site) -> None:
    """A listener hears of a turn that it waits for."""
    client = site.client("listens")
    with client.stream("GET", "/tidemark/events") as events:
        assert events.status_code == 200
        lines = events.iter_lines()
        site.upstream.script = says("Hello.")
        assert site.client("listens").post("/v1/chat/completions", json=CHAT).status_code == 200
        assert next(line for line in lines if line.startswith("event:")) == "event: conversation.updated"


def test_the_console_works_under_the_name_of_the_site(site: Site) -> None:
    """Its forms are taken from the site's own pages, whose origin the configuration allows."""
    visitor = site.client("")
    visitor.headers.pop("authorization")
    scheme = httpx.URL(site.url).scheme
    signed_in = visitor.post("/console/login", data={"token": TOKEN}, headers={"origin": f"{scheme}://{NAME}"})
    assert signed_in.status_code == 303
    cookie = signed_in.headers["set-cookie"]
    assert ("secure" in cookie.lower()) == (scheme == "https")
    page = visitor.get("/console", headers={"cookie": cookie.partition(";")[0]})
    assert (page.status_code, "Conversations" in page.text) == (200, True)


def test_nobody_becomes_the_operator_by_the_proxys_own_address(start_site: Callable[..., Site]) -> None:
    """Without an admin token only this machine has its rights, and every request of a proxy comes from it."""
    client = start_site(token="").client("anybody")
    assert client.get("/tidemark/stats").status_code == 403
    assert client.get("/console").status_code in {303, 403}


def test_metrics_and_health_are_closed_to_the_outside(site: Site) -> None:
    """They have no access control of their own."""
    client = site.client("anybody")
    paths = ("/metrics", "/metrics/", "/health/readiness", "/health/liveliness", "/%6detrics")
    assert {client.get(path).status_code for path in paths} == {404}
