"""Keys of the application: who has one is its tenant, and nobody else is served (``auth.mode: keys``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.features.keys.conftest import KEYED, Keyed
from tests.request.conftest import benched
from tests.request.talk import user
from tests.support.waiting import wait_until
from tidemark.config import load
from tidemark.core.errors import KeyConflict
from tidemark.features.keys.feature import KeysFeature
from tidemark.features.keys.fields import read_fields
from tidemark.features.keys.service import Described
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.worker.worker import Worker

PATIENCE_SECONDS = 10.0


def code(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal."""
    return answer.status_code, str(answer.json()["error"]["code"])


def test_a_new_key_is_shown_once_and_serves_its_holder_with_the_configured_credential(keyed: Keyed) -> None:
    """The upstream gets the operator's key, and nothing of the client's."""
    made = keyed.create("app", tenant="shop", models=["small"], expires="2099-01-01")
    shown = {name: made[name] for name in ("name", "tenant", "models", "expires")}
    assert shown == {"name": "app", "tenant": "shop", "models": ["small"], "expires": "2099-01-01T00:00:00Z"}
    assert made["key"].startswith("sk-tm-" + made["id"])
    assert len(made["key"]) == 61
    assert keyed.client(made["key"]).chat([user("Hello.")]).status_code == 200
    lines = keyed.sent()[-1]
    assert lines["authorization"] == "Bearer sk-configured"
    assert made["key"] not in " ".join(lines.values())
    listed = keyed.ask("GET", "").json()["data"]
    assert [entry["id"] for entry in listed] == [made["id"]]
    assert made["key"] not in str(listed)
    assert "key" not in keyed.ask("GET", f"/{made['id']}").json()


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key"])
def test_every_header_of_a_clients_key_is_read_and_none_goes_on(keyed: Keyed, header: str) -> None:
    """Beside it, others that could pay or tell who somebody is."""
    key = keyed.create()["key"]
    value = f"Bearer {key}" if header == "authorization" else key
    more = {"cookie": "session=1", "x-goog-api-key": "g", "openai-organization": "org-other", "openai-project": "p"}
    answer = keyed.operator.http.post(
        "/v1/chat/completions",
        json={"model": "small", "messages": [user("Hello.")]},
        headers={header: value, "x-custom": "stays", **more},
    )
    assert answer.status_code == 200
    lines = keyed.sent()[-1]
    assert lines["x-custom"] == "stays"
    assert not {"cookie", "x-api-key", "api-key", "x-goog-api-key"} & lines.keys()
    assert not {"openai-organization", "openai-project"} & lines.keys()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/responses/input_tokens"])
def test_who_has_no_key_or_a_wrong_one_gets_401_and_nothing_is_sent(keyed: Keyed, path: str) -> None:
    """Unknown, revoked, expired and cut keys get the same words, so that nobody learns which keys there are."""
    made = keyed.create()
    revoked = keyed.create("old")
    keyed.ask("DELETE", f"/{revoked['id']}")
    body = {"model": "small", "messages": [user("Hello.")], "input": "x"}
    wrong = ["sk-tm-" + "x" * 55, revoked["key"], made["key"][:-1], made["key"] + "x", "sk-configured", "k" * 3000]
    answers = [keyed.operator.http.post(path, json=body, headers={"authorization": f"Bearer {key}"}) for key in wrong]
    assert {code(answer) for answer in answers} == {(401, "invalid_api_key")}
    assert len({answer.content for answer in answers}) == 1
    assert code(keyed.operator.http.post(path, json=body)) == (401, "invalid_api_key")
    basic = keyed.operator.http.post(path, json=body, headers={"authorization": f"Basic {made['key']}"})
    assert code(basic) == (401, "invalid_api_key")
    assert not keyed.bench.upstream.received


def test_anthropics_clients_get_the_refusal_in_their_own_words(keyed: Keyed) -> None:
    """The SDK's exception depends on the type."""
    body = {"model": "small", "max_tokens": 5, "messages": [user("Hello.")]}
    refused = keyed.operator.http.post("/v1/messages", json=body, headers={"x-api-key": "wrong"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    key = keyed.create(models=["large"])["key"]
    forbidden = keyed.operator.http.post("/v1/messages", json=body, headers={"x-api-key": key})
    assert (forbidden.status_code, forbidden.json()["error"]["type"]) == (403, "permission_error")


def test_two_keys_of_tidemark_in_one_request_are_refused(keyed: Keyed) -> None:
    """Nobody could say whose request it is; beside a foreign key, Tidemark's own counts."""
    one, other = keyed.create("one")["key"], keyed.create("other")["key"]
    body = {"model": "small", "messages": [user("Hello.")]}
    http = keyed.operator.http
    two = http.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {one}", "x-api-key": other})
    assert code(two) == (401, "invalid_api_key")
    mixed = {"authorization": f"Bearer {one}", "x-api-key": "sk-ant-1"}
    assert http.post("/v1/chat/completions", json=body, headers=mixed).status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_key_in_the_url_is_never_accepted(keyed: Keyed, path: str) -> None:
    """Not alone, nor beside one in a header, where it would go upstream; percent signs do not hide it."""
    key = keyed.create()["key"]
    body = {"model": "small", "messages": [user("Hello.")], "input": "x"}
    http = keyed.operator.http
    assert code(http.post(f"{path}?api_key={key}", json=body)) == (401, "invalid_api_key")
    beside = http.post(f"{path}?key={key.replace('-', '%2D')}", json=body, headers={"authorization": f"Bearer {key}"})
    assert code(beside) == (401, "invalid_api_key")
    assert "URL" in beside.json()["error"]["message"]
    assert not keyed.bench.upstream.received


def test_conversations_survive_a_rotation_and_belong_to_the_tenant(keyed: Keyed) -> None:
    """Two keys of a tenant see the same conversations, and a key of another tenant none."""
    made = keyed.create("app", tenant="shop")
    keyed.client(made["key"]).chat([user("Hello.")], conversation="talk")
    rotated = keyed.ask("POST", f"/{made['id']}/rotate").json()
    assert rotated["key"] != made["key"]
    assert rotated["id"] == made["id"]
    assert code(keyed.client(made["key"]).chat([user("Hello.")])) == (401, "invalid_api_key")
    second, stranger = keyed.create("second", tenant="shop"), keyed.create("stranger")

    def status(key: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        return keyed.operator.http.get("/tidemark/conversations/talk", headers=headers).status_code

    assert [status(entry["key"]) for entry in (rotated, second, stranger)] == [200, 200, 404]


def test_the_secret_before_a_rotation_goes_on_for_its_grace(keyed: Keyed) -> None:
    """And ends with the key."""
    made = keyed.create()
    rotated = keyed.ask("POST", f"/{made['id']}/rotate", grace_hours=1).json()
    assert rotated["former_until"] is not None
    for key in (made["key"], rotated["key"]):
        assert keyed.client(key).chat([user("Hello.")]).status_code == 200
    keyed.ask("DELETE", f"/{made['id']}")
    for key in (made["key"], rotated["key"]):
        assert code(keyed.client(key).chat([user("Hello.")])) == (401, "invalid_api_key")


async def test_of_two_operators_who_rotate_at_once_the_second_is_told(tmp_path: Path) -> None:
    """Nobody hands out a secret that is dead already, and the first one's promise of a grace holds."""
    settings = load(None, {"TIDEMARK_DATA_DIR": str(tmp_path)})
    with EmbeddedValkey(tmp_path / "store") as store:
        worker = Worker(settings, lambda _: None, store_url=store.url, secret=b"a secret of the tests")
        try:
            keys = KeysFeature(worker).keys
            made = await keys.create(read_fields({"name": "app"}), _announced)
            first: list[Described] = []

            async def rotated_by_another(subject: str, tenant: str) -> None:
                """Rotate while the log takes the entry of this operator."""
                first.append(await keys.rotate(str(made["id"]), 1.0, _announced))

            with pytest.raises(KeyConflict, match="Rotate again"):
                await keys.rotate(str(made["id"]), 1.0, rotated_by_another)
            for secret in (made["key"], first[0]["key"]):
                worker.keys.judge(str(secret).encode())
        finally:
            await worker.aclose()


async def _announced(subject: str, tenant: str) -> None:
    """The log takes every entry."""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "Missing required parameter: 'name'"),
        ({"name": " "}, "printable"),
        ({"name": "a", "expires": "2001-01-01"}, "in the past"),
        ({"name": "a", "expires": "tomorrow"}, "must be a date"),
        ({"name": "a", "expires": "9999-12-31T23:59:59-12:00"}, "years 1 to 9999"),
        ({"name": "a", "expires": "0001-01-01T00:00:00+12:00"}, "years 1 to 9999"),
        ({"name": "a", "models": []}, "is empty"),
        ({"name": "a", "models": [1]}, "list"),
        ({"name": "a", "models": ["*a*b*c*d*e*"]}, "at most 4 *"),
        ({"name": "a", "requests_per_minute": 0}, "1 or more"),
        ({"name": "a", "concurrent": True}, "1 or more"),
        ({"name": "a", "admin": True}, "Unknown parameter"),
    ],
)
def test_a_bad_field_is_refused_and_no_key_is_made(keyed: Keyed, fields: dict[str, Any], words: str) -> None:
    """The message says what is wrong."""
    refused = keyed.ask("POST", "", **fields) if fields else keyed.ask("POST", "", models=["small"])
    assert refused.status_code == 400
    assert words in refused.json()["error"]["message"]
    assert keyed.ask("GET", "").json()["data"] == []


@pytest.mark.parametrize("fields", [{"grace": 24}, {"grace_hours": -1}, {"grace_hours": "24"}, {"grace_hours": 9e9}])
def test_a_rotation_that_is_misspelled_ends_no_secret(keyed: Keyed, fields: dict[str, Any]) -> None:
    """Without its grace it would cut off all clients at once."""
    made = keyed.create()
    refused = keyed.ask("POST", f"/{made['id']}/rotate", **fields)
    assert refused.status_code == 400
    assert "grace_hours" in refused.json()["error"]["message"]
    assert keyed.client(made["key"]).chat([user("Hello.")]).status_code == 200


def test_two_keys_have_no_name_in_common(keyed: Keyed) -> None:
    """Neither a new one nor a renamed one; the name of a revoked key is free again."""
    made = keyed.create("app")
    assert code(keyed.ask("POST", "", name="app")) == (409, "key_conflict")
    other = keyed.create("other")
    assert code(keyed.ask("PATCH", f"/{other['id']}", name="app")) == (409, "key_conflict")
    assert keyed.ask("DELETE", f"/{made['id']}").json()["deleted"] is True
    assert keyed.ask("PATCH", f"/{other['id']}", name="app").json()["name"] == "app"


def test_a_change_keeps_the_secret_and_the_tenant(keyed: Keyed) -> None:
    """Models and bounds may change; null resets one."""
    made = keyed.create(models=["large"], concurrent=3)
    client = keyed.client(made["key"])
    assert code(client.chat([user("Hello.")])) == (403, "model_not_allowed")
    changed = keyed.ask("PATCH", f"/{made['id']}", models=None, concurrent=None).json()
    assert (changed["models"], changed["concurrent"]) == ([], None)
    assert client.chat([user("Hello.")]).status_code == 200
    assert keyed.ask("PATCH", f"/{made['id']}", tenant="other").status_code == 400
    assert code(keyed.ask("PATCH", "/nobody", name="x")) == (404, "key_not_found")


def test_a_model_that_no_entry_has_is_warned_of_with_the_nearest(keyed: Keyed) -> None:
    """The key is made all the same, since the model may come later."""
    made = keyed.create(models=["smallx", "small-*"])
    assert made["warnings"] == ['no entry of model_list has the name "smallx"; did you mean "small"?']


def test_a_key_that_nothing_asks_for_is_made_with_a_warning(keyed: Keyed) -> None:
    """Otherwise an operator takes a server that everybody may use for a closed one."""
    assert "warnings" not in keyed.create()
    opened = keyed.bench.client("", config=KEYED.replace("auth: {{mode: keys}}", ""))
    made = opened.http.post("/tidemark/keys", json={"name": "more", "models": ["smallx"]}).json()
    assert [warning.partition(",")[0].partition(";")[0] for warning in made["warnings"]] == [
        'no entry of model_list has the name "smallx"',
        "this server asks for no key",
    ]
    assert "auth: {mode: keys}" in made["warnings"][-1]


def test_a_quota_beyond_all_bounds_is_refused_with_them(keyed: Keyed) -> None:
    """The message names both."""
    refused = keyed.ask("POST", "", name="big", tokens_per_day=10**22)
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        400,
        "'tokens_per_day' must be a whole number of 1 or more, and at most 9,007,199,254,740,992.",
    )


def test_a_revoked_key_is_refused_by_another_worker_too(keyed: Keyed) -> None:
    """By the version that every worker polls."""
    made = keyed.create()
    other = keyed.bench.client(made["key"], config=KEYED)
    wait_until(lambda: other.chat([user("Hello.")]).status_code == 200, PATIENCE_SECONDS)
    keyed.ask("DELETE", f"/{made['id']}")
    wait_until(lambda: other.chat([user("Hello.")]).status_code == 401, PATIENCE_SECONDS)


def test_only_the_operator_manages_keys(keyed: Keyed) -> None:
    """A request through a proxy on this machine is not the operator's, with a key or without."""
    made = keyed.create()
    headers = {"authorization": f"Bearer {made['key']}", "x-forwarded-for": "10.0.0.1"}
    http = keyed.operator.http
    for method, path in (("GET", ""), ("POST", ""), ("DELETE", f"/{made['id']}"), ("POST", f"/{made['id']}/rotate")):
        assert http.request(method, f"/tidemark/keys{path}", headers=headers).status_code == 403
    assert keyed.client(made["key"]).chat([user("Hello.")]).status_code == 200


def test_the_operator_sees_the_models_without_a_key_and_counting_needs_one(keyed: Keyed) -> None:
    """``/tidemark/models`` is the operator's page, too; counting costs whoever serves it."""
    http = keyed.operator.http
    assert http.get("/tidemark/models").status_code == 200
    assert http.get("/tidemark/models", headers={"x-forwarded-for": "1.2.3.4"}).status_code == 401
    body = {"model": "small", "messages": [user("Hello.")]}
    assert http.post("/tidemark/count", json=body).status_code == 401
    headers = {"authorization": f"Bearer {keyed.create()['key']}"}
    assert http.post("/tidemark/count", json=body, headers=headers).status_code == 200


def test_without_the_store_the_keys_read_last_hold_and_no_new_one_is_made(tmp_path: Path) -> None:
    """A revocation is refused aloud, too; a worker that starts then asks its clients to try again."""
    with EmbeddedValkey(tmp_path / "store") as store, benched(store.url, tmp_path) as bench:
        keyed = Keyed(bench, bench.client("", config=KEYED))
        made = keyed.create(requests_per_minute=1)
        store.stop()
        client = keyed.client(made["key"])
        assert [client.chat([user("Hello.")]).status_code for _ in range(2)] == [200, 200]
        assert code(keyed.client("sk-tm-unknown").chat([user("Hello.")])) == (401, "invalid_api_key")
        for method, path, fields in (("POST", "", {"name": "b"}), ("DELETE", f"/{made['id']}", {}), ("GET", "", {})):
            assert code(keyed.ask(method, path, **fields)) == (503, "store_unavailable")
        late = bench.client(made["key"], config=KEYED).chat([user("Hello.")])
        assert code(late) == (503, "server_busy")
        assert int(late.headers["retry-after"]) == 1
