"""``GET /tidemark/stats``: what all requests were and cost, over a window, for the operator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.features.tenants.test_erasure import owner_for
from tests.request.conftest import SECRET, WINDOW, Bench, Client, benched
from tests.request.talk import history, user
from tests.support.fresh_stores import fresh_store
from tests.support.scripted import error, says
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load

MEMBERS = {
    "window",
    "requests",
    "tokens_before",
    "tokens_after",
    "tokens_saved",
    "compactions",
    "summarizer_failures",
    "shed",
    "cached_tokens",
    "overhead_seconds",
    "upstream_first_byte_seconds",
    "models",
    "tenants",
    "series",
}

OTHER_MODEL = """  - model_name: large
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    """A bench upon a store of the test's own: the figures are everybody's."""
    with fresh_store() as server, benched(server.url, tmp_path) as made:
        yield made


def stats(client: Client, window: object = 3600, **query: str) -> dict[str, Any]:
    """GET the figures."""
    answer = client.http.get("/tidemark/stats", params={"window": str(window), **query})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def settled(own: Bench, client: Client, window: int = 3600) -> dict[str, Any]:
    """The figures after everything that was under way has ended."""
    own.settle()
    return stats(client, window)


def test_every_request_is_in_the_figures(own: Bench) -> None:
    """Tokens, actions and overheads, at once and in every window."""
    client = own.client("figures")
    assert stats(client)["overhead_seconds"] == {"p50": None, "p95": None}
    for number in range(3):
        client.chat([user(f"Hello {number}.")])
    client.chat(history(12), summarize="force")
    for window, points in ((3600, 60), (86_400, 96), (604_800, 168), (61, 2)):
        told = settled(own, client, window)
        assert told.keys() == MEMBERS
        assert (told["window"], told["requests"], len(told["series"])) == (window, 4, points)
        assert told["compactions"] == {"compacted": 0, "forced": 1, "failed": 0}
        assert told["tokens_saved"] == told["tokens_before"] - told["tokens_after"] > 0
        assert 0 < told["overhead_seconds"]["p50"] <= told["overhead_seconds"]["p95"] < 10
        assert sum(point["requests"] for point in told["series"]) == 4
        assert all(
            point.keys() == MEMBERS - {"window", "series", "models", "tenants"} | {"start"} for point in told["series"]
        )
        starts = [point["start"] for point in told["series"]]
        assert len({after - before for before, after in pairwise(starts)}) == 1


def test_two_servers_on_one_store_add_up(own: Bench) -> None:
    """Whichever is asked; the other's come within about a second."""
    first, second = own.client("one"), own.client("two")
    first.chat([user("Hello.")])
    second.chat([user("Hello.")])
    own.settle()
    stats(first)  # each writes what it has at once when it is asked
    assert stats(second)["requests"] == 2


@pytest.mark.parametrize(
    "window", ["abc", "0", "-1", "59", "604801", "1e9", "9" * 400, "3600&window=60", "", "\u0663600"]
)
def test_a_window_of_nonsense_is_refused_by_name(client: Client, window: str) -> None:
    """With what it may be."""
    answer = client.http.get(f"/tidemark/stats?window={window}")
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "window")
    assert "from 60 to 604800" in error["message"]
    assert len(error["message"]) < 200


def test_without_a_window_it_is_an_hour(client: Client) -> None:
    """The overview's first one."""
    answer = client.http.get("/tidemark/stats")
    assert answer.json()["window"] == 3600


def test_where_there_is_a_token_only_the_operator_reads_it(store_url: str, tmp_path: Path) -> None:
    """As all endpoints of the operator."""
    settings = load(None, {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_ADMIN_TOKEN": "t" * 40})
    app = create_app(settings, store_url=store_url, secret=SECRET, warn=lambda _: None)
    with Serving(app) as server, httpx.Client(base_url=server.url, verify=NO_TLS) as http:
        assert http.get("/tidemark/stats").status_code == 401
        assert http.get("/tidemark/stats", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert http.get("/tidemark/stats", headers={"authorization": f"Bearer {'t' * 40}"}).status_code == 200


def test_a_store_that_is_away_is_named(bench: Bench) -> None:
    """503, and Retry-After; the requests of that time are written later."""
    client = bench.client("away", store="redis://127.0.0.1:1/0")
    assert client.chat([user("Hello.")]).status_code == 200
    answer = client.http.get("/tidemark/stats")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert answer.headers["retry-after"]


def test_a_compaction_by_hand_is_in_the_figures_and_no_request(own: Bench) -> None:
    """Made or failed, it is counted beside those of requests."""
    client = own.client("by hand", strategy="llm")
    own.upstream.script = says("The summary tells of points and of what was said about them.")
    answer = client.chat(history(12))
    place = f"/tidemark/conversations/{answer.headers['x-tidemark-conversation']}/summarize"
    before = settled(own, client)
    made = client.http.post(place, headers=client.headers(), json={"retention_tokens": 0})
    assert made.headers["x-tidemark-action"] == "forced", made.text
    own.upstream.script = lambda _: error(500, "No.")
    assert client.http.post(place, headers=client.headers(), json={"regenerate": True}).status_code == 503
    after = settled(own, client)
    assert after["compactions"] == {"compacted": 0, "forced": 1, "failed": 1}
    assert after["requests"] == before["requests"] == 1


def test_a_model_and_a_tenant_have_figures_of_their_own(own: Bench) -> None:
    """By name, or by the beginning of a tenant's fingerprint; nobody's are none."""
    config = WINDOW + "\nlimits: {{max_waiting: 0}}\n"
    config = config.replace("compaction:", OTHER_MODEL + "compaction:")
    mine = own.client("mine", config=config)
    theirs = Client(mine.http, "theirs")
    for client, model, count in ((mine, "small", 2), (mine, "large", 1), (theirs, "large", 4)):
        for number in range(count):
            assert client.chat([user(f"Hello {number}.")], model=model).status_code == 200
    mine.chat(history(12), model="large", summarize="force")
    own.settle()
    told = stats(mine)
    assert (told["models"], told["tenants"]) == (["large", "small"], sorted(map(owner_for, ("mine", "theirs"))))
    wanted: list[tuple[dict[str, str], int, int]] = [
        ({}, 8, 1),
        ({"model": "small"}, 2, 0),
        ({"model": "large"}, 6, 1),
        ({"tenant": owner_for("mine")}, 4, 1),
        ({"tenant": owner_for("theirs")[:9]}, 4, 0),
        ({"tenant": "nobody"}, 0, 0),
        ({"model": "nobody's"}, 0, 0),
        ({"model": "", "tenant": ""}, 8, 1),
    ]
    for window in (3600, 86_400, 604_800):
        for query, requests, forced in wanted:
            one = stats(mine, window, **query)
            assert (one["requests"], one["compactions"]["forced"]) == (requests, forced), query
            assert sum(point["requests"] for point in one["series"]) == requests
            assert (one["upstream_first_byte_seconds"]["p50"] is not None) == (requests > 0)


def test_a_model_and_a_tenant_together_are_refused(client: Client) -> None:
    """Their figures are not stored, and zeros would be believed."""
    answer = client.http.get("/tidemark/stats?model=small&tenant=ab")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tenant")


def test_the_beginning_of_several_tenants_is_refused(own: Bench) -> None:
    """It says how many there are."""
    client = own.client("key")
    for number in range(17):
        Client(client.http, f"key {number}").chat([user("Hello.")])
    own.settle()
    beginnings = [name[0] for name in stats(client)["tenants"]]
    answer = client.http.get("/tidemark/stats", params={"tenant": max(beginnings, key=beginnings.count)})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tenant")
    assert "tenants begin with" in answer.json()["error"]["message"]


def test_a_tenant_is_found_by_the_name_in_its_keys(own: Bench) -> None:
    """With ``auth.mode: keys``."""
    config = WINDOW.replace("api_base:", "api_key: provider, api_base:") + "auth: {{mode: keys}}\n"
    environ = {"TIDEMARK_ADMIN_TOKEN": "t" * 40}
    client = own.client("", config=config, environ=environ)
    operator = {"authorization": f"Bearer {'t' * 40}"}
    made = client.http.post("/tidemark/keys", json={"name": "first", "tenant": "harbour"}, headers=operator)
    assert made.status_code == 201, made.text
    Client(client.http, made.json()["key"]).chat([user("Hello.")])
    own.settle()
    answer = client.http.get("/tidemark/stats?tenant=harbour", headers=operator)
    assert (answer.json()["requests"], len(answer.json()["tenants"])) == (1, 1)


def test_invented_keys_and_models_get_no_figures_of_their_own(own: Bench) -> None:
    """Only who got an answer is named; what was refused is among all others."""
    client = own.client("known")
    client.chat([user("Hello.")])
    own.upstream.script = lambda _: error(401, "No such key.")
    for number in range(3):
        Client(client.http, f"invented {number}").chat([user("Hello.")], model=f"invented {number}")
    client.chat([user("And again.")])
    own.settle()
    told = stats(client)
    assert (told["models"], told["tenants"]) == (["other", "small"], sorted([owner_for("known"), "other"]))
    assert stats(client, tenant=owner_for("known"))["requests"] == 2
    assert (stats(client, tenant="other")["requests"], stats(client, model="other")["requests"]) == (3, 3)


def test_the_first_byte_is_the_upstreams_own(own: Bench) -> None:
    """Neither Tidemark's answers nor refusals are in it; what is only carried is, if it has a model."""
    client = own.client("bytes")
    assert client.chat([user("/context")]).status_code == 200
    own.upstream.script = lambda _: error(429, "Too many.")
    client.chat([user("Hello.")])
    assert settled(own, client)["upstream_first_byte_seconds"] == {"p50": None, "p95": None}
    own.upstream.script = says("Hello.")
    client.chat([user("Hello.")])
    told = settled(own, client)["upstream_first_byte_seconds"]
    assert 0 < told["p50"] <= told["p95"] < 100


def test_a_request_that_is_only_carried_counts_with_its_model(own: Bench) -> None:
    """As that of embeddings."""
    client = own.client("carried")
    own.upstream.script = says("Hello.")
    answer = client.http.post("/v1/embeddings", json={"model": "small", "input": "Hello."}, headers=client.headers())
    assert answer.status_code == 200, answer.text
    own.settle()
    told = stats(client, model="small")
    assert (told["requests"], told["tokens_before"]) == (1, 0)
    assert told["upstream_first_byte_seconds"]["p50"] is not None
