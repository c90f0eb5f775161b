"""Quotas of tenants and keys: counted by all workers together, and told in the client's own words."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.features.keys.conftest import KEYED, Keyed
from tests.features.keys.test_keys import PATIENCE_SECONDS, code
from tests.request.conftest import Client
from tests.request.talk import user
from tests.support.scripted import Received, says, streamed
from tests.support.waiting import wait_until

HELLO = [user("Hello.")]


def other_worker(keyed: Keyed, key: str, more: str = "") -> Client:
    """A client of another worker upon the same store."""
    client = keyed.bench.client(key, config=KEYED + more)
    wait_until(lambda: client.http.get("/v1/models", headers=client.headers()).status_code == 200, PATIENCE_SECONDS)
    return client


def test_a_key_has_its_requests_a_minute_over_all_workers(keyed: Keyed) -> None:
    """Not one more, also not on a path that is only carried; another key of the tenant has its own."""
    key = keyed.create(requests_per_minute=3)["key"]
    one, other = keyed.client(key), other_worker(keyed, key)
    assert [client.chat(HELLO).status_code for client in (one, other, one)] == [200, 200, 200]
    refused = other.chat(HELLO)
    assert code(refused) == (429, "rate_limit_exceeded")
    assert refused.json()["error"]["type"] == "requests"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers["x-ratelimit-limit-requests"] == "3"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    carried = one.http.post("/v1/embeddings", json={"model": "small", "input": "x"}, headers=one.headers())
    assert code(carried) == (429, "rate_limit_exceeded")
    assert keyed.client(keyed.create("second", tenant="app")["key"]).chat(HELLO).status_code == 200


def test_requests_at_one_moment_do_not_pass_together(keyed: Keyed) -> None:
    """The store counts them one by one."""
    key = keyed.create(requests_per_minute=5)["key"]
    other_worker(keyed, key)
    clients = [keyed.client(key), other_worker(keyed, key)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: clients[number % 2].chat(HELLO).status_code, range(16)))
    assert sorted(answers) == [200] * 5 + [429] * 11


def test_anthropics_clients_read_their_own_headers(keyed: Keyed) -> None:
    """And the type that their SDK makes its exception of."""
    client = keyed.client(keyed.create(requests_per_minute=1)["key"])
    body = {"model": "small", "max_tokens": 5, "messages": HELLO}
    served, refused = (client.http.post("/v1/messages", json=body, headers=client.headers()) for _ in range(2))
    assert served.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
    assert refused.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
    assert int(refused.headers["retry-after"]) > 0


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_a_day_are_those_that_the_provider_counts(keyed: Keyed, *, stream: bool) -> None:
    """Once they are used up nothing is sent until the day ends."""
    client = keyed.client(keyed.create(tokens_per_day=10)["key"])
    body = {"model": "small", "messages": HELLO, "stream": stream}
    served = client.post(body)
    assert served.status_code == 200
    keyed.bench.settle()
    refused = client.post(body)
    assert code(refused) == (429, "rate_limit_exceeded"), keyed.bench.upstream.received
    assert refused.json()["error"]["type"] == "tokens"
    assert refused.headers["x-ratelimit-limit-tokens"] == "10"
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
    assert int(refused.headers["retry-after"]) <= 86_400


def test_tokens_count_although_the_provider_counts_none(keyed: Keyed) -> None:
    """Otherwise a server without counts would be a way round."""
    keyed.bench.upstream.script = says("words " * 50, usage=False)
    client = keyed.client(keyed.create(tokens_per_day=20)["key"])
    assert client.chat(HELLO).status_code == 200
    keyed.bench.settle()
    assert code(client.chat(HELLO)) == (429, "rate_limit_exceeded")


def test_tokens_of_carried_requests_count(keyed: Keyed) -> None:
    """By the provider's count in the answer, or by its length."""
    client = keyed.client(keyed.create(tokens_per_day=10)["key"])
    body = {"model": "small", "input": "word " * 30}
    first = client.http.post("/v1/embeddings", json=body, headers=client.headers())
    assert first.status_code == 200
    keyed.bench.settle()
    assert code(client.http.post("/v1/embeddings", json=body, headers=client.headers())) == (429, "rate_limit_exceeded")


def test_requests_in_progress_have_a_bound_and_give_their_place_back(keyed: Keyed) -> None:
    """A stream holds its place until it ends; a client that leaves gives it back, too."""
    key = keyed.create(concurrent=1)["key"]
    client, other = keyed.client(key), other_worker(keyed, key)

    def slow(_: Received) -> Any:
        return streamed("One two three.", pace=10)

    keyed.bench.upstream.script = slow
    body = {"model": "small", "messages": HELLO, "stream": True}
    with client.http.stream("POST", "/v1/chat/completions", json=body, headers=client.headers()) as stream:
        assert stream.status_code == 200
        pieces = stream.iter_raw()  # without a name it would end, and the connection with it
        next(pieces)
        refused = other.chat(HELLO)
        assert code(refused) == (429, "rate_limit_exceeded")
        assert refused.headers["retry-after"] == "1"
    keyed.bench.upstream.script = says("Hello there.")
    wait_until(lambda: other.chat(HELLO).status_code == 200, PATIENCE_SECONDS)
    assert [client.chat(HELLO).status_code for _ in range(3)] == [200] * 3


def test_the_file_bounds_each_tenant_and_one_in_another_way(keyed: Keyed) -> None:
    """By the tenant's name in its keys; two keys of one tenant share its bound."""
    more = "limits: {{per_tenant: {{requests_per_minute: 1}}, tenants: {{shop: {{requests_per_minute: 2}}}}}}\n"
    one, other = (keyed.create(name, tenant="shop")["key"] for name in ("one", "other"))
    small = keyed.create("small")["key"]
    client = other_worker(keyed, one, more)
    answers = [Client(client.http, key).chat(HELLO).status_code for key in (one, other, one, small, small)]
    assert answers == [200, 200, 429, 200, 429]


def test_an_upstreams_own_quotas_are_not_the_callers(keyed: Keyed) -> None:
    """They would tell a client that more is left than it may use."""

    def limited(received: Received) -> Any:
        answer = says("Hello there.")(received)
        answer.headers = [*answer.headers, (b"x-ratelimit-remaining-requests", b"9999")]
        return answer

    keyed.bench.upstream.script = limited
    served = keyed.client(keyed.create(requests_per_minute=7)["key"]).chat(HELLO)
    assert served.headers["x-ratelimit-remaining-requests"] == "6"
    assert keyed.client(keyed.create("free")["key"]).chat(HELLO).headers["x-ratelimit-remaining-requests"] == "9999"


def test_passing_credentials_are_bounded_too(keyed: Keyed) -> None:
    """Each credential is a tenant then."""
    config = KEYED.replace("auth: {{mode: keys}}", "limits: {{per_tenant: {{requests_per_minute: 1}}}}")
    http = keyed.bench.client("", config=config).http
    keys = ("sk-a", "sk-a", "sk-b")
    answers: list[httpx.Response] = [Client(http, key).chat(HELLO) for key in keys]
    assert [answer.status_code for answer in answers] == [200, 429, 200]
    assert json.loads(answers[1].content)["error"]["code"] == "rate_limit_exceeded"


def test_whoever_has_an_answer_has_its_place_again(keyed: Keyed) -> None:
    """At every worker: one request after the other is never two at once, whole or streamed."""
    key = keyed.create(concurrent=1)["key"]
    workers = (keyed.client(key), other_worker(keyed, key))
    keyed.bench.upstream.script = says("Hello there.")
    for number in range(30):
        body = {"model": "small", "messages": HELLO, "stream": number % 3 == 2}
        assert workers[number % 2].post(body).status_code == 200
