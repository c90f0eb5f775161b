"""A certificate authority of a test's own, which signs certificates of servers and clients."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ADDRESS = "127.0.0.1"


class CertificateFiles(NamedTuple):
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates. Its own is in ``file``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        own = self._builder(name, self._key, name).add_extension(constraints, critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, host: str = ADDRESS, expired: bool = False) -> CertificateFiles:
        """Make a certificate for a host.

        :param name: of the files, and of whom the certificate is
        :param host: an IP address, or a name
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(name, key, self._name, expired=expired)
        builder = builder.add_extension(x509.SubjectAlternativeName([_host_of(host)]), critical=False)
        files = CertificateFiles(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        files.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
        return files

    def _builder(
        self, subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, *, expired: bool = False
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        ending = now - dt.timedelta(minutes=1) if expired else now + dt.timedelta(hours=1)
        return (
            x509.CertificateBuilder()
            .subject_name(_name_of(subject))
            .issuer_name(_name_of(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(ending)
        )


def _host_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name_of(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
