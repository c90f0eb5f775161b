"""``GET /tidemark/events``: what happens to conversations, while it happens, to those who may know."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.request.conftest import SECRET, WINDOW, Bench, Client
from tests.request.talk import history, long, user
from tests.support.serving import NO_TLS, Serving
from tests.support.waiting import wait_until
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.features.live_events import hub as live_events

WAIT_SECONDS = 20
TOKEN = "t" * 40
Event = tuple[str, str, dict[str, Any]]
"""The id, the kind and the members."""


class Listener:
    """A client that listens in a thread; ``events`` are those that it got."""

    def __init__(self, http: httpx.Client, key: str, **headers: str) -> None:
        self.events: list[Event] = []
        self.ended = threading.Event()
        self._http = http
        self._headers = {"authorization": f"Bearer {key}", **headers}
        self._opened = threading.Event()
        self._socket: socket.socket | None = None
        threading.Thread(target=self._listen, daemon=True).start()
        assert self._opened.wait(WAIT_SECONDS)

    def kinds(self) -> list[str]:
        """The kinds of the events, in order."""
        return [kind for _, kind, _ in self.events]

    def wait_for(self, kind: str) -> dict[str, Any]:
        """The members of the first event of a kind, which may come a moment later."""
        wait_until(lambda: kind in self.kinds(), WAIT_SECONDS)
        return next(members for _, name, members in self.events if name == kind)

    def leave(self) -> None:
        """Hang up. Closing the client would wait for what its thread reads next, up to a whole keep-alive."""
        if self._socket is not None:
            with suppress(OSError):  # the server has hung up already
                self._socket.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        try:
            with self._http.stream("GET", "/tidemark/events", headers=self._headers, timeout=60) as answer:
                self._socket = answer.extensions["network_stream"].get_extra_info("socket")
                assert answer.headers["content-type"].startswith("text/event-stream")
                fields: dict[str, str] = {}
                for line in answer.iter_lines():
                    if line:
                        name, _, value = line.partition(": ")
                        fields[name] = value
                    elif "event" in fields:
                        self.events.append((fields["id"], fields["event"], json.loads(fields["data"])))
                        fields = {}
                    self._opened.set()
        except httpx.HTTPError:
            pass
        finally:
            self.ended.set()


@contextmanager
def listening(client: Client, key: str | None = None, **headers: str) -> Iterator[Listener]:
    """Somebody who listens to a client's Tidemark."""
    with httpx.Client(base_url=client.http.base_url, verify=NO_TLS) as http:
        listener = Listener(http, key or client.key, **headers)
        try:
            yield listener
        finally:
            listener.leave()


@pytest.fixture
def operator(bench: Bench, store_url: str, tmp_path: Path) -> Callable[[], Client]:
    """Starts a Tidemark that has an operator, and gives the operator's client."""

    def start() -> Client:
        path = tmp_path / "operated.yaml"
        path.write_text(WINDOW.format(base=f"{bench.upstream_url}/v1", window=2000, strategy="extractive", more=""))
        settings = load(path, {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_ADMIN_TOKEN": TOKEN})
        app = create_app(settings, store_url=store_url, secret=SECRET, warn=lambda _: None)
        url = bench.stack.enter_context(Serving(app)).url
        return Client(bench.stack.enter_context(httpx.Client(base_url=url, timeout=30, verify=NO_TLS)), TOKEN)

    return start


def test_a_compaction_is_told_from_its_start_to_its_figures(client: Client) -> None:
    """The same conversation and numbers as in the response's headers; no text of a message."""
    with listening(client) as listener:
        answer = client.chat(history(12), summarize="force")
        finished = listener.wait_for("compaction.finished")
        updated = listener.wait_for("conversation.updated")
    started = listener.wait_for("compaction.started")
    conversation = answer.headers["x-tidemark-conversation"]
    assert updated == {"conversation": conversation}
    assert started == {
        "conversation": conversation,
        "messages": int(answer.headers["x-tidemark-summarized-messages"]),
        "tokens": started["tokens"],
        "trigger": "request",
    }
    assert {name: finished[name] for name in started} == started
    assert str(finished["tokens_before"]) == answer.headers["x-tidemark-tokens-before"]
    assert str(finished["tokens_after"]) == answer.headers["x-tidemark-tokens-after"]
    assert finished["strategy"] == answer.headers["x-tidemark-strategy"] == "extractive"
    assert finished["seconds"] >= 0
    assert listener.kinds().index("compaction.started") < listener.kinds().index("compaction.finished")


def test_a_compaction_in_the_background_is_told_too(client: Client) -> None:
    """It is made after an answer, and nobody asked for it."""
    with listening(client) as listener:
        client.chat([*history(5), user(long(1))])
        for length in range(6, 14):
            if "compaction.finished" in listener.kinds():
                break
            client.chat(history(length))
        assert listener.wait_for("compaction.finished")["trigger"] == "preparation"


def test_a_compaction_by_hand_is_told_too(client: Client) -> None:
    """Of a stored conversation (FR-2.3.2)."""
    conversation = client.chat(history(4)).headers["x-tidemark-conversation"]
    with listening(client) as listener:
        made = client.http.post(
            f"/tidemark/conversations/{conversation}/summarize", json={"retention_tokens": 50}, headers=client.headers()
        )
        assert made.status_code == 200, made.text
        assert listener.wait_for("compaction.finished")["conversation"] == conversation


def test_nobody_hears_of_another_credentials_conversations(bench: Bench, operator: Callable[[], Client]) -> None:
    """But the operator, who hears of all, also of those at another server on the store."""
    mine, other, admin = bench.client("mine"), bench.client("other"), operator()
    with listening(mine) as own, listening(other) as foreign, listening(admin, TOKEN) as all_of_them:
        id_ = mine.chat([user("Hello.")]).headers["x-tidemark-conversation"]
        assert own.wait_for("conversation.updated") == {"conversation": id_}
        wait_until(lambda: any(event[2].get("conversation") == id_ for event in all_of_them.events), WAIT_SECONDS)
        assert foreign.events == []


def test_whoever_comes_back_gets_what_came_since(client: Client) -> None:
    """By the id of the last event; nothing twice, and nothing of before."""
    with listening(client) as listener:
        client.chat([user("One.")])
        listener.wait_for("conversation.updated")
        first = listener.events[-1][0]
    ids = [client.chat([user(f"Number {number}.")]).headers["x-tidemark-conversation"] for number in (2, 3)]
    with listening(client, **{"last-event-id": first}) as again:
        wait_until(lambda: {members["conversation"] for _, _, members in again.events} == set(ids), WAIT_SECONDS)
        assert len(again.events) == len({position for position, _, _ in again.events})


@pytest.mark.parametrize("position", ["nonsense", "1", "1-2", "1-2-x", "-1-2-3"])
def test_a_made_up_position_is_refused(client: Client, position: str) -> None:
    """It is opaque: only what came is taken back."""
    answer = client.http.get("/tidemark/events", headers={"last-event-id": position})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Last-Event-ID")


def test_the_listeners_of_a_worker_are_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many gets 503 and a time; another is admitted when it has left."""
    monkeypatch.setattr(live_events, "OWNER_PLACES", 1)
    with listening(client):
        refused = client.http.get("/tidemark/events", headers=client.headers())
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_busy")
        assert int(refused.headers["retry-after"]) > 0

    def admitted() -> bool:
        with client.http.stream("GET", "/tidemark/events", headers=client.headers()) as answer:
            return answer.status_code == 200

    wait_until(admitted, WAIT_SECONDS)


def test_head_is_answered_at_once(client: Client) -> None:
    """As wherever GET is."""
    answer = client.http.head("/tidemark/events")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_without_a_store_there_is_nothing_to_listen_to(bench: Bench) -> None:
    """503, as for all that the store has."""
    client = bench.client("away", store="redis://127.0.0.1:1/0")
    answer = client.http.get("/tidemark/events")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")


def test_the_servers_end_does_not_wait_for_listeners(bench: Bench) -> None:
    """Their streams end; other streams finish as ever."""
    client = bench.client("ending", own=True)
    with listening(client) as listener:
        client.chat([user("Hello.")])
        listener.wait_for("conversation.updated")
        bench.stack.close()
        assert listener.ended.wait(WAIT_SECONDS)


def test_a_summary_that_a_person_replaces_is_told(operator: Callable[[], Client]) -> None:
    """To the tenant, also where the operator did it, so that an open page shows the new text."""
    admin = operator()
    client = Client(admin.http, "the tenant")
    conversation = client.chat(history(12), summarize="force").headers["x-tidemark-conversation"]
    path = f"/tidemark/conversations/{conversation}/summaries"
    with listening(client) as listener:
        assert admin.http.post(path, json={"text": "By a person."}, headers=admin.headers()).status_code == 200
        wait_until(lambda: "conversation.updated" in listener.kinds(), WAIT_SECONDS)
        assert listener.events[-1][2] == {"conversation": conversation}


def test_a_compaction_by_the_operators_hand_is_told_to_the_tenant(operator: Callable[[], Client]) -> None:
    """It is the tenant's conversation, whoever asks; another tenant hears nothing."""
    admin = operator()
    client = Client(admin.http, "the tenant of the talk")
    conversation = client.chat(history(6)).headers["x-tidemark-conversation"]
    path = f"/tidemark/conversations/{conversation}/summarize"
    with listening(client) as listener, listening(admin, "another tenant") as other:
        done = admin.http.post(path, json={"retention_tokens": 0}, headers=admin.headers())
        assert done.status_code == 200, done.text
        assert listener.wait_for("compaction.finished")["conversation"] == conversation
        assert "compaction.started" in listener.kinds()
        assert "compaction.finished" not in other.kinds()
