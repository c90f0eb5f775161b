"""Sign-in by OpenID Connect: with a real provider, and with ones that send what is not valid."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.console.conftest import TOKEN, Console, consoled
from tests.request.conftest import WINDOW
from tests.support.clusters import free_ports
from tests.support.serving import NO_TLS, Serving
from tests.support.waiting import wait_until
from tidemark.config import load
from tidemark.console import sessions
from tidemark.console.openid import OpenIdRules
from tidemark.console.sessions import COOKIE
from tidemark.core.errors import ConfigError

SECTION = """
openid:
  issuer: {issuer}
  client_id: tidemark
  operators: [ops]
  auditors: [audit]
"""
LED = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
"""What a browser says that another site's page leads here."""


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong tokens are answered at once."""
    monkeypatch.setattr(sessions, "WRONG_TOKEN_SECONDS", 0.0)


@pytest.fixture(scope="module")
def real_provider() -> Iterator[str]:
    """A provider that runs here as a process of its own."""
    (port,) = free_ports(1)
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    issuer = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{issuer}/.well-known/openid-configuration", verify=NO_TLS).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        wait_until(answers)
        yield issuer
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def console_at(tmp_path: Path) -> Iterator[Callable[[str], Console]]:
    """Starts consoles with a provider."""
    with ExitStack() as stack:

        def start(issuer: str) -> Console:
            config = WINDOW + SECTION.format(issuer=issuer)
            return stack.enter_context(consoled(tmp_path, config=config, TIDEMARK_OPENID_SECRET="s"))

        yield start


def begin_at(http: httpx.Client, wanted: str = "") -> str:
    """Begin to sign in, and return the provider's address."""
    answer = http.get(f"/console/login/openid?{urlencode({'next': wanted})}")
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def back_from(address: str, person: str) -> str:
    """Sign in at the real provider, and return where it leads back to, without the host."""
    answer = httpx.post(address, data={"sub": person}, verify=NO_TLS)
    assert answer.status_code == 302, answer.text
    parts = urlsplit(answer.headers["location"])
    return f"{parts.path}?{parts.query}"


def has_role(issuer: str, person: str, groups: Any, **more: Any) -> None:
    """Have the real provider know a person with groups."""
    httpx.put(f"{issuer}/users/{person}", json={"groups": groups, **more}, verify=NO_TLS).raise_for_status()


def actors(console: Console) -> list[tuple[str, str, str]]:
    """What the audit log has of sign-ins."""
    console.settle()
    admin = {"authorization": f"Bearer {TOKEN}"}
    log = httpx.get(f"{console.url}/tidemark/audit", headers=admin, verify=NO_TLS).json()["data"]
    return [(entry["action"], entry["role"], entry["actor"]) for entry in reversed(log)]


@pytest.mark.parametrize(("groups", "role"), [(["staff", "ops"], "operator"), ("audit", "auditor")])
def test_a_person_signs_in_at_a_real_provider_with_the_role_of_a_claim(
    console_at: Callable[[str], Console], real_provider: str, groups: Any, role: str
) -> None:
    """The page leads on to the page that was asked for, and the audit log has the name."""
    console = console_at(real_provider)
    has_role(real_provider, "alice", groups, email="alice@example.com", email_verified=True)
    http = console.visitor(signed_in=False).http
    assert "/console/login/openid" in http.get("/console/login").text
    address = begin_at(http, "/console/models")
    asked = parse_qs(urlsplit(address).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["response_type"] == ["code"]
    answer = http.get(back_from(address, "alice"), headers=LED)
    assert answer.status_code == 200, answer.text
    assert "url=/console/models" in answer.text
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert http.get("/console/models").status_code == 200
    assert http.get("/console/conversations").status_code == (200 if role == "operator" else 403)
    assert ("sign-in", role, "alice (alice@example.com)") in actors(console)


@pytest.mark.parametrize("groups", [[], "", "nobody", 7, None, {"ops": True}, [["ops"]], ["ops", 7], "ops,audit"])
def test_a_claim_of_nonsense_gives_no_role(
    console_at: Callable[[str], Console], real_provider: str, groups: Any
) -> None:
    """403 in words, no session, and an entry of the audit log."""
    console = console_at(real_provider)
    has_role(real_provider, "bob", groups)
    http = console.visitor(signed_in=False).http
    answer = http.get(back_from(begin_at(http), "bob"))
    assert (answer.status_code, "gives you no role" in answer.text) == (403, True)
    assert COOKIE not in http.cookies
    assert "sign-in.refused" in [action for action, _, _ in actors(console)]


def test_a_code_works_once_and_in_the_browser_that_began(
    console_at: Callable[[str], Console], real_provider: str
) -> None:
    """Neither again, nor in another browser, nor with another state, nor without one."""
    console = console_at(real_provider)
    has_role(real_provider, "alice", ["ops"])
    http, other = (console.visitor(signed_in=False).http for _ in range(2))
    back = back_from(begin_at(http), "alice")
    begin_at(other)
    assert other.get(back).status_code == 401
    assert console.visitor(signed_in=False).http.get(back).status_code == 401
    assert http.get(re.sub("state=[^&]*", "state=x", back)).status_code == 401
    assert http.get(re.sub("&?state=[^&]*", "", back)).status_code == 401
    cookies = dict(http.cookies)
    assert http.get(back).status_code == 200
    assert http.get(back).status_code == 401
    again = console.visitor(signed_in=False).http
    again.cookies.update(cookies)
    assert again.get(back).status_code == 401
    assert COOKIE not in again.cookies


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example", "//evil.example", "/console/../v1", "javascript:alert(1)"]
)
def test_no_link_leads_to_another_site_after_the_sign_in(
    console_at: Callable[[str], Console], real_provider: str, elsewhere: str
) -> None:
    """The page that was asked for is one of the console, or its first one."""
    console = console_at(real_provider)
    has_role(real_provider, "alice", ["ops"])
    http = console.visitor(signed_in=False).http
    page = http.get(back_from(begin_at(http, elsewhere), "alice")).text
    assert 'content="0; url=/console"' in page
    assert "evil" not in page


def test_a_person_who_refuses_at_the_provider_is_not_signed_in(
    console_at: Callable[[str], Console], real_provider: str
) -> None:
    """The provider leads back with an error."""
    console = console_at(real_provider)
    http = console.visitor(signed_in=False).http
    state = parse_qs(urlsplit(begin_at(http)).query)["state"][0]
    answer = http.get(f"/console/login/callback?error=access_denied&state={state}")
    assert (answer.status_code, 'name="token"' in answer.text) == (401, True)


def test_without_a_provider_nobody_is_led_anywhere(tmp_path: Path) -> None:
    """The sign-in says so, and the callback signs nobody in."""
    with consoled(tmp_path) as console:
        http = console.visitor(signed_in=False).http
        assert "/console/login/openid" not in http.get("/console/login").text
        assert http.get("/console/login/openid").status_code == 403
        assert http.get("/console/login/callback?code=x&state=y").status_code == 401


def test_while_the_provider_is_away_the_token_works(console_at: Callable[[str], Console]) -> None:
    """The sign-in says so, and offers the field of the token."""
    (port,) = free_ports(1)
    console = console_at(f"http://127.0.0.1:{port}")
    http = console.visitor(signed_in=False).http
    answer = http.get("/console/login/openid")
    assert (answer.status_code, "does not answer" in answer.text, 'name="token"' in answer.text) == (502, True, True)
    assert http.post("/console/login", data={"token": TOKEN}).status_code == 303
    assert http.get("/console").status_code == 200


@cache
def made_key(kid: str, number: int = 0) -> RSAKey:
    """A key, the same each time for one number: making one takes a tenth of a second."""
    return RSAKey.generate_key(2048, {"kid": kid})


@dataclass
class Provider:
    """A provider that checks PKCE as RFC 7636 has it, and sends tokens as a test wants them."""

    key: RSAKey = field(default_factory=lambda: made_key("one"))
    token: Callable[[Provider, dict[str, Any]], str] = lambda provider, claims: provider.signed(claims)
    challenges: dict[str, tuple[str, str]] = field(default_factory=dict)
    issuer: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    key_readings: int = 0

    def signed(self, claims: dict[str, Any], **header: Any) -> str:
        """A valid token."""
        return jwt.encode({"alg": "RS256", "kid": "one", **header}, claims, self.key)

    def app(self) -> Starlette:
        """Its addresses."""
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.describe),
                Route("/keys", self.keys),
                Route("/token", self.exchange, methods=["POST"]),
            ]
        )

    async def describe(self, _: Request) -> Response:
        """The metadata."""
        addresses = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
        own = {name: self.issuer + path for name, path in addresses.items()}
        return JSONResponse({"issuer": self.issuer, **own, **self.metadata})

    async def keys(self, _: Request) -> Response:
        """The public keys."""
        self.key_readings += 1
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def exchange(self, request: Request) -> Response:
        """A token for a code, once, with the verifier of its challenge."""
        form = parse_qs((await request.body()).decode())
        self.secrets.append(request.headers.get("authorization", ""))
        challenge, nonce = self.challenges.pop(form["code"][0], ("", ""))
        digest = hashlib.sha256(form["code_verifier"][0].encode()).digest()
        if urlsafe_b64encode(digest).decode().rstrip("=") != challenge:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": "tidemark", "sub": "alice", "groups": ["ops"], "nonce": nonce}
        token = self.token(self, {**claims, "iat": now, "exp": now + 60})
        return JSONResponse({"access_token": "a", "token_type": "Bearer", "id_token": token})

    def approve(self, address: str) -> str:
        """A code for who comes from the console, and where that leads back to."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        code = f"code-{len(self.challenges)}"
        self.challenges[code] = (asked["code_challenge"], asked["nonce"])
        return f"/console/login/callback?{urlencode({'code': code, 'state': asked['state']})}"


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A running one."""
    made_up = Provider()
    with Serving(made_up.app()) as served:
        made_up.issuer = served.url
        yield made_up


def test_the_verifier_of_pkce_and_the_secret_are_sent(console_at: Callable[[str], Console], provider: Provider) -> None:
    """A code without the verifier that belongs to it is worth nothing."""
    console = console_at(provider.issuer)
    http = console.visitor(signed_in=False).http
    back = provider.approve(begin_at(http))
    assert http.get(back).status_code == 200
    assert provider.secrets[-1].startswith("Basic ")
    stolen = provider.approve(begin_at(http))
    code = parse_qs(urlsplit(stolen).query)["code"][0]
    other = console.visitor(signed_in=False).http
    state = parse_qs(urlsplit(begin_at(other)).query)["state"][0]
    assert other.get(f"/console/login/callback?{urlencode({'code': code, 'state': state})}").status_code == 401


FORGERIES: dict[str, Callable[[Provider, dict[str, Any]], str]] = {
    "another nonce": lambda provider, claims: provider.signed({**claims, "nonce": "x"}),
    "no nonce": lambda provider, claims: provider.signed({k: v for k, v in claims.items() if k != "nonce"}),
    "another audience": lambda provider, claims: provider.signed({**claims, "aud": "other"}),
    "shared audience": lambda provider, claims: provider.signed({**claims, "aud": ["tidemark", "other"]}),
    "for another party": lambda provider, claims: provider.signed({**claims, "azp": "other"}),
    "another issuer": lambda provider, claims: provider.signed({**claims, "iss": "https://evil.example"}),
    "expired": lambda provider, claims: provider.signed({**claims, "exp": claims["iat"] - 3600}),
    "without an end": lambda provider, claims: provider.signed({k: v for k, v in claims.items() if k != "exp"}),
    "from the future": lambda provider, claims: provider.signed({**claims, "nbf": claims["iat"] + 3600}),
    "no subject": lambda provider, claims: provider.signed({k: v for k, v in claims.items() if k != "sub"}),
    "a subject of nonsense": lambda provider, claims: provider.signed({**claims, "sub": ["alice"]}),
    "another key": lambda provider, claims: jwt.encode({"alg": "RS256", "kid": "one"}, claims, made_key("one", 1)),
    "an unknown key": lambda provider, claims: jwt.encode({"alg": "RS256", "kid": "two"}, claims, made_key("two")),
    "alg none": lambda provider, claims: unsigned(claims),
    "the public key as a secret": lambda provider, claims: confused(provider.key, claims),
    "no token": lambda provider, claims: "",
    "nonsense": lambda provider, claims: "a.b.c",
}


def packed(value: bytes) -> str:
    """A part of a token."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def unsigned(claims: dict[str, Any]) -> str:
    """A token that says that nobody has signed it."""
    return f"{packed(json.dumps({'alg': 'none', 'kid': 'one'}).encode())}.{packed(json.dumps(claims).encode())}."


def confused(key: RSAKey, claims: dict[str, Any]) -> str:
    """A token that is signed by an HMAC whose secret is the public key."""
    head = packed(json.dumps({"alg": "HS256", "kid": "one"}).encode())
    text = f"{head}.{packed(json.dumps(claims).encode())}"
    digest = hmac.digest(key.as_pem(private=False), text.encode(), "sha256")
    return f"{text}.{packed(digest)}"


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_token_that_is_not_valid_signs_nobody_in(
    console_at: Callable[[str], Console], provider: Provider, forgery: str
) -> None:
    """401 in words, and no session."""
    console = console_at(provider.issuer)
    http = console.visitor(signed_in=False).http
    provider.token = FORGERIES[forgery]
    answer = http.get(provider.approve(begin_at(http)))
    assert answer.status_code in (401, 403), answer.text
    assert COOKIE not in http.cookies
    provider.token = lambda self, claims: self.signed(claims)
    assert http.get(provider.approve(begin_at(http))).status_code == 200


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"jwks_uri": 7},
        {"authorization_endpoint": None},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
def test_metadata_that_could_lead_elsewhere_are_refused(
    console_at: Callable[[str], Console], provider: Provider, metadata: dict[str, Any]
) -> None:
    """Another issuer, plain HTTP beyond this machine, and nonsense."""
    provider.metadata = metadata
    http = console_at(provider.issuer).visitor(signed_in=False).http
    assert http.get("/console/login/openid").status_code == 502


def test_a_provider_that_changes_its_key_is_asked_for_the_new_one(
    console_at: Callable[[str], Console], provider: Provider
) -> None:
    """At once, and then once a minute at most: made-up tokens cannot have it asked all the time."""
    http = console_at(provider.issuer).visitor(signed_in=False).http
    assert http.get(provider.approve(begin_at(http))).status_code == 200
    provider.key = made_key("two")
    provider.token = lambda self, claims: self.signed(claims, kid="two")
    assert http.get(provider.approve(begin_at(http))).status_code == 200
    provider.token = lambda self, claims: jwt.encode({"alg": "RS256", "kid": "x"}, claims, self.key)
    before = provider.key_readings
    for _ in range(3):
        assert http.get(provider.approve(begin_at(http))).status_code == 401
    assert provider.key_readings == before


def test_another_site_can_lead_to_the_callback_alone(console_at: Callable[[str], Console], provider: Provider) -> None:
    """And only as a navigation: no page of another site reads an answer."""
    http = console_at(provider.issuer).visitor(signed_in=False).http
    assert http.get("/console/login/callback", headers=LED).status_code == 401
    assert http.get("/console/login/callback", headers={**LED, "sec-fetch-mode": "no-cors"}).status_code == 403
    assert http.get("/console", headers=LED).status_code == 403


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=6))
def test_only_a_text_or_a_list_of_texts_gives_a_role(claim: Any) -> None:
    """Whatever the provider sends."""
    rules = OpenIdRules("https://i", "c", None, "groups", frozenset({"ops"}), frozenset({"audit"}))
    visitor = rules.visitor({"sub": "alice", "groups": claim})
    texts = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
    is_named = all(isinstance(text, str) for text in texts) and bool({"ops", "audit"} & {str(text) for text in texts})
    assert (visitor is not None) == is_named


@pytest.mark.parametrize(
    ("text", "environ", "word"),
    [
        ("openid: {issuer: https://i}", {"TIDEMARK_ADMIN_TOKEN": TOKEN}, "client_id"),
        ("openid: {issuer: https://i, client_id: c}", {}, "TIDEMARK_ADMIN_TOKEN"),
        ("openid: {issuer: http://i, client_id: c}", {"TIDEMARK_ADMIN_TOKEN": TOKEN}, "https"),
        ("", {"TIDEMARK_AUDITOR_TOKEN": "x" * 20}, "TIDEMARK_ADMIN_TOKEN"),
        ("", {"TIDEMARK_AUDITOR_TOKEN": TOKEN, "TIDEMARK_ADMIN_TOKEN": TOKEN}, "another"),
    ],
)
def test_a_configuration_that_would_let_nobody_or_anybody_in_is_refused(
    tmp_path: Path, text: str, environ: dict[str, str], word: str
) -> None:
    """At the start, in words."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=word):
        load(path, {"TIDEMARK_DATA_DIR": str(tmp_path), **environ})
