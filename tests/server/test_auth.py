"""Who calls: one tenant for one set of credentials, whatever headers they stand in."""

from __future__ import annotations

import hmac
import itertools

import pytest

from tidemark.core.conversation.messages import framed
from tidemark.server.auth import PassthroughAuth

AUTH = PassthroughAuth(b"a secret of the tests")
WITH_COOKIES = PassthroughAuth(b"a secret of the tests", forward_cookies=True)
KEY = (b"authorization", b"Bearer sk-1")


def tenant(*headers: tuple[bytes, bytes]) -> bytes:
    """The fingerprint of a request with these headers."""
    return AUTH.caller(headers).fingerprint


@pytest.mark.parametrize(
    "name",
    [
        b"authorization",
        b"x-api-key",
        b"api-key",
        b"x-goog-api-key",
        b"cookie",
        b"helicone-auth",
        b"cf-aig-authorization",
        b"ocp-apim-subscription-key",
        b"x-amz-security-token",
    ],
)
def test_every_credential_that_goes_upstream_tells_tenants_apart(name: bytes) -> None:
    """Promise 8: two values of it are two tenants, and neither is the tenant of those who send none."""
    callers = [tenant((name, b"session=alice")), tenant((name, b"session=bob")), tenant()]
    assert len(set(callers)) == 3
    assert [header for header, _ in WITH_COOKIES.caller([(name, b"x")]).headers] == [name]


def test_the_order_of_the_lines_does_not_matter() -> None:
    """HTTP libraries order headers as they like; the credentials are the same."""
    lines = [KEY, (b"api-key", b"k2"), (b"cookie", b"a=1; b=2"), (b"user-agent", b"x")]
    assert len({tenant(*order) for order in itertools.permutations(lines)}) == 1
    assert tenant((b"cookie", b"b=2; a=1")) == tenant((b"cookie", b"a=1"), (b"cookie", b"b=2"))


def test_one_key_is_one_caller_in_the_headers_of_openai_and_anthropic() -> None:
    """A conversation goes on in the other dialect's client; a client of both may send both."""
    bearer, own = (b"authorization", b"Bearer k"), (b"x-api-key", b"k")
    assert tenant(own) == tenant(bearer) == tenant(own, bearer)
    assert tenant(own, (b"authorization", b"Bearer other")) != tenant(own)
    assert tenant((b"x-api-key", b"other")) != tenant(own)
    assert tenant((b"authorization", b"k")) != tenant(own)


def test_a_credential_in_another_header_is_another_credential() -> None:
    """The name counts: one value under two names may be two things to an upstream."""
    assert tenant((b"x-api-key", b"k")) != tenant((b"api-key", b"k"))
    assert tenant((b"x-api-key", b"kapi-key"), (b"api-key", b"")) != tenant((b"x-api-key", b"k"), (b"api-key", b""))


@pytest.mark.parametrize("name", [b"user-agent", b"idempotency-key", b"x-request-id", b"openai-organization"])
def test_other_headers_do_not_tell_tenants_apart(name: bytes) -> None:
    """What changes from request to request must not make another caller of a client."""
    assert tenant(KEY, (name, b"1")) == tenant(KEY, (name, b"2")) == tenant(KEY)


def test_what_does_not_go_upstream_is_no_credential() -> None:
    """A key for the proxy on the way, or one that ``Connection`` keeps for this hop."""
    assert tenant(KEY, (b"proxy-authorization", b"Basic x")) == tenant(KEY)
    for value in (b"x-hop-token", b"keep-alive, X-Hop-Token"):
        assert tenant(KEY, (b"connection", value), (b"x-hop-token", b"1")) == tenant(KEY)
    for value in (b"keep-alive", b"Close", b"x-hop-token", b"keep-alive"):  # one head, by its names
        hop = tenant(KEY, (b"connection", value), (b"x-hop-token", b"1"))
        assert (hop == tenant(KEY)) is (value == b"x-hop-token")


@pytest.mark.parametrize("forward", [False, True])
def test_what_goes_upstream_is_the_same_the_second_time(*, forward: bool) -> None:
    """A head is known by the names of its lines then, in whichever case they are written."""
    rule = PassthroughAuth(b"s", forward_cookies=forward)
    first: list[tuple[bytes, bytes]] = [(b"host", b"h"), (b"accept", b"*/*"), (b"x-tidemark-history", b"client"), KEY]
    first += [(b"cookie", b"a=1"), (b"content-length", b"5"), (b"te", b"trailers"), (b"connection", b"keep-alive")]
    going = [(b"accept", b"*/*"), KEY, *([(b"cookie", b"a=1")] if forward else [])]
    for _ in range(2):
        for lines in (first, [(name.title(), value) for name, value in first], iter(first)):
            caller = rule.caller(lines)
            assert caller.headers == going
            assert caller.fingerprint == rule.caller(first).fingerprint


def test_a_balancers_cookie_is_no_credential() -> None:
    """AWS renews ``AWSALB`` with every answer; the client stays one tenant."""
    assert tenant(KEY, (b"cookie", b"AWSALB=1; AWSALBCORS=1")) == tenant(KEY, (b"cookie", b"AWSALB=2")) == tenant(KEY)
    assert tenant(KEY, (b"cookie", b"AWSALB=1; session=a")) != tenant(KEY)
    assert (b"cookie", b"AWSALB=1") in WITH_COOKIES.caller([(b"cookie", b"AWSALB=1")]).headers


@pytest.mark.parametrize("cookies", [b"AWSALB=1", b"session=a; theme=dark"])
def test_cookies_stay_here_unless_they_are_to_go_on(cookies: bytes) -> None:
    """A browser sends those of every other app on this machine; they tell its users apart all the same."""
    lines = [KEY, (b"cookie", cookies), (b"x-other", b"1")]
    kept, sent = AUTH.caller(lines), WITH_COOKIES.caller(lines)
    assert kept.headers == [KEY, (b"x-other", b"1")]
    assert sent.headers == lines
    assert kept.fingerprint == sent.fingerprint
    assert (kept.fingerprint != tenant(KEY)) is (b"session" in cookies)


def test_a_fingerprint_is_the_same_in_every_version() -> None:
    """What is stored for a tenant is found again after an update."""
    made = tenant((b"Authorization", b"Bearer sk-1"), (b"cookie", b"b=2; a=1; AWSALB=3"), (b"x-api-key", b""))
    assert made.hex() == "928fbb819e9c741b2bd183ee7eef2adf708e6ffa08cbf6f4731c0770a406cd1a"


def test_a_fingerprint_is_the_same_whether_it_is_remembered_or_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a caller that newer ones displaced; and no more of them are remembered than the bound allows."""
    monkeypatch.setattr("tidemark.server.auth.MAX_CACHED_CALLERS", 2)
    made, make = list[bytes](), hmac.digest

    def counted(secret: bytes, told: bytes, name: str) -> bytes:
        made.append(told)
        return make(secret, told, name)

    monkeypatch.setattr(hmac, "digest", counted)
    remembering = PassthroughAuth(b"a secret of the tests")
    for key in (b"1", b"1", b"2", b"3", b"1", b"3"):
        line = (b"authorization", b"Bearer sk-" + key)
        assert remembering.caller([line]).fingerprint == make(b"a secret of the tests", framed(*line), "sha256")
    assert [told[-1:] for told in made] == [b"1", b"2", b"3", b"1"]


def test_no_credential_is_remembered() -> None:
    """Nor a digest of one that is the same elsewhere, so that it could be tried against."""
    first, second = PassthroughAuth(b"s"), PassthroughAuth(b"s")
    assert first.caller([KEY]).fingerprint == second.caller([KEY]).fingerprint
    kept, others = vars(first)["_fingerprints"], vars(second)["_fingerprints"]
    assert len(kept) == len(others) == 1
    assert not kept.keys() & others.keys()
    assert "sk-1" not in repr(vars(first))


def test_no_key_is_shown() -> None:
    """Neither the secret nor the credential stands in what a log may print."""
    assert "sk-1" not in repr(AUTH.caller([KEY]))
    assert "a secret" not in repr(AUTH)
