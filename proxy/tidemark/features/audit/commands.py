"""The command ``tidemark audit``: it verifies and exports the audit log, directly from the store.

``cli/main.py`` adds it to its group. Both need the servers' secret, and the head that they print is worth noting
elsewhere: only by it a whole store that was set back is found.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tidemark.terminal.options import config_option, example, json_option, warn, with_store
from tidemark.terminal.tables import print_json, printable

if TYPE_CHECKING:
    from tidemark.config import Settings
    from tidemark.core.audit_chain import ChainHead, Verdict
    from tidemark.store.audit_log import AuditLog

Done = TypeVar("Done")
_SINCE = re.compile(r"([1-9][0-9]{0,4})d", re.ASCII)
_DAY_SECONDS = 86_400


@click.group(epilog=example("tidemark audit verify"), short_help="Verify and export the audit log.")
def audit() -> None:
    """Verify and export the log of what people read, changed and deleted."""


@audit.command(epilog=example("tidemark audit verify"), short_help="Find every change of the log, and every gap.")
@config_option
@json_option
@click.option("--head", "noted", metavar="HEAD", help="A head that was noted before, as verify and export print it.")
@click.option(
    "--secret-file",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file with an earlier TIDEMARK_SECRET.",
)
def verify(config: Path | None, as_json: bool, noted: str | None, files: tuple[Path, ...]) -> None:
    """Examine every entry by the servers' secret. The exit code is 1 if one was changed, added or is missing."""
    from tidemark.core.audit_chain import ChainKey, read_head
    from tidemark.features.audit.reading import verify as examine

    head: ChainHead | None = None
    if noted is not None:
        head = read_head(noted.strip().encode())
        if head is None:
            raise click.UsageError("--head takes NUMBER:SIGNATURE, as verify and export print it.")
    try:
        earlier = [ChainKey(file.read_text(encoding="utf-8").strip().encode()) for file in files]
    except (OSError, UnicodeError) as error:
        raise click.UsageError(f"A secret cannot be read: {error}") from error
    verdict = _with_log(config, lambda log: examine(log, earlier, head))
    if as_json:
        problems = [{"number": p.number, "kind": p.kind, "detail": p.detail} for p in verdict.problems]
        print_json(
            {"ok": verdict.is_whole, "entries": verdict.entries, "first": verdict.first, "head": str(verdict.head)}
            | {"problems": verdict.problem_count, "listed": problems}
        )
    else:
        _print(verdict)
    sys.exit(0 if verdict.is_whole else 1)


def _print(verdict: Verdict) -> None:
    for problem in verdict.problems:
        click.echo(f"entry {problem.number}: {problem.kind}: {printable(problem.detail)}")
    if verdict.problem_count > len(verdict.problems):
        click.echo(f"... and {verdict.problem_count - len(verdict.problems):,} more")
    click.echo(f"{verdict.entries:,} entries, {verdict.problem_count:,} problems; the head is {verdict.head}")


@audit.command(
    epilog=example("tidemark audit export --since 30d --jsonl audit.jsonl"), short_help="Write entries as JSON lines."
)
@config_option
@click.option("--since", metavar="DAYS", help="Entries of the last days, such as 30d; without it all.")
@click.option(
    "--jsonl", "file", type=click.Path(dir_okay=False, path_type=Path), help="The file; without it standard output."
)
def export(config: Path | None, since: str | None, file: Path | None) -> None:
    """Write the entries, oldest first, each with its signature; the head is printed on standard error."""
    from tidemark.terminal.whole_files import write_whole

    match = _SINCE.fullmatch(since or "1d")
    if match is None:
        raise click.UsageError(f"--since takes days, such as 30d, and not {since!r}.")
    oldest = datetime.now(UTC).timestamp() - int(match[1]) * _DAY_SECONDS if since else 0.0

    async def collect(log: AuditLog) -> tuple[list[bytes], bytes]:
        return [line async for line in _lines(log, oldest)], await log.packed_head()

    lines, packed = _with_log(config, collect)
    if file is None:
        for line in lines:
            click.echo(line, nl=False)
    else:
        write_whole(file, lines)
    head = b":".join(packed.split(b":")[:2]).decode("ascii", "replace") or "none"
    click.echo(f"{len(lines):,} entries; the head is {printable(head)}", err=True)


async def _lines(log: AuditLog, oldest: float) -> AsyncIterator[bytes]:
    from tidemark.core.audit_chain import read_entry
    from tidemark.features.audit.reading import entry_json

    async for stored in log.stored():
        entry = read_entry(stored.plain)
        if entry is not None and entry.at / 1000 >= oldest:
            fields = {**entry_json(entry), "key": entry.key, "signature": stored.signature.hex()}
            yield json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _with_log(config: Path | None, work: Callable[[AuditLog], Awaitable[Done]]) -> Done:
    """Return what the work does with the log, and stop everything that this started."""
    from tidemark.config.signing import secret_of
    from tidemark.worker.worker import Worker

    async def run(settings: Settings, url: str) -> Done:
        async with aclosing(Worker(settings, warn, store_url=url, secret=secret_of(settings))) as worker:
            await worker.store.check_schema()
            return await work(worker.audit_log)

    return with_store(config, run)


COMMANDS = (audit,)
