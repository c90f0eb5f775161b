"""The table of keys: what a clock does at an expiry, and what two secrets or two tenants have in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.errors import InvalidApiKey, KeysUnread
from tidemark.core.grants import ApplicationKey
from tidemark.server.auth import PassthroughAuth
from tidemark.server.keyed_auth import KeyedAuth, KeyTable

SECRET = "sk-tm-" + "a" * 12 + "s" * 43
FORMER = "sk-tm-" + "a" * 12 + "f" * 43


class Clocks:
    """The clock of a machine, which may jump, and the timer, which does not."""

    def __init__(self) -> None:
        self.clock, self.timer = 1000.0, 5.0

    def passes(self, seconds: float) -> None:
        """Let time pass for both."""
        self.clock += seconds
        self.timer += seconds


def table_of(clocks: Clocks, **fields: float | bytes) -> KeyTable:
    """A table with one key."""
    table = KeyTable(b"secret", lambda: clocks.clock, lambda: clocks.timer)
    digests = {"digest": table.digest_of(SECRET.encode()), "former_digest": table.digest_of(FORMER.encode())}
    table.use([ApplicationKey("a" * 12, "app", "shop", created=0.0, **{**digests, **fields})])  # type: ignore[arg-type]
    return table


def accepts(table: KeyTable, key: str = SECRET) -> bool:
    """Whether a key is accepted."""
    try:
        table.judge(key.encode())
    except InvalidApiKey:
        return False
    return True


def test_a_key_expires_at_its_moment() -> None:
    """Not a second later."""
    clocks = Clocks()
    table = table_of(clocks, expires=1060.0)
    clocks.passes(59.9)
    assert accepts(table)
    clocks.passes(0.1)
    assert not accepts(table)


def test_a_clock_that_jumps_back_brings_no_expired_key_back() -> None:
    """The timer says how long it has been."""
    clocks = Clocks()
    table = table_of(clocks, expires=1060.0)
    clocks.passes(61)
    clocks.clock -= 500
    assert not accepts(table)


def test_a_clock_that_jumps_ahead_refuses_only_while_it_is_wrong() -> None:
    """Nobody needs a restart then."""
    clocks = Clocks()
    table = table_of(clocks, expires=1060.0)
    clocks.clock += 9000
    assert not accepts(table)
    clocks.clock -= 9000
    assert accepts(table)


def test_the_former_secret_ends_with_its_grace() -> None:
    """The new one goes on."""
    clocks = Clocks()
    table = table_of(clocks, former_until=1060.0)
    assert accepts(table, FORMER)
    clocks.passes(60)
    assert not accepts(table, FORMER)
    assert accepts(table)


def test_nobody_is_refused_for_good_before_the_keys_were_read() -> None:
    """A client may try again; a 401 would make it give up."""
    table = KeyTable(b"secret", lambda: 0.0, lambda: 0.0)
    with pytest.raises(KeysUnread):
        KeyedAuth(table).caller([(b"authorization", b"Bearer " + SECRET.encode())])


@given(st.binary(max_size=80))
def test_no_other_text_is_accepted(text: bytes) -> None:
    """Whatever stands in place of the secret, before it or behind it."""
    table = table_of(Clocks())
    for key in (text, SECRET.encode() + text, text + SECRET.encode(), SECRET.encode()[:18] + text):
        if key != SECRET.encode():
            with pytest.raises(InvalidApiKey):
                table.judge(key)


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_two_tenants_have_two_fingerprints_and_no_passing_credential_has_one_of_them(one: str, other: str) -> None:
    """A name that stands in a header is no key."""
    table = table_of(Clocks())
    assert (table.fingerprint_of(one) == table.fingerprint_of(other)) == (one == other)
    passing = PassthroughAuth(b"secret", identity_headers=["tidemark"])
    lines = [(b"tidemark", b"tenant"), (b"authorization", one.encode(errors="replace"))]
    assert passing.caller(lines).fingerprint != table.fingerprint_of(one)


def test_another_secret_of_the_server_accepts_no_key() -> None:
    """What is stored is worth nothing elsewhere."""
    stolen = KeyTable(b"another", lambda: 0.0, lambda: 0.0)
    stolen.use([ApplicationKey("a" * 12, "app", "shop", table_of(Clocks()).digest_of(SECRET.encode()), 0.0)])
    assert not accepts(stolen)


def test_headers_that_name_hop_by_hop_headers_do_not_smuggle_credentials() -> None:
    """``Connection`` may name any; what is left is looked at again."""
    auth = KeyedAuth(table_of(Clocks()))
    lines = [
        (b"Authorization", b"Bearer " + SECRET.encode()),
        (b"Connection", b"close, x-hop"),
        (b"X-Hop", b"1"),
        (b"Cookie", b"a=1"),
        (b"X-Api-Key", b"sk-ant-mine"),
        (b"User-Agent", b"me"),
    ]
    assert list(auth.caller(lines).headers) == [(b"user-agent", b"me")]


@pytest.mark.parametrize("query", [b"key=sk-tm-1", b"a=1&b=%73k-tm-1", b"sk%2Dtm%2Dx"])
def test_a_key_in_a_url_is_recognised(query: bytes) -> None:
    """With percent signs, too; other queries pass."""
    auth = KeyedAuth(table_of(Clocks()))
    with pytest.raises(InvalidApiKey):
        auth.check_query(query)
    auth.check_query(b"beta=true&task=sk-tmp")
