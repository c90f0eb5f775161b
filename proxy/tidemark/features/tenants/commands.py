"""The command ``tidemark tenants``: it exports or erases a tenant, with or without a running server.

``cli/main.py`` adds it to its group; ``export.py`` and ``erasure.py`` have the work.
"""

from __future__ import annotations

import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemark.core.errors import ConfigError, InvalidRequest
from tidemark.terminal.audited import audit
from tidemark.terminal.options import config_option, confirm, example, json_option, warn, with_store, yes_option
from tidemark.terminal.tables import print_json, printable

if TYPE_CHECKING:
    from tidemark.config import Settings


@click.group(
    epilog=example("tidemark tenants forget 3f2a"), short_help="Export or erase a tenant, and check its certificate."
)
def tenants() -> None:
    """Export or erase all that is stored of a tenant, and check what was signed about it."""


@tenants.command(
    epilog=example("tidemark tenants forget 3f2a", "tidemark tenants forget 3f2a --yes --json > certificate.json"),
    short_help="Erase TENANT, in backups too.",
)
@config_option
@json_option
@yes_option
@click.argument("tenant")
def forget(config: Path | None, as_json: bool, yes: bool, tenant: str) -> None:
    """Delete the key of TENANT, then all its records, and print a signed certificate.

    TENANT is its fingerprint, or the beginning of it. No copy of the store can be read any more, unless nothing was
    encrypted: the certificate says so then.
    """
    from tidemark.config.signing import key_digests_of, secret_of
    from tidemark.features.tenants.erasure import TenantErasure
    from tidemark.features.tenants.feature import erasure_parts
    from tidemark.store.whole_store import WholeStore
    from tidemark.worker.encryption import cipher_of

    if as_json and not yes:
        raise click.UsageError("--json prints nothing but the certificate, so say --yes with it.")

    async def run(settings: Settings, url: str) -> dict[str, Any]:
        secret = secret_of(settings)
        key_digests_of(settings, secret)
        cipher = cipher_of(settings, warn)
        keys = None if cipher is None else cipher.keys
        async with aclosing(WholeStore(url, library=settings.transport.store == "library")) as whole:
            await whole.check_schema(makes_digests=True)
            erasure = TenantErasure(erasure_parts(settings, whole, keys, secret))
            owner = await erasure.find(tenant)
            confirm(f"Erase all of tenant {printable(owner)}? This cannot be undone.", yes=yes)
            await audit(whole.call, settings, "tenant.forget", tenant, owner)
            return await erasure.erase(owner, lambda step: click.echo(f"erasing: {step}", err=True))

    print_json(with_store(config, run))


@tenants.command(
    epilog=example("tidemark tenants export 3f2a tenant.jsonl", "tidemark tenants export 3f2a --html tenant.html"),
    short_help="Write all that is kept of TENANT to FILE.",
)
@config_option
@json_option
@click.option("--html", is_flag=True, help="Write one page to read, not lines of JSON.")
@click.argument("tenant")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def export(config: Path | None, as_json: bool, html: bool, tenant: str, file: Path) -> None:
    """Write all that is kept of TENANT to FILE, which is replaced when the export is complete.

    TENANT is its fingerprint, or the beginning of it.
    """
    from tidemark.config.signing import secret_of
    from tidemark.features.tenants.export import TenantExport, write_export
    from tidemark.features.tenants.feature import export_parts
    from tidemark.features.tenants.traces import find_owner
    from tidemark.store.whole_store import WholeStore
    from tidemark.worker.worker import Worker

    async def run(settings: Settings, url: str) -> TenantExport:
        worker = Worker(settings, warn, store_url=url, secret=secret_of(settings))
        async with aclosing(WholeStore(url, library=settings.transport.store == "library")) as whole:
            await whole.check_schema(makes_digests=True)
            owner = await find_owner(whole, worker.tenant_keys, tenant)
            await audit(whole.call, settings, "tenant.export", tenant, owner)
            work = TenantExport(export_parts(worker, whole), owner)
            await write_export(work, "html" if html else "jsonl", file)
            return work

    work = with_store(config, run)
    size = file.stat().st_size
    if as_json:
        print_json({"file": str(file), "objects": work.objects, "bytes": size})
    else:
        click.echo(f"{work.objects:,} objects, {size:,} bytes: {printable(str(file))}")


@tenants.command(
    epilog=example("tidemark tenants verify certificate.json"), short_help="Check the certificate in FILE."
)
@config_option
@json_option
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def verify(config: Path | None, as_json: bool, file: Path) -> None:
    """Tell whether the certificate in FILE is as this installation signed it.

    The exit code is 1 if it was changed, or another installation's key signed it.
    """
    from tidemark.config import load
    from tidemark.config.signing import secret_of
    from tidemark.features.tenants.certificates import is_own, is_whole, read_certificate

    try:
        certificate = read_certificate(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from error
    try:
        whole = is_whole(certificate)
    except InvalidRequest as error:
        raise click.ClickException(str(error)) from error
    own = is_own(certificate, secret_of(load(config, os.environ)))
    if as_json:
        print_json({"ok": whole and own, "unchanged": whole, "signed_here": own})
    elif not whole:
        click.echo("changed since it was signed")
    elif not own:
        click.echo("unchanged, but signed by another installation, or with another TIDEMARK_SECRET")
    else:
        click.echo(f"unchanged: tenant {certificate.get('tenant')} was erased at {certificate.get('erased_at')}")
    sys.exit(0 if whole and own else 1)


COMMANDS = (tenants,)
