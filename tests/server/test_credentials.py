"""Which headers tell tenants apart: credentials and a gateway's word, but nothing that changes by request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.server.auth import MAX_HEAD_BYTES, MAX_HEADS, PassthroughAuth
from tidemark.server.credentials import has_own_credential, identifies_caller

TELLING = """
authorization x-api-key api-key x-goog-api-key apikey token key x-auth-key x-functions-key x-access-key x-gateway-key
x-litellm-key x-litellm-api-key x-portkey-api-key x-portkey-virtual-key cf-aig-authorization helicone-auth x-secret
x-credential x-credentials x-signature x-password api-token x-auth x-authorization private-token x-amz-security-token
accesstoken x-accesstoken x_api_key x-webauth-user x-amzn-oidc-accesstoken x-session-token x-goog-iap-jwt-assertion
cf-access-client-secret cf-access-client-id cf-access-jwt-assertion cf-access-authenticated-user-email
x-forwarded-user x-forwarded-email x-forwarded-preferred-username x-forwarded-access-token remote-user x-remote-user
x-auth-request-user x-auth-request-email x-auth-request-access-token x-authenticated-userid x-authentik-username
x-goog-authenticated-user-email x-ms-client-principal-id x-amzn-oidc-identity tailscale-user-login x-consumer-id
x-openwebui-user-id ocp-apim-subscription-key
"""
PASSING = """
session-id thread-id x-codex-turn-state x-codex-window-id x-codex-key x-claude-code-session-id x-client-request-id
idempotency-key x-idempotency-key traceparent tracestate x-request-id x-amzn-trace-id sec-websocket-key
sec-fetch-site x-stainless-retry-count x-stainless-helper-method x-csrf-token x-xsrf-token x-csrftoken
requestverificationtoken x-cache-key cf-aig-cache-key x-auth-request-redirect x-portkey-trace-id x-portkey-metadata
helicone-session-id x-openwebui-chat-id user-agent content-type accept openai-organization openai-project
anthropic-beta anthropic-version x-goog-api-client http-referer x-title x-max-tokens x-author x-keyboard
x-forwarded-for x-forwarded-proto x-initiator x-interaction-id
"""


def auth(*identity_headers: str) -> PassthroughAuth:
    """The rule with a secret of the tests."""
    return PassthroughAuth(b"a secret of the tests", identity_headers=identity_headers)


def tenants(name: str, rule: PassthroughAuth) -> int:
    """How many tenants three callers are: two values of a header, and nobody's."""
    lines: list[list[tuple[bytes, bytes]]] = [[(name.encode(), b"alice")], [(name.encode(), b"bob")], []]
    return len({rule.caller(line).fingerprint for line in lines})


@pytest.mark.parametrize("name", TELLING.split())
def test_a_credential_or_a_gateways_word_tells_tenants_apart(name: str) -> None:
    """Promise 8: bob's value of the header is not alice's tenant."""
    assert identifies_caller(name)
    assert tenants(name, auth()) == 3


@pytest.mark.parametrize("name", PASSING.split())
def test_what_changes_by_conversation_or_request_is_no_part_of_the_tenant(name: str) -> None:
    """Else a client would be another caller in each turn, and nothing of its conversation were known."""
    assert not identifies_caller(name)
    assert tenants(name, auth()) == 1


def test_a_configured_header_tells_tenants_apart() -> None:
    """``auth.identity_headers``: whatever its name; upper and lower case are one."""
    rule = auth("x-user-id", "session-id")
    assert tenants("x-user-id", rule) == tenants("X-User-Id", rule) == tenants("session-id", rule) == 3
    assert tenants("x-user-id", auth()) == 1


def test_names_that_clients_make_up_do_not_fill_the_memory() -> None:
    """Their number is bounded, and what is configured stays."""
    rule = auth("x-user-id")
    for number in range(3 * MAX_HEADS):
        rule.caller([(b"x-%d" % number, b"1")])
        rule.caller([(b"x" * MAX_HEAD_BYTES + b"%d" % number, b"1")])
    known = vars(rule)["_layouts"]
    assert len(known) <= MAX_HEADS
    assert max(sum(map(len, names)) for names in known) <= MAX_HEAD_BYTES
    assert tenants("x-user-id", rule) == tenants("x-api-key", rule) == 3


@pytest.mark.parametrize(
    ("name", "value", "own"),
    [
        (b"authorization", b"Bearer sk-1", True),
        (b"authorization", b"Basic YTpi", False),
        (b"authorization", b"Negotiate x", False),
        (b"authorization", b"", False),
        (b"x-api-key", b"sk-1", True),
        (b"cookie", b"session=1", False),
        (b"x-forwarded-user", b"alice", False),
        (b"x-auth-request-access-token", b"t", False),
        (b"cf-access-jwt-assertion", b"t", False),
        (b"proxy-authorization", b"Bearer x", False),
        (b"x-csrf-token", b"t", False),
        (b"sec-session-token", b"t", False),
    ],
)
def test_what_a_browser_or_a_gateway_adds_is_no_credential_of_the_clients_own(
    name: bytes, value: bytes, *, own: bool
) -> None:
    """Any page's request has a browser's cookies and passwords; a key must have been given to the page."""
    assert has_own_credential([(b"accept", b"*/*"), (name, value)]) is own


def test_the_operators_page_states_the_rule() -> None:
    """Each word, each name of a gateway, and what never counts."""
    page = Path("docs/operations.md").read_text(encoding="utf-8")
    for name in ("X-Forwarded-User", "X-Auth-Request-", "CF-Access-", "Remote-User", "auth.identity_headers"):
        assert name in page
    for word in ("key", "token", "secret", "auth", "authorization", "credential", "password", "signature"):
        assert f"`{word}`" in page
    for name in ("session-id", "thread-id", "x-codex-*", "x-claude-code-session-id", "x-client-request-id"):
        assert f"`{name}`" in page
    assert "`idempotency-key`" in page
    assert "`traceparent`" in page
