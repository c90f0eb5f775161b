"""``tidemark wrap --install`` and ``tidemark unwrap``: a client's own settings lead it to Tidemark, and no longer.

``cli/main.py`` adds ``unwrap`` to its group. The data folder keeps a copy of each file as it was before, since only
a copy restores it byte for byte.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from tidemark.cli.agents import AGENTS
from tidemark.cli.agents.agent import Agent, Place
from tidemark.cli.agents.settings_file import JsonFile, SettingsRefusal, TextFile
from tidemark.core.errors import TidemarkError
from tidemark.core.frozen import frozen
from tidemark.terminal.options import config_option, example
from tidemark.terminal.whole_files import write_whole

FOLDER = "wrapped"
"""The folder of the copies, in the data folder."""


@frozen
class Installed:
    """A file of the user's as it was before, and what was set in it."""

    path: str
    before: str | None
    """None: there was no file."""
    after: str
    values: Mapping[str, str]


class InstallRefusal(TidemarkError):
    """The settings cannot be changed; the message says what to do."""


def install(agent: Agent, place: Place, data_dir: Path) -> Path:
    """Set what leads a client to Tidemark in its own file; return the file.

    :raises InstallRefusal: the client has no such file, it is set already, or the file cannot be read or changed
    """
    if agent.file is None or agent.values is None:
        pairs = " ".join(f"{name}={value}" for name, value in agent.variables(place).items())
        words = shlex.join([agent.program, *agent.arguments(place)])
        raise InstallRefusal(
            f"{agent.program} has no settings for this. Put into your shell's profile: export {pairs}, "
            f"and start it by: {words}"
        )
    record = data_dir / FOLDER / f"{agent.program}.json"
    if record.exists():
        raise InstallRefusal(f"{agent.program} is set already. Run: tidemark unwrap {agent.program}")
    path, values = agent.file.path(place.environ).resolve(), agent.values(place)
    try:
        before = path.read_bytes().decode() if path.exists() else None
        after = agent.file.with_values(before or "", values)
        for folder in (record.parent, path.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(record, [json.dumps(asdict(Installed(str(path), before, after, values))).encode()])
        write_whole(path, [after.encode()])
    except SettingsRefusal as error:
        raise InstallRefusal(f"{path} was not changed: {error}") from error
    except (OSError, UnicodeError) as error:
        raise InstallRefusal(f"{path} cannot be changed: {error}") from error
    return path


def uninstall(agent: Agent, data_dir: Path) -> Path:
    """Restore a client's file, and keep what the user has changed in it since; return the file.

    :raises InstallRefusal: nothing was set, or the file cannot be read or changed
    """
    record = data_dir / FOLDER / f"{agent.program}.json"
    try:
        installed = Installed(**json.loads(record.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InstallRefusal(f"{agent.program} was not set by tidemark wrap --install.") from None
    except (OSError, ValueError, TypeError) as error:
        raise InstallRefusal(f"{record} cannot be read: {error}") from error
    path = Path(installed.path)
    try:
        if path.exists():
            _restore(path, installed, agent.file)
        record.unlink()
    except SettingsRefusal as error:
        raise InstallRefusal(f"{path} was not changed: {error}") from error
    except (OSError, UnicodeError) as error:
        raise InstallRefusal(f"{path} cannot be changed: {error}") from error
    return path


@click.command(
    epilog=example("tidemark unwrap claude"), short_help="Take back what wrap --install set in a client's settings."
)
@config_option
@click.argument("client", type=click.Choice(sorted(name for name, agent in AGENTS.items() if agent.file)))
def unwrap(config: Path | None, client: str) -> None:
    """Take back what `tidemark wrap --install` set in CLIENT's settings.

    The file is restored byte for byte. What the user has changed in it since is kept.
    """
    from tidemark.config import load

    click.echo(f"restored {uninstall(AGENTS[client], load(config, os.environ).data_dir)}")


def _restore(path: Path, installed: Installed, file: JsonFile | TextFile | None) -> None:
    current = path.read_bytes().decode()
    before = installed.before or ""
    restored = before
    if current != installed.after and file is not None:
        restored = file.without_values(current, before, installed.values)
    if restored == before and installed.before is None:
        path.unlink()
    else:
        write_whole(path, [restored.encode()])
