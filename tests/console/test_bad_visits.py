"""What goes wrong on the pages: each case gets a page that says what to do, and nothing that was entered is lost."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Mapping

import httpx
import pytest

from tests.console.conftest import TOKEN, Console, Visitor, paths
from tests.request.conftest import SECRET, WINDOW
from tests.request.talk import history
from tests.support.serving import NO_TLS
from tidemark.console import sessions
from tidemark.console.sessions import COOKIE, IDLE_SECONDS, Sessions
from tidemark.console.visit import MAX_FORM_BYTES
from tidemark.server import guarding
from tidemark.server.operator import OperatorAccess

NOTHING = "0" * 48
ENTERED = "what <I> & you entered"
HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')


@pytest.fixture
def conversation(console: Console) -> str:
    """The id of a conversation with a summary."""
    answer = console.client().chat(history(12), summarize="force")
    return str(answer.headers["x-tidemark-conversation"])


def words(answer: httpx.Response) -> str:
    """The text of a page without its marks."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


OWN = "/console/own/"
"""The pages that serve tenants alone."""


def tenant_of(console: Console) -> Visitor:
    """A browser whose visitor has signed in with the key of a conversation."""
    console.client("a-tenant").chat([{"role": "user", "content": "Hello."}])
    console.settle()
    tenant = console.visitor(signed_in=False)
    assert tenant.http.post("/console/login", data={"token": "a-tenant"}).status_code == 303
    return tenant


def is_told(answer: httpx.Response) -> bool:
    """Whether a page says what is wrong to a screen reader too, and leads on."""
    return 'role="alert"' in answer.text and ("<a " in answer.text or "<form" in answer.text)


def ended_cookie() -> str:
    """The cookie of a session that nobody used for twelve hours."""
    old = Sessions(OperatorAccess("127.0.0.1", TOKEN), SECRET, lambda: time.time() - IDLE_SECONDS - 10)
    return old.cookie(old.new(guarding.Visitor("operator")))


def test_every_page_asks_for_the_sign_in_after_twelve_idle_hours(console: Console, conversation: str) -> None:
    """And leads back to the page that was asked for."""
    http = console.visitor(signed_in=False).http
    for path in paths(console, "GET"):
        page = path.format(id=conversation, request="1-1-1")
        answer = http.get(page, headers={"cookie": f"{COOKIE}={ended_cookie()}"})
        assert answer.status_code == 303, page
        assert answer.headers["location"].startswith("/console/login")
        assert http.get(answer.headers["location"]).status_code == 200
        target = httpx.URL(answer.headers["location"]).params.get("next", "")
        signed_in = http.post("/console/login", data={"token": TOKEN, "next": target})
        assert signed_in.headers["location"] == page
        http.cookies.clear()


def test_every_form_of_an_ended_session_is_kept_over_the_sign_in(console: Console, conversation: str) -> None:
    """A wrong token on the way loses nothing either; the form is confirmed, with a token that is right."""
    http = console.visitor(signed_in=False).http
    for path in paths(console, "POST"):
        form = path.format(id=conversation)
        ended = http.post(form, data={"text": ENTERED}, headers={"cookie": f"{COOKIE}={ended_cookie()}"})
        assert (ended.status_code, is_told(ended)) == (401, True), form
        assert "what you entered is kept" in ended.text
        fields = {name: html.unescape(value) for name, value in HIDDEN.findall(ended.text)}
        asked = http.post("/console/login", data={**fields, "token": TOKEN})
        assert (asked.status_code, ENTERED in words(asked)) == (200, True), form
        assert f'action="{form}"' in asked.text
        http.cookies.clear()


def test_a_wrong_token_keeps_the_form_that_waits(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is still there when the right one is given."""
    monkeypatch.setattr(sessions, "WRONG_TOKEN_SECONDS", 0.0)
    http = console.visitor(signed_in=False).http
    wrong = http.post("/console/login", data={"token": "wrong", "next": "%2Fconsole%2Fmodels", "waiting": "text=kept"})
    assert (wrong.status_code, is_told(wrong)) == (401, True)
    fields = {name: html.unescape(value) for name, value in HIDDEN.findall(wrong.text)}
    assert fields == {"next": "%2Fconsole%2Fmodels", "waiting": "text=kept"}


def test_no_form_is_carried_out_without_its_token(console: Console, conversation: str, visitor: Visitor) -> None:
    """Each is shown again with what was entered."""
    for path in paths(console, "POST"):
        form = path.format(id=conversation)
        for csrf in ("", "0" * 64, "é"):
            answer = visitor.http.post(form, data={"csrf": csrf, "text": ENTERED, "threshold": "0.5"})
            assert (answer.status_code, is_told(answer)) == (403, True), form
            assert ENTERED in words(answer)
    assert visitor.get(f"/console/conversations/{conversation}").status_code == 200
    assert "Reset to" not in visitor.get("/console/settings").text


@pytest.mark.parametrize(
    "sent",
    [
        {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
        {"sec-fetch-site": "same-site", "origin": "https://other.tidemark.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {},
    ],
)
def test_nothing_is_kept_of_another_sites_form(start_console: Callable[..., Console], sent: Mapping[str, str]) -> None:
    """On a port that others reach: not over the sign-in, not by a sign-in of its own, and in no session."""
    console = start_console(config=f"{WINDOW}server: {{{{host: 0.0.0.0}}}}\n")
    signed_in = console.visitor().http.cookies[COOKIE]
    with httpx.Client(base_url=console.url, headers=sent, timeout=30, verify=NO_TLS) as page:
        for path in paths(console, "POST"):
            form = path.replace("{id}", NOTHING)
            asked = page.post(form, data={"action": "reset", "text": ENTERED})
            assert (asked.status_code, is_told(asked), "waiting" in asked.text) == (401, True, False), form
            inside = page.post(form, data={"text": ENTERED}, headers={"cookie": f"{COOKIE}={signed_in}"})
            assert (inside.status_code, is_told(inside), ENTERED in words(inside)) == (403, True, False), form
        fields = {"token": TOKEN, "next": "%2Fconsole%2Fsettings", "waiting": f"text={ENTERED}"}
        handed = page.post("/console/login", data=fields)
        assert (handed.status_code, ENTERED in words(handed)) == (403 if sent else 303, False)


def test_over_plain_http_the_origin_tells_whose_a_form_is(console: Console) -> None:
    """A browser sends no ``Sec-Fetch-Site`` to a name of another machine without TLS."""
    own = {"origin": console.url}
    kept = httpx.post(f"{console.url}/console/settings", data={"text": ENTERED}, headers=own, verify=NO_TLS)
    assert (kept.status_code, "what you entered is kept" in kept.text) == (401, True)


@pytest.mark.parametrize("identifier", [NOTHING, "nothing", "%00x%3Cb%3E", "%F0%9F%8C%8A"])
def test_an_id_of_nothing_is_told_on_every_page(console: Console, visitor: Visitor, identifier: str) -> None:
    """The list is one click away."""
    for method in ("GET", "POST"):
        for path in (path for path in paths(console, method) if "{id}" in path):
            page = path.replace("{id}", identifier)
            fields = {"words": "tide", "text": "A text.", "version": "v", "preview": "0" * 32}
            answer = visitor.get(page) if method == "GET" else visitor.send(page, **fields)
            assert (answer.status_code, is_told(answer)) == (404, True), page
            if "/keys/" in page:
                assert "There is no key" in answer.text
                continue
            assert "There is no conversation of this id" in answer.text
            assert 'href="/console/conversations">Back to the conversations' in answer.text


@pytest.mark.parametrize("place", ["nonsense", "-1", "9" * 30, "0", "<b>", ""])
def test_a_page_number_of_nonsense_leads_to_the_first_page(visitor: Visitor, conversation: str, place: str) -> None:
    """Of the list and of a conversation; an empty one is the first page itself."""
    listed, own = "/console/conversations", f"/console/conversations/{conversation}"
    for path, name in ((listed, "cursor"), (listed, "newer"), (own, "cursor")):
        answer = visitor.http.get(path, params={name: place})
        if not place:
            assert answer.status_code == 200
            continue
        assert (answer.status_code, is_told(answer)) == (400, True)
        assert "There is no such page" in answer.text
        assert f'href="{path}">Open the page from its beginning' in answer.text


def test_every_page_says_that_the_store_is_away(console: Console, visitor: Visitor, conversation: str) -> None:
    """It was open or is opened meanwhile; it can be tried again, and works when the store is back."""
    pages, tenant = (
        [path.format(id=conversation, request="1-1-1") for path in paths(console, "GET")],
        tenant_of(console),
    )
    console.store.stop()
    for page in pages:
        answer = (tenant if page.startswith(OWN) else visitor).get(page)
        assert (answer.status_code, is_told(answer)) == (503, True), page
        assert "does not answer" in answer.text
        assert "try again" in answer.text.lower()


def test_every_form_is_kept_while_the_store_is_away(console: Console, visitor: Visitor, conversation: str) -> None:
    """In its own page or in one to send it again; signing out works all the same."""
    forms = [path.format(id=conversation) for path in paths(console, "POST")]
    before = visitor.get("/console/models").text
    token = re.findall(r'name="csrf" content="(\w+)"', before)[0]
    entered = {"words": ENTERED, "retention": "123", "text": ENTERED, "template": "coding", "threshold": "0.77"}
    tenant = tenant_of(console)
    own_token = re.findall(r'name="csrf" content="(\w+)"', tenant.get("/console").text)[0]
    console.store.stop()
    for form in forms:
        model = "openai:scripted" if form.endswith("models") else ""
        fields = {"csrf": own_token if form.startswith(OWN) else token, "model": model, **entered}
        answer = (tenant if form.startswith(OWN) else visitor).http.post(form, data=fields)
        if form == "/console/logout":
            assert answer.status_code == 303
            assert visitor.http.post("/console/login", data={"token": TOKEN}).status_code == 303
            token = re.findall(r'name="csrf" content="(\w+)"', visitor.get("/console/settings").text)[0]
            continue
        assert (answer.status_code, is_told(answer)) == (503, True), form
        assert any(value in html.unescape(answer.text) for value in (ENTERED, "0.77", ">coding<")), form


def test_a_form_that_is_too_large_says_how_large_it_may_be(visitor: Visitor) -> None:
    """The limit of a form, and not the one of requests, which the operator could raise in vain."""
    answer = visitor.http.post("/console/settings", data={"text": "x" * MAX_FORM_BYTES})
    assert (answer.status_code, is_told(answer)) == (413, True)
    assert "1 MB" in answer.text
    assert "max_body_mb" not in answer.text
