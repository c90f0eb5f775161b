"""What the audit log says of people: every reading, change and sign-in is in it before its answer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from click.testing import CliRunner, Result

from tests.console.conftest import TOKEN, Console, Visitor, consoled
from tests.request.talk import history, user
from tests.support.serving import NO_TLS
from tidemark.cli.main import cli
from tidemark.console import sessions
from tidemark.console.visit import PARTS_HEADER

AUDITOR, KEY = "a" * 40, "key-of-a-tenant"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
OWN = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """A console whose store is the test's own; wrong tokens are answered at once."""
    monkeypatch.setattr(sessions, "WRONG_TOKEN_SECONDS", 0.0)
    with consoled(tmp_path, auditor=AUDITOR) as started:
        yield started


@pytest.fixture
def conversation(console: Console) -> str:
    """A tenant's."""
    answer = console.client(KEY).chat([*history(6), user("zanzibar marmalade")])
    console.settle()
    return answer.headers["x-tidemark-conversation"]


def ask(console: Console, method: str, path: str, headers: dict[str, str] = ADMIN, **more: Any) -> httpx.Response:
    """A request for the API."""
    return httpx.request(method, console.url + path, headers=headers, verify=NO_TLS, timeout=30, **more)


def entries(console: Console, **filters: str) -> list[dict[str, Any]]:
    """The entries, oldest first."""
    console.settle()
    page = ask(console, "GET", "/tidemark/audit", params={"limit": "200", **filters}).json()
    return list(reversed(page["data"]))


def actions(console: Console, **filters: str) -> list[str]:
    """What was done."""
    return [entry["action"] for entry in entries(console, **filters)]


def command(console: Console, tmp_path: Path, *words: str) -> Result:
    """Run ``tidemark`` upon the same store, with the servers' secret."""
    environ = {
        **os.environ,
        "TIDEMARK_STORE_URL": console.store.url,
        "TIDEMARK_DATA_DIR": str(tmp_path / "elsewhere"),
        "TIDEMARK_SECRET": "a secret of the tests",
    }
    return CliRunner().invoke(cli, list(words), env=environ)


def test_an_operators_reading_names_whose_text_it_was(console: Console, conversation: str) -> None:
    """By the API: who, from where, of which conversation and tenant; never a word of it."""
    path = f"/tidemark/conversations/{conversation}"
    for reading in ("", "/context", "/summaries", "/search?q=zanzibar", "/export"):
        assert ask(console, "GET", path + reading).status_code == 200
    log = entries(console)
    assert [entry["action"] for entry in log] == [
        "conversation.read",
        "conversation.read",
        "summary.read",
        "conversation.search",
        "conversation.export",
    ]
    tenants = {entry["tenant"] for entry in log}
    assert len(tenants) == 1
    assert len(tenants.pop()) == 32
    assert {(entry["role"], entry["subject"], entry["address"]) for entry in log} == {
        ("operator", conversation, "127.0.0.1")
    }
    assert "zanzibar" not in json.dumps(log)


def test_a_tenants_own_program_is_traffic_but_for_what_it_changes_and_takes_away(
    console: Console, conversation: str
) -> None:
    """Its readings of what is its own are none of a person; an export, an edit and a forget are named."""
    path = f"/tidemark/conversations/{conversation}"
    assert ask(console, "GET", path, OWN).status_code == 200
    assert ask(console, "GET", "/tidemark/conversations", OWN).status_code == 200
    assert ask(console, "GET", f"{path}/export", OWN).status_code == 200
    assert ask(console, "DELETE", path, OWN).status_code == 200
    assert ask(console, "DELETE", path, OWN).status_code == 404
    log = entries(console)
    assert [entry["action"] for entry in log] == [
        "conversation.export",
        "conversation.forget",
        "conversation.forget",
        "conversation.forget.failed",
    ]
    assert {entry["role"] for entry in log} == {"tenant"}
    assert len({entry["tenant"] for entry in log}) == 1


def test_changes_of_settings_and_models_are_named(console: Console) -> None:
    """And those that were refused."""
    assert ask(console, "PUT", "/tidemark/settings", json={"threshold": 0.7}).status_code == 200
    assert ask(console, "PUT", "/tidemark/settings", json={"threshold": 7}).status_code == 400
    assert ask(console, "PUT", "/tidemark/models/openai:scripted", json={"threshold": 0.7}).status_code == 200
    log = entries(console)
    assert [(entry["action"], entry["subject"]) for entry in log] == [
        ("settings.change", "threshold"),
        ("settings.change.failed", ""),
        ("model.change", "openai:scripted"),
    ]


def test_each_change_of_a_key_is_one_entry_that_names_it_and_its_tenant(console: Console, tmp_path: Path) -> None:
    """By the API and by a page; what was refused is one entry, too."""
    made = ask(console, "POST", "/tidemark/keys", json={"name": "app"}).json()
    path = f"/tidemark/keys/{made['id']}"
    assert ask(console, "POST", "/tidemark/keys", json={"name": "app"}).status_code == 409
    assert ask(console, "PATCH", path, json={"concurrent": 2}).status_code == 200
    assert ask(console, "POST", f"{path}/rotate", json={"grace_hours": 1}).status_code == 200
    assert ask(console, "DELETE", path).status_code == 200
    assert ask(console, "DELETE", path).status_code == 404
    visitor = console.visitor()
    assert visitor.send("/console/keys", name="by-page").status_code == 200
    other = ask(console, "GET", "/tidemark/keys").json()["data"][0]
    assert visitor.send(f"/console/keys/{other['id']}/rotate").status_code == 200
    assert visitor.send(f"/console/keys/{other['id']}/revoke").status_code == 303
    log = [entry for entry in entries(console) if entry["action"] != "sign-in"]
    assert [(entry["action"], entry["subject"], entry["tenant"]) for entry in log] == [
        ("key.create", made["id"], made["owner"]),
        ("key.create.failed", "", ""),
        ("key.change", made["id"], made["owner"]),
        ("key.rotate", made["id"], made["owner"]),
        ("key.revoke", made["id"], made["owner"]),
        ("key.revoke.failed", "", ""),
        ("key.create", other["id"], other["owner"]),
        ("key.rotate", other["id"], other["owner"]),
        ("key.revoke", other["id"], other["owner"]),
    ]


def test_nothing_is_changed_that_the_log_does_not_take(console: Console, conversation: str) -> None:
    """Nor what a handler announces itself: no entry can be added here, while the rest of the store works."""
    made = ask(console, "POST", "/tidemark/keys", json={"name": "app"}).json()
    assert ask(console, "GET", f"/tidemark/conversations/{conversation}").status_code == 200
    tenant = entries(console)[-1]["tenant"]
    with redis.Redis.from_url(console.store.url) as admin:
        admin.delete("tm:{audit}:s")
        admin.set("tm:{audit}:s", "no stream")
        before = admin.hgetall("tm:{models}:a")
        path = f"/tidemark/keys/{made['id']}"
        for method, place, fields in (
            ("POST", "/tidemark/keys", {"name": "other"}),
            ("PATCH", path, {"concurrent": 2}),
            ("POST", f"{path}/rotate", {}),
            ("DELETE", path, {}),
            ("PUT", "/tidemark/settings", {"threshold": 0.6}),
            ("DELETE", "/tidemark/settings", {}),
            ("DELETE", f"/tidemark/tenants/{tenant}", {}),
        ):
            assert ask(console, method, place, json=fields).status_code >= 500, (method, place)
        assert admin.hgetall("tm:{models}:a") == before
        admin.delete("tm:{audit}:s")
    assert ask(console, "GET", f"/tidemark/conversations/{conversation}").status_code == 200
    assert ask(console, "GET", "/tidemark/settings").json()["stored"] == []


def test_a_page_of_settings_keeps_what_was_entered_if_the_log_is_away(console: Console) -> None:
    """The same page is shown, with the error above the fields."""
    visitor = console.visitor()
    version = ask(console, "GET", "/tidemark/settings").json()["version"]
    with redis.Redis.from_url(console.store.url) as admin:
        admin.config_set("maxmemory", "1")  # the store answers, and takes no writes
    fields = {"action": "save", "threshold": "0.61", "version": version}
    answer = visitor.send("/console/settings", at="/console/settings", **fields)
    assert answer.status_code == 503
    assert "Effective configuration" in answer.text
    assert 'value="0.61"' in answer.text
    assert "What you entered is kept" in answer.text


@pytest.mark.parametrize("is_empty", [True, False], ids=["no entry", "entries"])
def test_a_full_store_is_named_by_what_it_refuses(console: Console, conversation: str, *, is_empty: bool) -> None:
    """Deleting is what an operator tries then. The answer says why it fails, and what helps."""
    with redis.Redis.from_url(console.store.url) as admin:
        if is_empty:
            admin.delete("tm:{audit}:s", "tm:{audit}:h")
        admin.config_set("maxmemory", "1")
        answer = ask(console, "DELETE", f"/tidemark/conversations/{conversation}")
        admin.config_set("maxmemory", "0")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "store_unavailable"
    assert "it is full. Raise its maxmemory" in answer.json()["error"]["message"]
    assert ask(console, "DELETE", f"/tidemark/conversations/{conversation}").is_success


def test_sign_ins_and_what_was_refused_are_named(console: Console, conversation: str) -> None:
    """With the role of who came in; a wrong token stands nowhere."""
    http = console.visitor(signed_in=False).http
    assert http.post("/console/login", data={"token": "a-wrong-token"}).status_code == 401
    for token in (TOKEN, AUDITOR, KEY):
        assert console.visitor(signed_in=False).http.post("/console/login", data={"token": token}).status_code == 303
    assert ask(console, "GET", "/tidemark/stats", {"authorization": "Bearer wrong-again"}).status_code == 401
    assert ask(console, "GET", "/tidemark/conversations", {"authorization": f"Bearer {AUDITOR}"}).status_code == 403
    log = entries(console)
    assert sorted((entry["action"], entry["role"]) for entry in log) == [
        ("access.refused", "auditor"),
        ("sign-in", "auditor"),
        ("sign-in", "operator"),
        ("sign-in", "tenant"),
        ("sign-in.refused", "tenant"),
        ("token.refused", "tenant"),
    ]
    assert "wrong" not in json.dumps(log)


def test_an_open_page_is_one_reading_for_a_while(console: Console, conversation: str) -> None:
    """It asks for what is new every few seconds; opened anew it is another reading."""
    visitor = console.visitor()
    page = f"/console/conversations/{conversation}"
    assert visitor.get(page).status_code == 200
    for _ in range(3):
        assert visitor.http.get(page, headers={PARTS_HEADER: "facts="}).status_code == 200
    assert actions(console, subject=conversation) == ["conversation.read"]
    assert visitor.get(page).status_code == 200
    assert visitor.http.get("/console/conversations", headers={PARTS_HEADER: "rows="}).status_code == 200
    assert actions(console) == ["sign-in", "conversation.read", "conversation.read", "conversations.list"]


def test_what_people_do_on_pages_is_named(console: Console, conversation: str) -> None:
    """From the list to forgetting, and the sign-out."""
    visitor, page = console.visitor(), f"/console/conversations/{conversation}"
    assert visitor.send("/console/conversations", words="zanzibar").status_code == 200
    assert visitor.send(f"{page}/summarize", retention="0").status_code == 303
    assert visitor.send(f"{page}/summaries/preview").status_code == 200
    assert visitor.get(f"{page}/export").status_code == 200
    assert visitor.send(f"{page}/forget").status_code == 303
    assert visitor.send("/console/logout").status_code == 303
    assert actions(console)[1:] == [
        "conversations.search",
        "summary.make",
        "summary.preview",
        "conversation.export",
        "conversation.forget",
        "sign-out",
    ]


def test_while_the_store_is_away_nothing_is_shown_and_the_sign_in_is_named_later(
    console: Console, conversation: str
) -> None:
    """A reading that cannot be logged is refused; signing in shows nothing by itself."""
    console.store.stop()
    visitor = console.visitor()
    for path in (f"/console/conversations/{conversation}", "/console/conversations"):
        assert visitor.get(path).status_code == 503
    assert ask(console, "GET", f"/tidemark/conversations/{conversation}").status_code == 503
    assert ask(console, "PUT", "/tidemark/settings", json={"threshold": 0.7}).status_code == 503
    console.store.start()
    console.settle()
    assert "sign-in" in actions(console)


def test_the_page_shows_the_log_to_operators_and_auditors(console: Console, conversation: str) -> None:
    """With filters, and page by page."""
    for _ in range(3):
        ask(console, "GET", f"/tidemark/conversations/{conversation}")
    auditor = console.visitor(signed_in=False)
    assert auditor.http.post("/console/login", data={"token": AUDITOR}).status_code == 303
    page = auditor.get("/console/audit")
    assert page.status_code == 200
    assert page.text.count("conversation.read") == 3
    assert auditor.get("/console/audit?action=sign-in").text.count("conversation.read") == 0
    assert "No entry has these values" in auditor.get("/console/audit?actor=nobody").text
    assert {auditor.get(f"/console/audit?before={text}").status_code for text in ("x", "0", "-1", "²")} == {400}
    assert "/console/conversations" not in page.text.split("</nav>")[0]


def test_an_api_page_goes_on_where_the_last_one_ended(console: Console, conversation: str) -> None:
    """By ``before``, also with filters; a bad one is named."""
    for _ in range(5):
        ask(console, "GET", f"/tidemark/conversations/{conversation}")
    numbers, before = [], "6"
    while before != "None":
        page = ask(console, "GET", f"/tidemark/audit?limit=2&before={before}&role=operator").json()
        numbers += [entry["number"] for entry in page["data"]]
        before = str(page["before"])
    assert numbers == [5, 4, 3, 2, 1]
    assert ask(console, "GET", "/tidemark/audit?limit=0").status_code == 400
    assert ask(console, "GET", "/tidemark/audit", OWN).status_code == 401


def test_commands_verify_export_and_are_named_themselves(console: Console, conversation: str, tmp_path: Path) -> None:
    """A tampered log ends verify with 1; what a command takes out of the store is in the log."""
    ask(console, "GET", f"/tidemark/conversations/{conversation}")
    exported = command(console, tmp_path, "store", "export", str(tmp_path / "all.jsonl.zst"))
    assert exported.exit_code == 0, exported.output
    log = entries(console)
    assert [(entry["action"], entry["subject"]) for entry in log][1:] == [("store.export", "all.jsonl.zst")]
    assert log[1]["actor"].startswith("command of ")
    whole = command(console, tmp_path, "audit", "verify", "--json")
    assert (whole.exit_code, json.loads(whole.stdout)["entries"]) == (0, 2), whole.output
    head = json.loads(whole.stdout)["head"]
    assert command(console, tmp_path, "audit", "verify", "--head", head).exit_code == 0
    lines = command(console, tmp_path, "audit", "export", "--since", "1d").stdout.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2]
    file = tmp_path / "audit.jsonl"
    assert command(console, tmp_path, "audit", "export", "--jsonl", str(file)).exit_code == 0
    assert len(file.read_text().splitlines()) == 2
    assert command(console, tmp_path, "audit", "export", "--since", "x").exit_code != 0
    assert command(console, tmp_path, "audit", "verify", "--head", "x").exit_code != 0
    with redis.Redis.from_url(console.store.url) as admin:
        admin.xdel("tm:{audit}:s", "1-0")
    broken = command(console, tmp_path, "audit", "verify")
    assert (broken.exit_code, "missing" in broken.output) == (1, True)


def test_an_erasure_is_one_entry_by_the_api_and_by_the_command(
    console: Console, conversation: str, tmp_path: Path
) -> None:
    """Before anything is erased; with the whole name of the tenant, of which a beginning may be given."""
    ask(console, "GET", f"/tidemark/conversations/{conversation}")
    tenant = entries(console)[0]["tenant"]
    done = command(console, tmp_path, "tenants", "forget", tenant[:8], "--yes")
    assert done.exit_code == 0, done.output
    console.client("another").chat([user("Hello.")])
    console.settle()
    other = ask(console, "GET", "/tidemark/conversations").json()["data"][0]["id"]
    ask(console, "GET", f"/tidemark/conversations/{other}")
    owner = entries(console)[-1]["tenant"]
    assert ask(console, "DELETE", f"/tidemark/tenants/{owner[:8]}").status_code == 200
    log = entries(console, action="tenant")
    assert [(entry["action"], entry["tenant"], entry["subject"]) for entry in log] == [
        ("tenant.forget", tenant, tenant[:8]),
        ("tenant.forget", owner, owner[:8]),
    ]


def test_nobody_with_a_session_reads_unlogged_by_a_made_up_header(console: Console, conversation: str) -> None:
    """The header of an open page counts only after a reading of the same person and place."""
    visitor: Visitor = console.visitor()
    page = f"/console/conversations/{conversation}"
    assert visitor.http.get(page, headers={PARTS_HEADER: "messages="}).status_code == 200
    assert actions(console, subject=conversation) == ["conversation.read"]
