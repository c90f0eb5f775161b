"""Which header lines go upstream: every one that may, in order, and none that may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.http_headers import KEYS, NOT_SENT
from tidemark.core.ports import Caller, Route
from tidemark.server.headers import forwarded_lines
from tidemark.upstream.headers import outgoing

NAMES = [b"accept", b"authorization", b"api-key", b"content-length", b"host", b"te", b"x-one", b"x-two"]
VALUES = st.sampled_from([b"", b"1", b"caf\xe9"])
SENT = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), VALUES),
        st.tuples(
            st.just(b"connection"), st.sampled_from([b"keep-alive", b"close", b"X-One, te", b"keep-alive,accept"])
        ),
    ),
    max_size=8,
)
CONFIGURED = st.lists(
    st.tuples(st.sampled_from([b"X-One", b"Host", b"Transfer-Encoding", b"x-three"]), VALUES), max_size=3
)


@given(SENT, CONFIGURED, st.sampled_from([None, "ours"]))
def test_every_line_goes_that_may(
    sent: list[tuple[bytes, bytes]], configured: list[tuple[bytes, bytes]], api_key: str | None
) -> None:
    """Not what is for one hop, by its name or because ``Connection`` says so; not what is configured otherwise."""
    route = Route("wire", "m", "m", "openai", "http://a.test/v1", api_key=api_key, headers=tuple(configured))
    lines = outgoing(route, Caller(b"", forwarded_lines(sent)))
    hop = {token.strip().lower() for name, value in sent if name == b"connection" for token in value.split(b",")}
    own = [(name.lower(), value) for name, value in configured if name != b"Transfer-Encoding"]
    without = NOT_SENT | hop | {name for name, _ in own} | (KEYS if api_key else set())
    key = [(b"authorization", b"Bearer ours")] if api_key else []
    passed = [(name, value) for name, value in sent if name not in without]
    assert lines == [*passed, *own, *key, (b"accept-encoding", b"identity")]
    lines.clear()  # nobody's list is another's
    assert outgoing(route, Caller(b"", ())) == [*own, *key, (b"accept-encoding", b"identity")]


BEARER, OWN = (b"authorization", b"Bearer a-token"), (b"x-api-key", b"a-token")
SUBSCRIBED = (b"authorization", b"Bearer sk-ant-oat01-x")


@pytest.mark.parametrize(
    ("base", "configured", "sent", "expected"),
    [
        ("https://gateway.test/v1", None, BEARER, BEARER),
        ("https://gateway.test/v1", None, OWN, OWN),
        ("https://gateway.test/v1", "ours", BEARER, (b"x-api-key", b"ours")),
        ("https://api.anthropic.com/v1", None, BEARER, OWN),
        ("", None, BEARER, OWN),
        ("https://api.anthropic.com/v1", None, SUBSCRIBED, SUBSCRIBED),
    ],
)
def test_a_gateway_in_anthropics_format_gets_the_callers_key_where_it_came(
    base: str, configured: str | None, sent: tuple[bytes, bytes], expected: tuple[bytes, bytes]
) -> None:
    """Its clients know which header it reads. Anthropic itself reads ``x-api-key`` alone, but for a subscription."""
    route = Route("wire", "m", "m", "anthropic", base, api_key=configured)
    assert [line for line in outgoing(route, Caller(b"", [sent])) if line[0] in KEYS] == [expected]
