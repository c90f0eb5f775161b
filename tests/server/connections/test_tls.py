"""TLS of the server: its certificate can change under it, and nobody is served without one that clients can check."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from starlette.types import Receive, Scope, Send

from tests.server.connections.served import GET, WAIT_SECONDS, Client, Served
from tests.support.certificates import ADDRESS, Authority, CertificateFiles
from tests.support.waiting import wait_until
from tidemark.core.errors import ConfigError
from tidemark.server.connections import Bounds, Certificates, TlsFiles
from tidemark.server.connections.tls import context_of


async def app(scope: Scope, _: Receive, send: Send) -> None:
    """Answer with the scheme of the request."""
    body = scope["scheme"].encode()
    lines = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": lines})
    await send({"type": "http.response.body", "body": body})


def files_of(issued: CertificateFiles, **more: Path) -> TlsFiles:
    """The files as the server takes them."""
    issued.key.chmod(0o600)
    return TlsFiles(issued.certificate, issued.key, **more)


@contextmanager
def connected(server: Served, authority: Authority, own: CertificateFiles | None = None) -> Iterator[Client]:
    """A client that trusts an authority."""
    context = ssl.create_default_context(cafile=authority.file)
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=ADDRESS) as wire,
    ):
        yield Client(wire)


def name_of(client: Client) -> str:
    """Whose certificate a server showed."""
    wire = client.wire
    assert isinstance(wire, ssl.SSLSocket)
    der = wire.getpeercert(binary_form=True)
    assert der is not None
    return str(x509.load_der_x509_certificate(der).subject.rfc4514_string())


def served_name(server: Served, authority: Authority) -> str:
    """Whose certificate a new connection is shown."""
    with connected(server, authority) as client:
        client.send(GET)
        assert client.answer()[0] == 200
        return name_of(client)


def test_requests_are_served_over_tls_and_know_it(tmp_path: Path) -> None:
    """The console's cookie depends on the scheme; several requests go over one connection."""
    authority = Authority(tmp_path)
    with Served(app, tls=files_of(authority.issue("one"))) as server, connected(server, authority) as client:
        for _ in range(3):
            client.send(GET)
            assert client.answer()[2] == b"https"


def test_who_speaks_plain_http_or_an_old_version_is_not_served(tmp_path: Path) -> None:
    """The server goes on for others."""
    authority = Authority(tmp_path)
    with Served(app, tls=files_of(authority.issue("one"))) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as plain:
            plain.sendall(GET)
            assert b"200" not in plain.recv(1024)
        old = ssl.create_default_context(cafile=authority.file)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as plain,
            pytest.raises(OSError, match=r"(?i)version|alert|protocol|eof|reset"),
        ):
            old.wrap_socket(plain, server_hostname=ADDRESS)
        assert served_name(server, authority) == "CN=one"


def test_a_new_certificate_is_shown_without_a_restart_and_open_connections_go_on(tmp_path: Path) -> None:
    """As a renewal writes it: over the same names."""
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    with Served(app, tls=files_of(one)) as server, connected(server, authority) as before:
        before.send(GET)
        assert before.answer()[0] == 200
        for new, old in zip(other, one, strict=True):
            new.replace(old)
        wait_until(lambda: served_name(server, authority) == "CN=other", WAIT_SECONDS)
        before.send(GET)
        assert before.answer()[0] == 200
        assert name_of(before) == "CN=one"


def test_half_a_renewal_changes_nothing(tmp_path: Path) -> None:
    """The certificate is there and its key is not: the pair of before goes on, and somebody is told."""
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    told: list[str] = []
    certificates = Certificates(files_of(one), told.append)
    before = certificates.context
    other.certificate.replace(one.certificate)
    certificates.refresh()
    assert certificates.context is before
    assert "is not the one of the certificate" in told[0]
    one.certificate.unlink()
    certificates.refresh()
    assert certificates.context is before
    authority.issue("one")
    certificates.refresh()
    assert certificates.context is not before
    assert len(told) == 2


def test_a_client_needs_a_certificate_of_the_authority_that_is_named(tmp_path: Path) -> None:
    """One of another authority is none."""
    authority, others = Authority(tmp_path), Authority(tmp_path, "others")
    files = files_of(authority.issue("one"), client_ca=authority.file)
    with Served(app, tls=files) as server:
        with connected(server, authority, authority.issue("client")) as client:
            client.send(GET)
            assert client.answer()[0] == 200
        assert not is_answered(server, authority, None)
        assert not is_answered(server, authority, others.issue("stranger"))


def is_answered(server: Served, authority: Authority, own: CertificateFiles | None) -> bool:
    """Whether a client with a certificate is answered; with TLS 1.3 it learns after the handshake that it is not."""
    try:
        with connected(server, authority, own) as client:
            client.send(GET)
            return bool(client.wire.recv(1024))
    except OSError:
        return False


def test_who_does_not_finish_the_handshake_is_closed(tmp_path: Path) -> None:
    """As one that does not finish its head."""
    authority = Authority(tmp_path)
    bounds = Bounds(head_seconds=0.2)
    with Served(app, bounds, tls=files_of(authority.issue("one"))) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as silent:
            assert silent.recv(10) == b""
        assert served_name(server, authority) == "CN=one"


def damaged(tmp_path: Path, case: str) -> TlsFiles:
    """Files that cannot be used."""
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    text = tmp_path / "text.pem"
    text.write_text("words")
    sealed = tmp_path / "sealed.key"
    key = serialization.load_pem_private_key(one.key.read_bytes(), None)
    lock = serialization.BestAvailableEncryption(b"word")
    form = serialization.PrivateFormat.PKCS8
    sealed.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))
    return {
        "other": TlsFiles(one.certificate, other.key),
        "missing": TlsFiles(tmp_path / "none.pem", one.key),
        "no certificate": TlsFiles(text, one.key),
        "no key": TlsFiles(one.certificate, text),
        "passphrase": TlsFiles(one.certificate, sealed),
        "no authority": TlsFiles(one.certificate, one.key, text),
    }[case]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("other", "other.key is not the one of the certificate"),
        ("missing", "none.pem cannot be read: No such file"),
        ("no certificate", "server.tls.cert: "),
        ("no key", "text.pem has no private key"),
        ("passphrase", "sealed.key has a passphrase"),
        ("no authority", "server.tls.client_ca: "),
    ],
)
def test_files_that_cannot_be_used_are_named_at_the_start(tmp_path: Path, case: str, words: str) -> None:
    """With what to do; nothing is asked on a terminal."""
    with pytest.raises(ConfigError, match=words):
        context_of(damaged(tmp_path, case))


def test_a_key_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    """It works all the same."""
    issued = Authority(tmp_path).issue("one")
    assert files_of(issued).warnings() == ()
    issued.key.chmod(0o644)
    assert "chmod 600" in TlsFiles(issued.certificate, issued.key).warnings()[0]
