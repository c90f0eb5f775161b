"""Stores that speak TLS only and want a client's certificate: one server, a cluster, a primary behind a Sentinel."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from tests.doctor.test_faulty_stores import store_findings
from tests.fleet.conftest import open_patient_store
from tests.store.turns import Client, assistant, dialogue, raws
from tests.support.certificates import ADDRESS, Authority, CertificateFiles
from tests.support.clusters import SLOTS, free_ports, succeeds, until
from tidemark.core.errors import StoreUnavailable
from tidemark.doctor.findings import Finding

pytestmark = pytest.mark.fleet
SERVICE = "main"
KINDS = pytest.mark.parametrize("kind", ["single", "cluster", "sentinel"])


class Secrets(NamedTuple):
    """Who signs the certificates, and those of servers and clients."""

    authority: Authority
    server: CertificateFiles
    expired: CertificateFiles
    client: CertificateFiles

    def query(self, authority: Authority | None = None, *, with_client: bool = True) -> str:
        """The options of an address."""
        options = f"?ssl_ca_certs={(authority or self.authority).file}"
        return options + (f"&ssl_certfile={self.client.certificate}&ssl_keyfile={self.client.key}" * with_client)


class Servers:
    """Programs that speak TLS at a port of their own; the embedded server's has none, so Debian's is used."""

    def __init__(self, folder: Path, secrets: Secrets, stack: contextlib.ExitStack) -> None:
        self.folder, self.secrets, self._stack = folder, secrets, stack

    def start(self, certificate: CertificateFiles, *options: str, config: str | None = None) -> int:
        """Start one, and return its port.

        :param config: a Sentinel's file; None for a server
        """
        port, bus = free_ports(2)
        folder = self.folder / str(port)
        folder.mkdir()
        words = [str(bus) if option == "BUS" else option for option in options]
        if config is not None:
            (folder / "sentinel.conf").write_text(config)
            words = [str(folder / "sentinel.conf"), "--sentinel", *words]
        tls = [
            "--tls-port",
            str(port),
            "--port",
            "0",
            "--bind",
            ADDRESS,
            "--dir",
            str(folder),
            "--tls-replication",
            "yes",
        ]
        tls += ["--tls-cert-file", str(certificate.certificate), "--tls-key-file", str(certificate.key)]
        tls += ["--tls-ca-cert-file", str(self.secrets.authority.file), "--tls-auth-clients", "yes"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([str(program()), *words, *tls], stdout=log, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        if certificate is not self.secrets.expired:
            until(lambda: succeeds(self.admin(port).ping))
        return port

    def admin(self, port: int) -> redis.Redis:
        """A client of the test's own."""
        own = self.secrets.client
        client = redis.Redis(
            ADDRESS,
            port,
            ssl=True,
            ssl_ca_certs=str(self.secrets.authority.file),
            ssl_certfile=str(own.certificate),
            ssl_keyfile=str(own.key),
        )
        self._stack.callback(client.close)
        return client


def program() -> str | None:
    """A server's program that knows TLS."""
    return shutil.which("redis-server")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Their folder, and what they are started with."""
    if program() is None:
        pytest.skip("no redis-server is installed (apt-get install redis-server)")
    folder = tmp_path_factory.mktemp("tls")
    own = Authority(folder)
    secrets = Secrets(own, own.issue("server"), own.issue("expired", expired=True), own.issue("client"))
    with contextlib.ExitStack() as stack:
        yield Servers(folder, secrets, stack)


@pytest.fixture(scope="module")
def addresses(servers: Servers) -> dict[str, str]:
    """The address of each kind of store, without options."""
    cluster = servers.start(
        servers.secrets.server, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", "BUS"
    )
    ask: Any = servers.admin(cluster).execute_command
    ask("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
    until(lambda: b"cluster_state:ok" in ask("CLUSTER", "INFO"))
    primary = servers.start(servers.secrets.server)
    watching = f"sentinel monitor {SERVICE} {ADDRESS} {primary} 1\n"
    sentinel = servers.start(servers.secrets.server, config=watching)
    return {
        "single": f"rediss://{ADDRESS}:{primary}/0",
        "cluster": f"rediss+cluster://{ADDRESS}:{cluster}",
        "sentinel": f"rediss+sentinel://{ADDRESS}:{sentinel}/{SERVICE}/0",
    }


@KINDS
async def test_a_store_is_used_by_its_authority_and_a_clients_certificate(
    servers: Servers, addresses: dict[str, str], anyio_backend: str, kind: str
) -> None:
    """The options of the address name the files."""
    store = open_patient_store(addresses[kind] + servers.secrets.query())
    client = Client(store, uuid.uuid4().hex)
    conversation = await client.send(dialogue(3), assistant("reply"))
    assert await client.read(conversation) == raws([*dialogue(3), assistant("reply")])
    await store.close()


@KINDS
def test_the_doctor_finds_no_fault_in_it(
    servers: Servers, addresses: dict[str, str], tmp_path: Path, kind: str
) -> None:
    """It examines each with the same files."""
    assert errors_of(store_findings(addresses[kind] + servers.secrets.query(), tmp_path)) == []


@KINDS
def test_a_certificate_of_another_authority_is_an_error_with_its_mend(
    servers: Servers, addresses: dict[str, str], tmp_path: Path, kind: str
) -> None:
    """It names the option that names the CA."""
    other = Authority(tmp_path, "other")
    errors = errors_of(store_findings(addresses[kind] + servers.secrets.query(other), tmp_path))
    assert any("ssl_ca_certs=FILE" in error.mend for error in errors), errors


@KINDS
def test_a_missing_certificate_of_the_client_is_an_error_with_its_mend(
    servers: Servers, addresses: dict[str, str], tmp_path: Path, kind: str
) -> None:
    """It names the options that name its files."""
    errors = errors_of(store_findings(addresses[kind] + servers.secrets.query(with_client=False), tmp_path))
    assert any("ssl_certfile=FILE&ssl_keyfile=FILE" in error.mend for error in errors), errors


@KINDS
async def test_a_missing_certificate_of_the_client_is_told_at_run_time_too(
    servers: Servers, addresses: dict[str, str], anyio_backend: str, kind: str
) -> None:
    """Readiness has these words. The server's alert is often lost with the connection, so it is tried several times."""
    for _ in range(10):
        store = open_patient_store(addresses[kind] + servers.secrets.query(with_client=False))
        with pytest.raises(StoreUnavailable, match=re.escape("ssl_certfile=FILE&ssl_keyfile=FILE")):
            await store.ping()
        await store.close()


def test_an_expired_certificate_is_an_error_with_its_mend(servers: Servers, tmp_path: Path) -> None:
    """It says that it may have expired."""
    port = servers.start(servers.secrets.expired)
    until(lambda: b"Ready to accept" in (servers.folder / str(port) / "log").read_bytes())
    errors = errors_of(store_findings(f"rediss://{ADDRESS}:{port}/0" + servers.secrets.query(), tmp_path))
    assert any("expired" in error.mend for error in errors), errors


def errors_of(findings: list[Finding]) -> list[Finding]:
    """Those that say that it would not work."""
    return [finding for finding in findings if finding.status == "error"]
