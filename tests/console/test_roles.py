"""Which role reaches which route: all routes are walked with all roles, and compared with the table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from tests.console.conftest import TOKEN, Console, consoled
from tests.request.talk import history, user
from tests.support.serving import NO_TLS
from tidemark.app.roles import RULES
from tidemark.core.events import Role
from tidemark.server.guarding import REFUSALS, RefusalLimit, RouteGuard

AUDITOR, KEY, SECRET_WORDS = "a" * 40, "key-of-a-tenant", "zanzibar marmalade"
ROLES: tuple[Role, ...] = ("operator", "auditor", "tenant")
PUBLIC = {"/console/login", "/console/login/openid", "/console/login/callback", "/console/static/{name}"}
"""They serve everybody."""


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    """A console with an admin and an auditor, and a tenant that has a conversation."""
    with consoled(tmp_path, auditor=AUDITOR) as started:
        yield started


@pytest.fixture
def conversation(console: Console) -> str:
    """The tenant's."""
    answer = console.client(KEY).chat([*history(4), user(SECRET_WORDS)])
    console.settle()
    return answer.headers["x-tidemark-conversation"]


def guarded_routes(console: Console) -> list[tuple[str, str]]:
    """The method and path of every route for people, of new features too."""
    routes = [route for route in console.app.routes if isinstance(route, Route)]
    return sorted(
        (method, route.path)
        for route in routes
        if route.path.startswith(("/tidemark", "/console")) and route.path not in PUBLIC
        for method in (route.methods or set()) - {"HEAD"}
    )


def address(path: str, conversation: str) -> str:
    """A path of a route, with a conversation's id and others."""
    known = {
        "id": conversation,
        "request": "1-1-1",
        "model:path": "openai:scripted",
        "handle": "abcd",
        "path:path": "nothing",
        "tenant": "f" * 32,
    }
    return re.sub(r"\{([^}]+)\}", lambda match: known[match[1]], path)


def bearer(token: str) -> dict[str, str]:
    """The header of a token."""
    return {"authorization": f"Bearer {token}", "content-type": "application/json"}


def signed_in(console: Console, token: str) -> httpx.Client:
    """A browser whose visitor has given a token or key."""
    http = console.visitor(signed_in=False).http
    assert http.post("/console/login", data={"token": token}).status_code == 303
    return http


def send(http: httpx.Client, method: str, path: str) -> httpx.Response:
    """Ask a route as its page or a program does; streams are left at their beginning."""
    if method == "POST" and path.startswith("/console"):
        page = http.get("/console/nothing").text
        token = re.findall(r'name="csrf" content="(\w+)"', page)
        return http.post(path, data={"csrf": token[0] if token else ""})
    with http.stream(method, path) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer.read()
        return answer


def test_every_route_has_a_rule_and_every_rule_a_route(console: Console) -> None:
    """A route without a rule serves nobody, so it would be noticed by its users only."""
    assert [f"{method} {path}" for method, path in guarded_routes(console)] == sorted(RULES)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_reaches_the_routes_of_the_table_and_no_other(console: Console, conversation: str, role: Role) -> None:
    """403 for what it may not do, anything else for what it may; 401 below /tidemark for a key that is no token."""
    tokens = {"operator": TOKEN, "auditor": AUDITOR, "tenant": KEY}
    browser = signed_in(console, tokens[role])
    api = console.stack.enter_context(
        httpx.Client(base_url=console.url, headers=bearer(tokens[role]), timeout=30, verify=NO_TLS)
    )
    last = [
        ("DELETE", "/tidemark/conversations/{id}"),
        ("POST", "/console/conversations/{id}/forget"),
        ("POST", "/console/logout"),
    ]
    for method, path in sorted(guarded_routes(console), key=lambda route: last.index(route) if route in last else -1):
        http = browser if path.startswith("/console") else api
        answer = send(http, method, address(path, conversation))
        refused = answer.status_code == 403 or (answer.status_code in (401, 503) and "token" in answer.text)
        assert refused == (role not in RULES[f"{method} {path}"].roles), (method, path, answer.status_code)


def test_an_auditor_sees_no_word_of_any_conversation(console: Console, conversation: str) -> None:
    """By no route, not even with the address of a conversation; receipts have counts only."""
    browser = signed_in(console, AUDITOR)
    api = console.stack.enter_context(
        httpx.Client(base_url=console.url, headers=bearer(AUDITOR), timeout=30, verify=NO_TLS)
    )
    admin = bearer(TOKEN)
    path = f"/tidemark/conversations/{conversation}"
    assert SECRET_WORDS in httpx.get(console.url + path, headers=admin, verify=NO_TLS).text
    done = httpx.post(f"{console.url}{path}/summarize", json={"retention_tokens": 0}, headers=admin, verify=NO_TLS)
    assert done.status_code == 200
    for method, route in guarded_routes(console):
        answer = send(browser if route.startswith("/console") else api, method, address(route, conversation))
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            assert not any(word in answer.text for word in SECRET_WORDS.split()), route
    (receipt,) = api.get(f"{path}/receipts").json()["data"]
    assert "kept" in receipt
    assert not {"lost", "unsupported"} & receipt.keys()


def test_an_auditors_token_is_no_tenants_key(console: Console) -> None:
    """It is refused before it could be taken for one, and no session of it is an operator's."""
    http = console.stack.enter_context(httpx.Client(base_url=console.url, headers=bearer(AUDITOR), verify=NO_TLS))
    assert http.get("/tidemark/conversations").status_code == 403
    assert http.get("/tidemark/stats").status_code == 200
    assert http.put("/tidemark/settings", json={"threshold": 0.5}).status_code == 403
    assert http.get("/console/conversations").status_code == 403
    assert http.get("/console").status_code == 200


def test_a_role_is_part_of_what_a_cookie_signs(console: Console, conversation: str) -> None:
    """Neither another role nor another tenant can be written into it."""
    import base64

    from tidemark.console.sessions import COOKIE

    http = signed_in(console, KEY)
    packed = base64.urlsafe_b64decode(http.cookies[COOKIE])
    changed = packed.replace(b'"tenant"', b'"operator"')
    assert changed != packed
    forged = base64.urlsafe_b64encode(changed).decode()
    answer = httpx.get(f"{console.url}/console/settings", headers={"cookie": f"{COOKIE}={forged}"}, verify=NO_TLS)
    assert answer.status_code == 303


def test_refusals_that_are_logged_are_bounded_by_the_minute() -> None:
    """And the next entry says how many were left out."""
    now = [0.0]
    limit = RefusalLimit(lambda: now[0])
    assert [limit.admit() for _ in range(REFUSALS + 5)] == [""] * REFUSALS + [None] * 5
    now[0] += 61
    assert limit.admit() == "5 more were refused before"
    assert limit.admit() == ""


def test_a_route_without_a_rule_serves_nobody(console: Console) -> None:
    """Not even the operator."""
    guard: Callable[..., RouteGuard] = RouteGuard
    assert guard({}, None, (), None, None).rule("GET", "/tidemark/new").roles == frozenset()
