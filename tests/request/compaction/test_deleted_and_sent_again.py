"""A conversation that was deleted and is sent again with its whole history: it begins anew, and is answered."""

from __future__ import annotations

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, user
from tests.support.scripted import whole

LONG: list[Said] = [*history(18), user("Now?")]
"""Longer than the window."""


@pytest.fixture
def deleted(bench: Bench, client: Client) -> Client:
    """A client whose compacted conversation was deleted."""
    got = client.chat(LONG)
    assert got.headers["x-tidemark-action"] == "compacted"
    bench.settle()
    path = f"/tidemark/conversations/{got.headers['x-tidemark-conversation']}"
    assert client.http.delete(path, headers=client.headers()).status_code in (200, 204)
    return client


def test_its_next_request_is_compacted_once_and_the_summary_is_stored(bench: Bench, deleted: Client) -> None:
    """The deletion ended what was made before it, and nothing that is asked for after it."""
    bench.upstream.script = lambda _: whole("Fine.")
    again = deleted.chat(LONG)
    assert again.headers["x-tidemark-action"] == "compacted"
    assert again.headers["x-tidemark-store"] == "ok"
    later = deleted.chat([*LONG, assistant("Fine."), user("And now?")])
    assert later.headers["x-tidemark-action"] == "reused"


def test_a_model_writes_its_summary_once(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Each one costs money."""
    client = bench.client(request.node.nodeid, strategy="llm")
    got = client.chat(LONG)
    bench.settle()
    path = f"/tidemark/conversations/{got.headers['x-tidemark-conversation']}"
    assert client.http.delete(path, headers=client.headers()).status_code in (200, 204)
    before = len(bench.upstream.received)
    assert client.chat(LONG).headers["x-tidemark-action"] == "compacted"
    assert len(bench.upstream.received) == before + 2  # one for the summary, one for the answer
