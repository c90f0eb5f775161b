"""Examines the files of the embedded server's data and mends them; nothing is ever deleted.

The server writes a base (a snapshot), increments (commands), and a manifest that names them in their order (Valkey
documentation, "Persistence"). It does not start if one of them is damaged; without the manifest it begins anew and
overwrites the files. ``server.py`` calls this module before a start and after one that failed. The server's own
``valkey-check-aof --fix`` only cuts off what follows the first damage.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from tidemark.core.errors import StoreUnavailable
from tidemark.core.frozen import frozen
from tidemark.store.embedded.whole_commands import Arities, Span, whole_spans

FOLDER = "appendonlydir"
ASIDE = "damaged-"
"""The names of folders with what was set aside begin so; the time follows."""
REPORT = "damage.txt"
_MANIFEST = "appendonly.aof.manifest"
_LINE = re.compile(r"file (\S+) seq (\d+) type ([bih])(?: .*)?")
_NAME = re.compile(r"appendonly\.aof\.(\d+)\.(base|incr)\.(?:rdb|aof)")
_SNAPSHOTS = (b"REDIS", b"VALKEY")
"""The first bytes of a snapshot (rdb.c)."""
_SNAPSHOT_END = re.compile(rb"\[offset (\d+)\] Checksum (?:OK|disabled)")
_SNAPSHOT_ERROR = b"RDB ERROR DETECTED"
_CHUNK = 1 << 20
ReadArities = Callable[[], Arities]
"""Asks a server for its commands; called once, and only if increments must be read."""


@frozen
class _Part:
    """One file of the data, in the order in which the server reads them."""

    name: str
    number: int
    kind: str
    """The manifest's letter: ``b``, ``i``, or ``h`` for one that the server is about to delete."""
    spans: Sequence[Span] | None = None
    """What is whole of a damaged file; None for all of it."""


@frozen
class FileExamination:
    """What is wrong with the files of a folder, and what will be read after the mend."""

    damages: Sequence[str]
    """A sentence for each; empty if nothing is wrong."""
    parts: Sequence[_Part]
    lost: Sequence[str]
    """The names of the files that no longer belong to the data."""


def examine_names(folder: Path) -> FileExamination:
    """Compare the manifest with the files, without reading them, as is done before each start.

    :param folder: the data folder
    """
    data = folder / FOLDER
    if not data.is_dir():
        return FileExamination((), (), ())
    sizes = {entry.name: entry.stat().st_size for entry in data.iterdir() if _NAME.fullmatch(entry.name)}
    parts = _read_manifest(data / _MANIFEST)
    if parts is None:
        if not sizes and not (data / _MANIFEST).exists():
            return FileExamination((), (), ())
        parts = _parts_of_names(sizes)
        words = "cannot be read" if (data / _MANIFEST).exists() else "is missing"
        damages = [f"{_MANIFEST} {words}; the order of the files was taken from their names"]
        return _without_missing(parts, sizes, damages)
    return _without_missing(parts, sizes, [])


def examine(folder: Path, program: Path, read_arities: ReadArities) -> FileExamination:
    """Read all files, as is done after a start that failed.

    :param program: the server's program
    """
    by_name = examine_names(folder)
    damages, parts, lost = list(by_name.damages), list[_Part](), list(by_name.lost)
    arities: Arities | None = None
    for part in by_name.parts:
        path = folder / FOLDER / part.name
        if part.kind == "h":
            parts.append(part)
            continue
        if _is_snapshot(path):
            spans = _whole_of_snapshot(path, program)
        else:
            arities = read_arities() if arities is None else arities
            spans = _whole_of_commands(path, arities)
        size, whole = path.stat().st_size, sum(end - start for start, end in spans)
        if whole == size:
            parts.append(part)
            continue
        damages.append(f"{part.name} is damaged: {size - whole:,} of its {size:,} bytes are left out")
        if whole:
            parts.append(replace(part, spans=spans))
        else:
            lost.append(part.name)
    return FileExamination(damages, parts, lost)


def mend(folder: Path, examination: FileExamination) -> Path:
    """Let the files have only what is whole, and return the new folder beside them with what was there before.

    An end of the process at any point leaves files that the next start can mend.

    :raises OSError: the disk is full, or the folder cannot be written
    """
    data = folder / FOLDER
    aside = _new_folder(folder)
    (aside / REPORT).write_text("".join(f"{damage}\n" for damage in examination.damages), "utf-8")
    for part in examination.parts:
        if part.spans is not None:
            copy = data / f"temp-whole-{part.name}"
            _copy_spans(data / part.name, copy, part.spans)
            _keep(data / part.name, aside)
            copy.replace(data / part.name)
    for name in examination.lost:
        if (data / name).exists():
            (data / name).replace(aside / name)
    manifest = data / _MANIFEST
    if manifest.exists():
        _keep(manifest, aside)
    lines = [f"file {part.name} seq {part.number} type {part.kind}\n" for part in examination.parts]
    if lines:
        copy = data / f"temp-whole-{_MANIFEST}"
        _write(copy, "".join(lines).encode())
        copy.replace(manifest)
    else:
        manifest.unlink(missing_ok=True)  # kept beside: the server begins anew
    for changed in (aside, data, folder):
        _sync_folder(changed)
    return aside


def folders_aside(folder: Path) -> list[str]:
    """Return the names of the folders with what was set aside, oldest first."""
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.name.startswith(ASIDE))
    except OSError:
        return []


def damage_in(aside: Path) -> str:
    """Say in one line why files were set aside in a folder."""
    try:
        return "; ".join((aside / REPORT).read_text("utf-8").splitlines())
    except (OSError, UnicodeError):
        return f"its {REPORT} cannot be read"


def _read_manifest(path: Path) -> list[_Part] | None:
    """Return the parts that a manifest names; None if it is missing or is no manifest."""
    try:
        lines = [line for line in path.read_text("ascii").splitlines() if line and not line.startswith("#")]
    except (OSError, UnicodeError):
        return None
    parts = [_Part(match[1], int(match[2]), match[3]) for line in lines if (match := _LINE.fullmatch(line))]
    return parts if parts and len(parts) == len(lines) else None


def _parts_of_names(names: Collection[str]) -> list[_Part]:
    """Return the newest base and the increments that belong to it: their numbers are not below its own.

    A base is counted up with the increments, which also a snapshot that failed counts up.
    """
    matches = [(match, _Part(name, int(match[1]), match[2][0])) for name in names if (match := _NAME.fullmatch(name))]
    bases = [part for _, part in matches if part.kind == "b"]
    base = max(bases, key=lambda part: part.number, default=None)
    least = base.number if base else 0
    increments = [part for _, part in matches if part.kind == "i" and part.number >= least]
    return [*([base] if base else []), *sorted(increments, key=lambda part: part.number)]


def _without_missing(parts: Sequence[_Part], sizes: dict[str, int], damages: list[str]) -> FileExamination:
    present = []
    for part in parts:
        if part.name not in sizes:
            if part.kind != "h":
                damages.append(f"{part.name} is missing")
        elif part.kind == "b" and sizes[part.name] == 0:  # the server reads an empty one as no data
            damages.append(f"{part.name} is empty")
        else:
            present.append(part)
    names = {part.name for part in present}
    lost = [name for name in sizes if name not in names] if damages else []
    return FileExamination(damages, present, lost)


def _is_snapshot(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(6).startswith(_SNAPSHOTS)


def _whole_of_snapshot(path: Path, program: Path) -> list[Span]:
    """Ask the server's own examination. A snapshot is whole or lost: its checksum is over all of it.

    :raises StoreUnavailable: the examination did not come to an end
    """
    command = ["valkey-check-rdb", str(path)]  # the name by which the program is called makes it examine
    checked = subprocess.run(command, executable=program, capture_output=True, check=False)
    if checked.returncode == 0 and (end := _SNAPSHOT_END.search(checked.stdout)):
        return [(0, int(end[1]))]
    if _SNAPSHOT_ERROR in checked.stdout:
        return []
    raise StoreUnavailable(f"{path} could not be examined: exit code {checked.returncode}.")


def _whole_of_commands(path: Path, arities: Arities) -> list[Span]:
    if not path.stat().st_size:
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return whole_spans(content, arities)


def _new_folder(folder: Path) -> Path:
    """Make a folder for what is set aside, named after the time. One of the same second gets a number."""
    name = time.strftime(f"{ASIDE}%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(1, 1000):
        path = folder / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(0, "there are a thousand of them", str(folder / name))


def _keep(path: Path, aside: Path) -> None:
    """Let a file have a name in the other folder too, if nothing will change it."""
    try:
        os.link(path, aside / path.name)
    except OSError:  # a file system without links
        shutil.copy2(path, aside / path.name)


def _copy_spans(source: Path, target: Path, spans: Sequence[Span]) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        for start, end in spans:
            old.seek(start)
            remaining = end - start
            while remaining > 0 and (piece := old.read(min(_CHUNK, remaining))):
                remaining -= new.write(piece)
        new.flush()
        os.fsync(new.fileno())


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
