"""Who may open the console, for how long, and what other sites can do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from starlette.requests import Request

from tests.console.conftest import TOKEN, Console
from tests.request.conftest import WINDOW
from tests.support.serving import NO_TLS
from tidemark.console import sessions
from tidemark.console.sessions import COOKIE, IDLE_SECONDS, MAX_HELD_BACK, Sessions
from tidemark.server.guarding import Visitor
from tidemark.server.operator import OperatorAccess

OPERATOR = Visitor("operator")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong tokens are answered at once."""
    monkeypatch.setattr(sessions, "WRONG_TOKEN_SECONDS", 0.0)


def test_a_visitor_signs_in_and_is_led_to_the_page_that_was_asked_for(console: Console) -> None:
    """The cookie is kept from scripts and from other sites."""
    visitor = console.visitor(signed_in=False)
    asked = visitor.get("/console/conversations")
    assert (asked.status_code, asked.headers["location"]) == (303, "/console/login?next=%2Fconsole%2Fconversations")
    form = visitor.get(asked.headers["location"])
    assert 'name="token"' in form.text
    answer = visitor.http.post("/console/login", data={"token": TOKEN, "next": "/console/conversations"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/conversations")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/console" in cookie
    assert "secure" not in cookie.split("; ")
    assert visitor.get("/console").status_code == 200


def test_behind_tls_the_cookie_is_sent_over_tls_only(console: Console) -> None:
    """Also where a reverse proxy ends TLS."""
    http = console.visitor(signed_in=False).http
    answer = http.post("/console/login", data={"token": TOKEN}, headers={"x-forwarded-proto": "https"})
    assert "secure" in answer.headers["set-cookie"].lower().split("; ")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_sites_page_signs_nobody_in(start_console: Callable[..., Console], site: str) -> None:
    """Otherwise it could have a visitor work on as somebody else, unnoticed."""
    console = start_console(config=WINDOW + "server: {{host: 0.0.0.0}}\n")  # on loopback no such request comes so far
    http = console.visitor(signed_in=False).http
    refused = http.post("/console/login", data={"token": TOKEN}, headers={"sec-fetch-site": site})
    assert refused.status_code == 403
    assert "set-cookie" not in refused.headers


def test_a_wrong_token_is_refused_in_words(console: Console) -> None:
    """The token is nowhere on the page."""
    visitor = console.visitor(signed_in=False)
    answer = visitor.http.post("/console/login", data={"token": "wrong-one"})
    assert answer.status_code == 401
    assert "This is no token of this server" in answer.text
    assert "wrong-one" not in answer.text
    assert "set-cookie" not in answer.headers
    assert visitor.get("/console").status_code == 303


@pytest.mark.parametrize(
    "elsewhere",
    ["https://evil.example", "//evil.example", "/console/../v1/models", "/console/\\evil", "/v1/models", "%2F%2Fevil"],
)
def test_the_sign_in_leads_to_pages_of_the_console_only(console: Console, elsewhere: str) -> None:
    """No link can use it to lead a visitor to another site."""
    http = console.visitor(signed_in=False).http
    answer = http.post("/console/login", data={"token": TOKEN, "next": elsewhere})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")


def test_signing_out_ends_the_session(console: Console) -> None:
    """In this browser."""
    visitor = console.visitor()
    assert visitor.send("/console/logout").status_code == 303
    assert visitor.get("/console").status_code == 303


def test_a_form_without_its_token_changes_nothing_and_keeps_what_was_entered(console: Console) -> None:
    """It is shown again, with a token that is right."""
    visitor = console.visitor()
    answer = visitor.http.post("/console/logout", data={"reason": "<b>tea & cake</b>"})
    assert answer.status_code == 403
    assert "&lt;b&gt;tea &amp; cake&lt;/b&gt;" in answer.text
    assert "<b>tea" not in answer.text
    assert visitor.get("/console").status_code == 200


def test_a_form_of_a_session_that_ended_is_confirmed_after_the_sign_in(console: Console) -> None:
    """What was entered is kept over the sign-in."""
    visitor = console.visitor(signed_in=False)
    ended = visitor.http.post("/console/logout", data={"csrf": "0" * 64, "note": "keep me"})
    assert ended.status_code == 401
    assert "note=keep+me" in ended.text
    fields = {"token": TOKEN, "next": "%2Fconsole%2Flogout", "waiting": "note=keep+me"}
    again = visitor.http.post("/console/login", data=fields)
    assert (again.status_code, "keep me" in again.text) == (200, True)
    assert 'action="/console/logout"' in again.text


def test_every_answer_keeps_scripts_frames_and_caches_out(console: Console) -> None:
    """Pages, errors, the sign-in and files."""
    visitor = console.visitor()
    for path in ("/console", "/console/nothing", "/console?window=year", "/console/static/console.js"):
        headers = visitor.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        if not path.startswith("/console/static"):
            assert headers["cache-control"] == "no-store"


def test_what_is_not_there_says_so(console: Console) -> None:
    """A page and a file."""
    visitor = console.visitor()
    assert visitor.get("/console/nothing").status_code == 404
    assert "no such page" in visitor.get("/console/nothing").text
    assert visitor.get("/console/static/nothing.js").status_code == 404
    assert visitor.get("/console/static/..%2Fpages.py").status_code == 404


def test_a_window_of_nonsense_is_named(console: Console) -> None:
    """The page says what is allowed."""
    answer = console.visitor().get("/console?window=year")
    assert (answer.status_code, "hour, day or week" in answer.text) == (400, True)


def test_without_a_token_the_console_answers_this_machine_only(open_console: Console) -> None:
    """No sign-in; a foreign host name (DNS rebinding) and a reverse proxy are refused."""
    visitor = open_console.visitor()
    assert visitor.get("/console").status_code == 200
    assert visitor.get("/console/login").headers["location"] == "/console"
    for headers in ({"host": "evil.example"}, {"x-forwarded-for": "203.0.113.7"}, {"origin": "http://evil.example"}):
        refused = httpx.get(f"{open_console.url}/console", headers=headers, verify=NO_TLS)
        assert refused.status_code == 403, headers


def test_without_a_token_forms_still_need_theirs(open_console: Console) -> None:
    """A page gives it, with the first visit's cookie."""
    visitor = open_console.visitor()
    assert visitor.http.post("/console/logout", data={"csrf": "0"}).status_code == 403
    assert visitor.send("/console/logout").status_code == 303


def test_the_events_need_a_session(console: Console) -> None:
    """They are all conversations'."""
    assert console.visitor(signed_in=False).get("/console/events").status_code == 401
    with console.visitor().http.stream("GET", "/console/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")


class TestSessions:
    """Sessions, by a clock of the test's own."""

    def setup_method(self) -> None:
        """Begin at a time."""
        self.now = 1_000_000.0

    def sessions(self, token: str = TOKEN) -> Sessions:
        """Those of one process."""
        return Sessions(OperatorAccess("127.0.0.1", token), b"secret", lambda: self.now)

    def test_a_session_ends_after_twelve_idle_hours_in_every_process(self) -> None:
        """It goes on as long as pages are opened."""
        one, other = self.sessions(), self.sessions()
        cookie = one.cookie(one.new(OPERATOR))
        self.now += IDLE_SECONDS - 10
        session = other.of(_request(cookie))
        assert session is not None
        renewed = other.renewed(session)
        assert renewed is not None
        self.now += 20
        assert one.of(_request(cookie)) is None
        assert one.of(_request(one.cookie(renewed))) is not None

    def test_another_token_ends_all_sessions(self) -> None:
        """The key of a session depends on it."""
        cookie = self.sessions().cookie(self.sessions().new(OPERATOR))
        assert self.sessions("another").of(_request(cookie)) is None

    @pytest.mark.parametrize("cookie", ["", "nonsense", "====", "A" * 72, "é"])
    def test_a_made_up_cookie_is_no_session(self, cookie: str) -> None:
        """Of any form."""
        assert self.sessions().of(_request(cookie)) is None

    async def test_wrong_tokens_that_wait_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The right one is never held back."""
        monkeypatch.setattr(sessions, "WRONG_TOKEN_SECONDS", 0.2)
        asked = self.sessions()
        answers = await asyncio.gather(
            *[asked.visitor_by(f"wrong-{place}") for place in range(MAX_HELD_BACK + 3)],
            asked.visitor_by(TOKEN),
            return_exceptions=True,
        )
        assert answers.count(None) == MAX_HELD_BACK
        assert answers[-1] == OPERATOR


def _request(cookie: str) -> Request:
    headers = [(b"cookie", f"{COOKIE}={cookie}".encode("latin-1"))]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""})
