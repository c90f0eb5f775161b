"""The registry over HTTP: what is set applies to the next request of every worker, by the operator's hand only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.request.conftest import SECRET, Bench, Client, benched
from tests.request.talk import history, user
from tests.support.fresh_stores import fresh_store
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.catalog.overrides import POLL_SECONDS
from tidemark.config import load
from tidemark.store.embedded.server import EmbeddedValkey

SEEN_SECONDS = 1.0
"""What is promised for a change to reach every worker."""
PATIENCE_SECONDS = 10.0
"""How long a busy machine may take; the promise is the interval's, see ``test_the_interval_keeps_the_promise``."""
MODEL = "openai:scripted"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A store of the test's own: the registry is everybody's."""
    with fresh_store() as server:
        yield server


@pytest.fixture
def own(store: EmbeddedValkey, tmp_path: Path) -> Iterator[Bench]:
    """A bench upon it."""
    with benched(store.url, tmp_path) as made:
        yield made


def change(client: Client, body: Any, name: str = MODEL, **headers: str) -> httpx.Response:
    """PUT: bytes as they are, anything else as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.http.put(f"/tidemark/models/{name}", content=content, headers=headers)


def model(client: Client, name: str = MODEL) -> dict[str, Any]:
    """GET one model."""
    got = client.http.get(f"/tidemark/models/{name}", headers=client.headers())
    assert got.status_code == 200, got.text
    told: dict[str, Any] = got.json()
    return told


def limit(client: Client, name: str = "small") -> int:
    """The limit that a request meets."""
    return int(client.chat([user("hello")], model=name).headers["x-tidemark-limit"])


def within_a_second(seen: Callable[[], bool]) -> None:
    """It becomes so by itself, in the time that is promised where the machine is free."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not seen():
        assert time.monotonic() < until


def test_the_interval_keeps_the_promise() -> None:
    """A change that just missed one look is seen by the next."""
    assert 2 * POLL_SECONDS < SEEN_SECONDS


def test_a_change_applies_to_the_next_request_of_both_workers(own: Bench) -> None:
    """At once where it was made, within a second elsewhere; a reset leads back; there is no restart."""
    one, other = own.client("k"), own.client("k")
    assert (limit(one), limit(other)) == (1800, 1800)
    got = change(one, {"max_input_tokens": 1000, "threshold": 0.5, "retention_tokens": 50}, "small")
    assert got.status_code == 200, got.text
    assert limit(one) == 850
    within_a_second(lambda: limit(other) == 850)
    compacted = other.chat([*history(12), user("and?")])
    assert compacted.headers["x-tidemark-action"] == "compacted"
    assert int(compacted.headers["x-tidemark-tokens-after"]) <= 500
    assert one.http.delete(f"/tidemark/models/{MODEL}").status_code == 200
    assert limit(one) == 1800
    within_a_second(lambda: limit(other) == 1800)


def test_changes_at_the_same_instant_lose_nothing(own: Bench) -> None:
    """Two people set different fields, by two workers; and a third resets: it is as if one came after the other."""
    one, other = own.client("k"), own.client("k")
    fields = {"max_input_tokens": 1000, "max_output_tokens": 50, "threshold": 0.5, "retention_tokens": 50}
    with ThreadPoolExecutor(len(fields)) as together:
        for _ in range(10):
            said = [(client, {name: fields[name]}) for client, name in zip([one, other] * 2, fields, strict=True)]
            answers = list(together.map(lambda given: change(*given), said))
            assert [got.status_code for got in answers] == [200] * len(fields)
            assert model(one)["overrides"] == fields
            assert change(one, {"context_window": 5000}).status_code == 200
            reset = together.submit(one.http.delete, f"/tidemark/models/{MODEL}")
            assert change(other, {"threshold": 0.7}).status_code == reset.result().status_code == 200
            assert model(one)["overrides"] in ({}, {"threshold": 0.7})
            assert one.http.delete(f"/tidemark/models/{MODEL}").json()["overrides"] == {}


def test_of_two_changes_that_contradict_each_other_one_is_refused(own: Bench) -> None:
    """Each is checked against what is set when it is written, not when it was read."""
    one, other = own.client("k"), own.client("k")
    with ThreadPoolExecutor(2) as together:
        for _ in range(10):
            said = [(one, {"max_input_tokens": 5000}), (other, {"context_window": 4000})]
            answers = list(together.map(lambda given: change(*given), said))
            assert sorted(got.status_code for got in answers) == [200, 400]
            assert len(model(one)["overrides"]) == 1
            one.http.delete(f"/tidemark/models/{MODEL}")


def test_an_override_goes_before_every_other_source_and_can_be_larger(own: Bench) -> None:
    """The file said 2,000; the response's header and the registry say what a person says now."""
    client = own.client("k")
    assert limit(client) == 1800
    told = change(client, {"max_input_tokens": 64_000, "max_output_tokens": 1000}).json()
    assert (told["window"], told["source"]) == (64_000, "manual")
    assert told["overrides"] == {"max_input_tokens": 64_000, "max_output_tokens": 1000}
    assert told["limit"] == 64_000 - 1000 - 3200
    assert limit(client) == 64_000 - 100 - 3200
    assert change(client, {"max_input_tokens": None}).json()["overrides"] == {"max_output_tokens": 1000}
    assert limit(client) == 1800


def test_the_list_shows_marks_and_what_requests_found(own: Bench) -> None:
    """Configured models at once, others when a request has named them; FR-3.2.1 and FR-4.1.3."""
    client = own.client("k", config="upstream: {base}\nmodel_list: []\n")
    client.chat([user("hi")], model="gpt-4o")

    def listed() -> dict[str, dict[str, Any]]:
        told = client.http.get("/tidemark/models").json()
        assert told["object"] == "list"
        return {one["id"]: one for one in told["data"]}

    within_a_second(lambda: "openai:gpt-4o" in listed())
    elsewhere = client.http.get("/tidemark/models", headers={"via": "1.1 somewhere"}).json()["data"]
    assert "openai:gpt-4o" not in [entry["id"] for entry in elsewhere], "what requests named is the operator's to see"
    found = listed()["openai:gpt-4o"]
    assert (found["provider"], found["model"], found["name"]) == ("openai", "gpt-4o", "gpt-4o")
    assert (found["max_input_tokens"], found["max_output_tokens"], found["source"]) == (128_000, 16_384, "api")
    assert found["limit"] == 128_000 - 16_384 - 6400 == found["high_water"]
    assert found["low_water"] < found["prepare"] < found["high_water"] < found["window"]
    assert (found["overrides"], found["calibration"], found["threshold"]) == ({}, None, 0.95)
    assert abs(found["created_at"] - time.time()) < 60
    assert model(client, "gpt-4o") == found


def test_what_only_requests_named_is_told_to_nobody_but_the_operator(own: Bench) -> None:
    """By id and by name another caller gets the answer for an unused model (promise 8); what was set is for all."""
    client = own.client("k", config="upstream: {base}\nmodel_list: []\n")

    def told(name: str, **stranger: str) -> tuple[int, Any]:
        got = client.http.get(f"/tidemark/models/{name}", headers={"authorization": "Bearer other", **stranger})
        return got.status_code, got.json()

    names = ("openai:secret-tune", "secret-tune", "openai:gpt-4o", "gpt-4o")
    before = [told(name, via="1.1 somewhere") for name in names]
    assert before[0][0] == 404
    for name in ("secret-tune", "gpt-4o"):
        client.chat([user("hi")], model=name)
    assert told("openai:secret-tune")[0] == 200  # noted already, stored in a moment
    assert [told(name, via="1.1 somewhere") for name in names] == before
    within_a_second(lambda: told("openai:secret-tune")[1]["created_at"] and told("openai:gpt-4o")[1]["created_at"])
    assert [told(name, via="1.1 somewhere") for name in names] == before
    assert change(client, {"threshold": 0.6}, "openai:secret-tune").status_code == 200
    assert told("openai:secret-tune", via="1.1 somewhere")[1]["threshold"] == 0.6


def test_a_configured_model_is_listed_before_any_request(own: Bench) -> None:
    """By id and by the client's name; a name with slashes too."""
    config = """
model_list:
  - model_name: org/small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000}}
"""
    client = own.client("k", config=config)
    (told,) = client.http.get("/tidemark/models").json()["data"]
    assert (told["id"], told["name"], told["source"], told["window"]) == (MODEL, "org/small", "manual", 2000)
    assert model(client, "org/small")["id"] == MODEL
    assert change(client, {"threshold": 0.7}, "org/small").json()["threshold"] == 0.7
    assert change(client, {"context_window": 9000}, "org%2Fsmall").json()["window"] == 9000
    assert limit(client, "org/small") < 9000 - 100


def test_a_model_may_be_set_before_anybody_used_it(own: Bench) -> None:
    """FR-3.2.3: a custom model, by its id; unknown to all data, until then it is 404."""
    client = own.client("k", config='upstream: "{base}"\n')
    missing = client.http.get("/tidemark/models/openai:house-model")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert client.http.delete("/tidemark/models/openai:house-model").status_code == 404
    assert change(client, {"max_input_tokens": 4000}, "openai:house-model").json()["source"] == "manual"
    assert limit(client, "house-model") == 4000 - 100 - 200
    assert model(client, "house-model")["overrides"] == {"max_input_tokens": 4000}
    reset = client.http.delete("/tidemark/models/house-model").json()
    assert (reset["source"], reset["max_input_tokens"], reset["overrides"]) == ("default", 128_000, {})


def test_a_restart_keeps_what_was_set(own: Bench) -> None:
    """From the first request on, not only after a while."""
    assert change(own.client("k"), {"max_input_tokens": 900}).status_code == 200
    assert limit(own.client("k")) == 900 - 100 - 45


def test_an_emptied_store_is_filled_again_by_what_requests_find(own: Bench, store: EmbeddedValkey) -> None:
    """Within a second, also where nobody has ever set anything; what was set is gone with the rest."""
    client = own.client("k", config="upstream: {base}\nmodel_list: []\n")

    def listed() -> list[str]:
        client.chat([user("hi")], model="gpt-4o")
        return [one["id"] for one in client.http.get("/tidemark/models").json()["data"]]

    within_a_second(lambda: listed() == ["openai:gpt-4o"])
    with redis.Redis.from_url(store.url) as emptying:
        emptying.flushall()
    assert listed() == []
    within_a_second(lambda: listed() == ["openai:gpt-4o"])


def test_without_the_store_the_last_overrides_hold(own: Bench, store: EmbeddedValkey) -> None:
    """A change is refused with 503 and changes nothing; when the store is back, changes are followed again."""
    one, other = own.client("k"), own.client("k")
    assert change(one, {"max_input_tokens": 900}).status_code == 200
    within_a_second(lambda: limit(other) == 755)
    store.stop()
    time.sleep(SEEN_SECONDS)
    assert (limit(one), limit(other)) == (755, 755)
    refused = change(one, {"max_input_tokens": 5000})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
    assert limit(one) == 755
    store.start()
    within_a_second(lambda: change(one, {"max_input_tokens": 1200}).status_code == 200)
    within_a_second(lambda: limit(other) == 1200 - 100 - 60)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"max_input_token": 5}, "unknown_parameter", "max_input_token"),
        ({"max_input_tokens": "5"}, "invalid_type", "max_input_tokens"),
        ({"max_input_tokens": True}, "invalid_type", "max_input_tokens"),
        ({"max_input_tokens": [1]}, "invalid_type", "max_input_tokens"),
        ({"max_input_tokens": 0}, "invalid_value", "max_input_tokens"),
        ({"max_input_tokens": -1}, "invalid_value", "max_input_tokens"),
        ({"max_input_tokens": 1.5}, "invalid_value", "max_input_tokens"),
        ({"max_output_tokens": 10**30}, "invalid_value", "max_output_tokens"),
        ({"max_input_tokens": 500, "context_window": 400}, "invalid_value", "context_window"),
        ({"threshold": 95}, "invalid_value", "threshold"),
        ({"threshold": 0}, "invalid_value", "threshold"),
        ({"threshold": 0.3}, "invalid_value", "threshold"),
        ({"threshold": 1e400}, "invalid_value", "threshold"),
        ({"retention_tokens": -1}, "invalid_value", "retention_tokens"),
        ({"retention_tokens": 10, "threshold": "high"}, "invalid_type", "threshold"),
        ([], "invalid_type", None),
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b'{"threshold": ' + b"[" * 20_000, "invalid_json", None),
        (b"{" + b" " * 70_000 + b"}", "request_too_large", None),
    ],
)  # fmt: skip
def test_bad_input_is_told_with_its_param_and_changes_nothing(
    bench: Bench, client: Client, body: Any, code: str, param: str | None
) -> None:
    """The ranges are the configuration's; of several fields either all are set or none."""
    if isinstance(body, dict) and body.get("threshold") == float("inf"):
        body = b'{"threshold": 1e400}'
        code = "invalid_json"
        param = "threshold"
    before = model(client)
    got = change(client, body)
    assert got.status_code == (413 if code == "request_too_large" else 400), got.text
    told = got.json()["error"]
    assert (told["code"], told["param"], told["type"]) == (code, param, "invalid_request_error")
    assert model(client)["overrides"] == before["overrides"] == {}


@pytest.mark.parametrize("name", ["nothing-of-the-kind", "llama3:8b", "x" * 300])
def test_an_unknown_name_is_404(client: Client, name: str) -> None:
    """By whichever method; the message says what is there, or what to do."""
    for method in ("GET", "PUT", "DELETE"):
        got = client.http.request(method, f"/tidemark/models/{name}", content=b'{"threshold": 0.5}')
        assert (got.status_code, got.json()["error"]["code"]) == (404, "model_not_found"), got.text


@pytest.fixture
def served(own: Bench, tmp_path: Path, store: EmbeddedValkey) -> Callable[..., httpx.Client]:
    """Start a Tidemark with a host and perhaps an admin token; the socket is a loopback one all the same."""

    def start(host: str, token: str | None = None) -> httpx.Client:
        path = tmp_path / "access.yaml"
        path.write_text(f'upstream: "{own.upstream_url}/v1"\nserver: {{host: "{host}"}}\n')
        environ = {"HOME": str(tmp_path)} | ({"TIDEMARK_ADMIN_TOKEN": token} if token else {})
        app = create_app(load(path, environ), store_url=store.url, secret=SECRET, warn=lambda _: None)
        url = own.stack.enter_context(Serving(app)).url
        return own.stack.enter_context(httpx.Client(base_url=url, timeout=30, verify=NO_TLS))

    return start


def test_changes_need_the_admin_token_where_there_is_one(served: Callable[..., httpx.Client]) -> None:
    """On loopback as well; everybody may read."""
    http = served("127.0.0.1", "s3cret-é")
    one = f"/tidemark/models/{MODEL}"
    given = ["", "Bearer", "Bearer s3cret", "Basic s3cret-é", "Bearer s3cret-éx", "s3cret-é"]
    for wrong, method in zip(given, cycle(("PUT", "DELETE")), strict=False):  # more in a second are not looked at
        got = http.request(method, one, content=b"{}", headers={b"authorization": wrong.encode()})
        assert (got.status_code, got.json()["error"]["code"]) == (401, "invalid_admin_token")
        assert got.headers["www-authenticate"] == "Bearer"
    right = {b"authorization": "Bearer s3cret-é".encode()}
    assert http.put(one, content=b'{"threshold": 0.6}', headers=right).status_code == 200
    assert http.get(one).json()["overrides"] == {"threshold": 0.6}
    assert MODEL in [entry["id"] for entry in http.get("/tidemark/models").json()["data"]]
    assert http.delete(one, headers=right).json()["overrides"] == {}


@pytest.mark.parametrize("hop", ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Via", "X-Real-IP"])
def test_what_came_through_a_reverse_proxy_is_not_from_this_machine(
    served: Callable[..., httpx.Client], hop: str
) -> None:
    """The hop before us is on loopback, but who sent it may be anywhere: without an admin token it changes nothing."""
    got = served("127.0.0.1").put(f"/tidemark/models/{MODEL}", content=b"{}", headers={hop: "for=203.0.113.7"})
    assert (got.status_code, got.json()["error"]["code"]) == (403, "admin_token_required")


class Overhearing(ScriptedUpstream):
    """Writes down the credentials that come with questions for its list of models."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer as ever."""
        if scope["type"] == "http" and scope["method"] == "GET":
            self.heard.append(dict(scope["headers"]).get(b"authorization", b""))
        await super().__call__(scope, receive, send)


def test_the_admin_token_never_goes_upstream(tmp_path: Path, store: EmbeddedValkey) -> None:
    """A server may be asked for its window while a model is shown or set: with the caller's key, or none."""
    upstream = Overhearing()
    path = tmp_path / "tidemark.yaml"
    environ = {"HOME": str(tmp_path), "TIDEMARK_ADMIN_TOKEN": "s3cret"}
    with Serving(upstream) as served:
        path.write_text(f'upstream: "{served.url}/v1"\n')
        app = create_app(load(path, environ), store_url=store.url, secret=SECRET, warn=lambda _: None)
        with Serving(app) as proxy, httpx.Client(base_url=proxy.url, timeout=30, verify=NO_TLS) as http:
            for number, method in enumerate(("GET", "PUT", "DELETE")):
                path_of_one = f"/tidemark/models/some-model-{number}"
                lines = {"authorization": "Bearer s3cret", "x-api-key": "s3cret"}
                assert http.request(method, path_of_one, content=b"{}", headers=lines).status_code == 200
            assert upstream.heard
            assert http.get("/tidemark/models/other", headers={"authorization": "Bearer k"}).status_code == 200
    assert set(upstream.heard) <= {b"", b"Bearer k"}


@pytest.mark.parametrize(
    ("bound", "addressed", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1:1", True),
        ("localhost", "localhost", True),
        ("::1", "[::1]:8787", True),
        ("0.0.0.0", "127.0.0.1", False),  # noqa: S104 - it is what must be refused
        ("::", "127.0.0.1", False),
        ("10.1.2.3", "127.0.0.1", False),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "[", False),
    ],
)
def test_without_a_token_only_this_machine_may_change(
    served: Callable[..., httpx.Client],
    bound: str,
    addressed: str,
    allowed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A loopback bind, asked by a loopback name (a page in a browser cannot); else 403, and the mend."""
    http = served(bound)
    got = http.put(f"/tidemark/models/{MODEL}", content=b'{"threshold": 0.6}', headers={"host": addressed})
    assert got.status_code == (200 if allowed else 403), got.text
    if not allowed:
        told = got.json()["error"]
        page = bound == "127.0.0.1"  # the name that it is addressed by is what is wrong, for all endpoints
        assert told["code"] == ("foreign_origin" if page else "admin_token_required")
        assert ("server.allowed_origins" if page else "TIDEMARK_ADMIN_TOKEN") in told["message"]
    assert http.get("/tidemark/models").status_code == 200


BY_PRICE = """
model_list:
  - model_name: dear
    litellm_params: {{model: openai/dear, api_base: "{base}"}}
    model_info:
      max_input_tokens: 200000
      max_output_tokens: 4000
      input_cost_per_token: 0.000001
      output_cost_per_token: 0.000005
  - model_name: unpriced
    litellm_params: {{model: openai/unpriced, api_base: "{base}"}}
    model_info: {{max_input_tokens: 200000, max_output_tokens: 4000}}
compaction:
  defaults: {{threshold: price, price_floor: 30000}}
"""


def test_the_marks_of_a_model_by_price_follow_its_price(own: Bench) -> None:
    """Before anything is known of a conversation's growth nothing is compacted for money; without a price, as usual."""
    client = own.client("key", config=BY_PRICE)
    dear, unpriced = model(client, "dear"), model(client, "unpriced")
    assert (dear["threshold"], dear["price_floor"], dear["low_water"]) == ("price", 30_000, 7_500)
    assert dear["high_water"] == dear["limit"]
    assert (unpriced["threshold"], unpriced["price_floor"]) == ("price", None)
    assert unpriced["low_water"] == int(0.45 * unpriced["limit"])
    listed = client.http.get("/tidemark/models", headers=client.headers()).json()["data"]
    assert [(row["name"], row["price_floor"]) for row in listed] == [("dear", 30_000), ("unpriced", None)]
