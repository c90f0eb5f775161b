"""The command ``tidemark store``: it looks after a whole store, directly and while it is in use.

``cli/main.py`` adds it to its group; its folder has the work.
"""

from __future__ import annotations

import sys
import time
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidemark.core.errors import ConfigError
from tidemark.terminal.audited import audit
from tidemark.terminal.options import config_option, example, json_option, warn, with_store
from tidemark.terminal.progress import progress
from tidemark.terminal.tables import print_json, printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tidemark.config import Settings
    from tidemark.features.upkeep.examination import Unreadable
    from tidemark.store.codec import Codec
    from tidemark.store.whole_store import WholeStore

Done = TypeVar("Done")
MOST_LISTED = 1000
"""Records that ``--json`` lists; the counts are of all."""


@click.group(epilog=example("tidemark store check"), short_help="Examine, export and import a whole store.")
def store() -> None:
    """Examine, export and import the whole store that store.url names, while it is in use."""


@store.command(
    epilog=example("tidemark store check", "tidemark store check --repair --json"),
    short_help="Read every record, and name those that cannot be read.",
)
@config_option
@json_option
@click.option("--repair", is_flag=True, help="Move aside what cannot be read; nothing is deleted.")
def check(config: Path | None, as_json: bool, repair: bool) -> None:
    """Read every record of the store, and name those that cannot be read, with the reason.

    An embedded store that does not run is started for it. With --repair, what is whole of damaged files is loaded, and
    the files as they were are kept beside.

    The exit code is 1 if there are some, and after --repair if one could not be moved aside.
    """
    from tidemark.features.upkeep.examination import StoreExaminer

    listed: list[dict[str, Any]] = []
    counts = {"unreadable": 0, "moved": 0}

    async def examine(whole: WholeStore, settings: Settings) -> StoreExaminer:
        await whole.check_schema()
        if repair:
            await audit(whole.call, settings, "store.repair")
        examiner = StoreExaminer(whole, _codec(settings))
        with progress("examining", await whole.count_keys(), unit="keys", is_shown=not as_json) as bar:
            async for keys, unreadable in examiner.examine():
                bar.advance(keys)
                for record in unreadable:
                    moved = bool(repair and await examiner.move_aside(record))
                    counts["unreadable"] += 1
                    counts["moved"] += moved
                    row = {"key": record.key, "place": record.position, "reason": record.reason, "moved": moved}
                    if not as_json:
                        click.echo(_line(record, moved=moved))
                    elif len(listed) < MOST_LISTED:
                        listed.append(row)
        return examiner

    with _going_on(f"Nothing was changed{' but what was moved aside' if repair else ''}; the command begins anew."):
        done = run_with_store(config, examine, tell=partial(click.echo, err=True) if repair else None).progress
    if as_json:
        totals = {"keys": done.keys, "records": done.records, **counts, "moved_before": done.moved_before}
        others = {"aside": done.aside, "unknown": done.unknown_count, "unknown_names": done.unknown}
        print_json({"ok": not counts["unreadable"], **totals, **others, "records_unreadable": listed})
    else:
        click.echo(
            f"{done.keys:,} keys, {done.records:,} records, {counts['unreadable']:,} cannot be read"
            + (f", {counts['moved']:,} of them moved aside" if repair else "")
            + (f"; {done.aside:,} keys of earlier repairs" if done.aside else "")
        )
        for name in done.unknown:
            click.echo(f"unknown: {printable(name)} (a newer version or another program wrote it)", err=True)
    sys.exit(1 if counts["unreadable"] > counts["moved"] else 0)


def _line(record: Unreadable, *, moved: bool) -> str:
    place = f" [{printable(record.position)}]" if record.position else ""
    return f"{'moved aside' if moved else 'unreadable'}: {record.key}{place}: {printable(record.reason)}"


@store.command(epilog=example("tidemark store export backup.jsonl.zst"), short_help="Write the whole store to FILE.")
@config_option
@json_option
@click.option("--restart", is_flag=True, help="Begin anew where an earlier run was interrupted.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def export(config: Path | None, as_json: bool, restart: bool, file: Path) -> None:
    """Write the whole store to FILE, which is replaced when the export is complete.

    An interrupted export leaves FILE.part, and the same command goes on with it.
    """
    from tidemark.features.upkeep.exporting import StoreExport

    part = file.with_name(f"{file.name}.part")
    if restart:
        part.unlink(missing_ok=True)

    async def write(whole: WholeStore, settings: Settings) -> StoreExport:
        await whole.check_schema()
        await audit(whole.call, settings, "store.export", file.name)
        work = StoreExport(whole, part, time.time)
        with progress("exporting", await whole.count_keys(), unit="keys", is_shown=not as_json) as bar:
            async for keys in work.run():
                bar.advance(keys)
        return work

    with _going_on(f"{part} has what was exported; the same command goes on with it."):
        work = run_with_store(config, write)
    end = work.end
    if end is None:  # it has raised before
        raise click.ClickException("the export is not complete")
    part.replace(file)
    size = file.stat().st_size
    if as_json:
        counts = {"records": end.records, "keys": end.keys, "bytes": size, "resumed_records": work.resumed_records}
        print_json({"file": str(file), **counts, "sha256": end.sha256})
        return
    resumed = f" ({work.resumed_records:,} by an earlier run)" if work.resumed_records else ""
    click.echo(f"{end.records:,} records{resumed}, {end.keys:,} keys, {size:,} bytes: {printable(str(file))}")


@store.command(
    "import",
    epilog=example("tidemark store import backup.jsonl.zst"),
    short_help="Read an exported FILE into the store.",
)
@config_option
@json_option
@click.option("--replace", is_flag=True, help="Replace what the store has, newer or not.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def import_(config: Path | None, as_json: bool, replace: bool, file: Path) -> None:
    """Read a file of tidemark store export into the store; what is newer there stays.

    After an interruption the same command goes on where it was.
    """
    from msgspec import to_builtins

    from tidemark.features.upkeep.importing import StoreImport

    try:
        size = file.stat().st_size
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from error

    async def read(whole: WholeStore, settings: Settings) -> StoreImport:
        await whole.check_schema()
        await audit(whole.call, settings, "store.import", file.name)
        work = StoreImport(whole, file, time.time, replace=replace)
        with progress("importing", size, is_shown=not as_json) as bar:
            async for done in work.run():
                bar.advance(done)
        return work

    with _going_on("What was imported stays; the same command goes on after it."):
        work = run_with_store(config, read)
    counts = to_builtins(work.counts)
    if as_json:
        print_json({**counts, "resumed_records": work.resumed_records, "differing_names": work.differing_names})
        return
    records = counts.pop("records")
    click.echo(f"{records:,} records: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
    if work.differing_names:
        names = ", ".join(map(printable, work.differing_names))
        click.echo(f"differing, left as the store has it: {names} (--replace overwrites)", err=True)


@store.command(
    epilog=example("tidemark store rotate", "tidemark store rotate --renew --json"),
    short_help="Seal the store anew with the present keys.",
)
@config_option
@json_option
@click.option("--renew", is_flag=True, help="Give each tenant a new key too; old ones open what lies elsewhere.")
def rotate(config: Path | None, as_json: bool, renew: bool) -> None:
    """Wrap the tenants' keys by the first master key, and seal what is still plain.

    The store may be in use meanwhile. After an interruption the same command goes on. The exit code is 1 if some values
    could not be sealed.
    """
    from msgspec import to_builtins

    from tidemark.features.upkeep.rotation import StoreRotation
    from tidemark.store.encryption.cipher import TenantCipher

    async def seal(whole: WholeStore, settings: Settings) -> StoreRotation:
        await whole.check_schema(makes_digests=True)
        codec = _codec(settings)
        if not isinstance(codec.cipher, TenantCipher):
            raise ConfigError("There is no master key. Set TIDEMARK_ENCRYPTION_KEY.")
        codec.cipher.required = False  # what is plain is to be sealed
        codec.cipher.keys.start()
        work = StoreRotation(whole, codec, codec.cipher.keys)
        with progress("sealing", await whole.count_keys(), unit="keys", is_shown=not as_json) as bar:
            async for keys in work.run(renew=renew):
                bar.advance(keys)
        if work.progress.sealed and str(settings.store.url) == "embedded":
            await whole.rewrite_files()  # the file has what was plain
        return work

    with _going_on("What was sealed stays so; the same command goes on with the rest."):
        done = run_with_store(config, seal).progress
    if as_json:
        print_json({"ok": not done.unchanged, **to_builtins(done)})
    else:
        click.echo(
            f"{done.rewrapped:,} tenants' keys wrapped anew, {done.sealed:,} plain values sealed, "
            f"{done.resealed:,} sealed anew, {done.unchanged:,} left as they are"
            + (" (run it again; tidemark doctor and tidemark store check say why some stay)" if done.unchanged else "")
            + (f"; {done.queued:,} queued entries stay plain until they leave" if done.queued else "")
        )
    sys.exit(1 if done.unchanged else 0)


def _codec(settings: Settings) -> Codec:
    """Return the codec that a server with these settings has."""
    from tidemark.dialects.message_formats import MessageFormats
    from tidemark.store.codec import Codec
    from tidemark.worker.dialects import build_dialects
    from tidemark.worker.encryption import cipher_of

    cipher = cipher_of(settings, warn)
    if cipher is not None:
        cipher.keys.source.version()  # raises if it does not answer: otherwise all keys would seem lost
    return Codec(cipher, is_message=MessageFormats(build_dialects().values()).is_message)


@contextmanager
def _going_on(words: str) -> Iterator[None]:
    """Say at an interruption how the work goes on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        click.echo(f"tidemark: interrupted. {words}", err=True)
        raise click.Abort from interrupt  # click adds an empty line to the other one


def run_with_store(
    config: Path | None,
    work: Callable[[WholeStore, Settings], Awaitable[Done]],
    *,
    tell: Callable[[str], None] | None = None,
) -> Done:
    """Return what the work does with the store open, and stop everything that this started.

    :param tell: mend the files of an embedded store that does not run, if they are damaged, and say so
    """
    from tidemark.config.signing import key_digests_of
    from tidemark.store.whole_store import WholeStore

    async def run(settings: Settings, url: str) -> Done:
        key_digests_of(settings)
        async with aclosing(WholeStore(url, library=settings.transport.store == "library")) as whole:
            return await work(whole, settings)

    return with_store(config, run, tell=tell)


COMMANDS = (store,)
