"""What a URL says of a request, and header lines that stay one line each."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.upstream.http1.target import Origin, head_of, target_of

HEADERS = st.lists(st.tuples(st.sampled_from([b"x-one", b"x-two"]), st.binary(max_size=20)), max_size=5)


@pytest.mark.parametrize(
    ("url", "origin", "line", "host"),
    [
        ("http://a.test/v1/chat", ("a.test", 80, False), "/v1/chat", "a.test"),
        ("HTTPS://A.Test/v1", ("a.test", 443, True), "/v1", "a.test"),
        ("http://a.test:8000", ("a.test", 8000, False), "/", "a.test:8000"),
        ("https://a.test:443/", ("a.test", 443, True), "/", "a.test"),
        ("http://a.test:443/", ("a.test", 443, False), "/", "a.test:443"),
        ("http://[::1]:8000/v1", ("::1", 8000, False), "/v1", "[::1]:8000"),
        ("http://[::1]/v1", ("::1", 80, False), "/v1", "[::1]"),
        ("http://a.test./v1", ("a.test.", 80, False), "/v1", "a.test"),
        ("http://bücher.test/v1", ("xn--bcher-kva.test", 80, False), "/v1", "xn--bcher-kva.test"),
        ("http://me:key@a.test/v1", ("a.test", 80, False), "/v1", "a.test"),
        ("http://a.test/é/a b%20c%zz?x=a b&y=%2F#part", ("a.test", 80, False), "", "a.test"),
        ("http://a.test/openai?api-version=1/chat", ("a.test", 80, False), "/openai?api-version=1/chat", "a.test"),
        ("http://a.test/v1/../v2/./chat", ("a.test", 80, False), "/v2/chat", "a.test"),
    ],
)
def test_a_url_is_read_as_its_standard_says(url: str, origin: tuple[str, int, bool], line: str, host: str) -> None:
    """RFC 3986, and RFC 9110, section 7.2: the port is named where it is not the scheme's own."""
    target = target_of("POST", url)
    line = line or "/%C3%A9/a%20b%20c%25zz?x=a%20b&y=%2F"
    assert target.origin == Origin(*origin)
    assert target.request_line == f"POST {line} HTTP/1.1\r\n".encode()
    assert target.host_line == f"Host: {host}\r\n".encode()


@pytest.mark.parametrize(
    "url",
    ["", "a.test/v1", "/v1", "http://", "ftp://a.test/", "http://a.test:x/", "http://a.test:99999/", "http://[::1/"],
)
def test_what_names_no_server_is_refused(url: str) -> None:
    """Before anything is connected."""
    with pytest.raises(ValueError, match=r"URL|[Pp]ort|valid|host"):
        target_of("POST", url)


def test_a_head_is_its_lines_byte_by_byte() -> None:
    """The host first, the length last; a value of any encoding is left as it is."""
    target = target_of("POST", "http://a.test/v1")
    head = head_of(target, [(b"x-one", b"caf\xe9"), (b"x-two", "é\t".encode()), (b"x-one", b"")], 7)
    assert head == (
        b"POST /v1 HTTP/1.1\r\nHost: a.test\r\n"
        b"x-one: caf\xe9\r\nx-two: \xc3\xa9\t\r\nx-one: \r\nContent-Length: 7\r\n\r\n"
    )
    assert head_of(target_of("GET", "http://a.test/v1"), [], None) == b"GET /v1 HTTP/1.1\r\nHost: a.test\r\n\r\n"


@pytest.mark.parametrize("before", [[], [(b"x-one", b"1")]])
def test_a_configured_host_takes_the_place_of_the_urls(before: list[tuple[bytes, bytes]]) -> None:
    """Two of them would be a malformed request (RFC 9112, section 3.2); a value that speaks of one is none."""
    target = target_of("POST", "http://a.test/v1")
    assert head_of(target, [*before, (b"host", b"b.test")], 0).lower().count(b"\r\nhost: ") == 1
    assert b"\r\nHost: a.test\r\n" in head_of(target, [*before, (b"x-host", b"host: b.test")], 0)


def test_a_user_in_the_url_is_a_credential() -> None:
    """Sent as RFC 7617 says, decoded first. Beside another credential it would be a choice, hence refused."""
    target = target_of("POST", "http://me%40home:k%2Fy@a.test/v1")
    assert b"\r\nauthorization: Basic " + b64encode(b"me@home:k/y") + b"\r\n" in head_of(target, [], 0)
    with pytest.raises(ValueError, match="credential"):
        head_of(target, [(b"authorization", b"Bearer key")], 0)


@given(HEADERS)
def test_no_header_ends_its_line(headers: list[tuple[bytes, bytes]]) -> None:
    """A value with a control character, but for a tab, is refused; a head has as many lines as it was given."""
    target = target_of("POST", "http://a.test/v1")
    controls = {*range(9), *range(10, 32), 127}
    if any(controls & set(value) for _, value in headers):
        with pytest.raises(ValueError, match="control"):
            head_of(target, headers, 0)
    else:
        lines = head_of(target, headers, 0).split(b"\r\n")
        assert lines[2:-3] == [name + b": " + value for name, value in headers]


@pytest.mark.parametrize("name", [b"x\r\ny", b"x\n", b"\0"])
def test_no_header_name_does_either(name: bytes) -> None:
    """Names can be configured."""
    with pytest.raises(ValueError, match="control"):
        head_of(target_of("POST", "http://a.test/v1"), [(name, b"1")], 0)
