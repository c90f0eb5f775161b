"""What several commands have: options, examples beneath their help, and the address of the store that they read.

Each command of ``tidemark`` that reads the configuration takes its file by ``config_option``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tidemark.config import Settings
    from tidemark.core.ports import Caller

Done = TypeVar("Done")
DEFAULT_FILE = "tidemark.yaml"
"""What ``tidemark init`` writes, and all commands read if no file is named."""


def example(*lines: str) -> str:
    """Return the end of a command's help: what somebody may type, one command line each."""
    return "\n".join(("\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)))


def _own_or_default(_: click.Context, __: click.Parameter, file: Path | None) -> Path | None:
    if file is None and not os.environ.get("TIDEMARK_CONFIG") and Path(DEFAULT_FILE).is_file():
        return Path(DEFAULT_FILE)
    return file


config_option = click.option(
    "--config",
    "config",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_own_or_default,
    show_default=f"TIDEMARK_CONFIG, or {DEFAULT_FILE}",
    help="The YAML file; without one all values are defaults.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _NobodyToAsk(click.ClickException):
    """A confirmation is needed, and there is no terminal to ask for it: a wrong command line."""

    exit_code = 2


def has_terminal() -> bool:
    """Tell whether a person can be asked. The question goes to standard error, so that a pipe gets results alone."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


yes_option = click.option("--yes", is_flag=True, help="Ask for no confirmation.")
"""Of each command that calls ``confirm``."""


def confirm(question: str, *, yes: bool) -> None:
    """Ask whether to go on, unless the command line has ``--yes``.

    :raises ClickException: the answer is no, or there is no terminal
    """
    if not (yes or has_terminal()):
        raise _NobodyToAsk("without a terminal this needs --yes, which asks for no confirmation.")
    if not (yes or click.confirm(question, err=True)):
        raise click.ClickException("this was not confirmed, so nothing is changed.")


def store_url(settings: Settings, stack: ExitStack, *, tell: Callable[[str], None] | None = None) -> str:
    """Return the store's address; start an embedded store that does not run, until ``stack`` unwinds.

    :param tell: mend its files if they are damaged, and say so
    """
    if str(settings.store.url) != "embedded":
        return str(settings.store.url)
    from tidemark.store.embedded.server import EmbeddedValkey, memory_options, running_url

    folder, options = settings.data_dir / "store", memory_options(settings.store.max_mb)
    return running_url(folder) or stack.enter_context(EmbeddedValkey(folder, options=options, tell=tell)).url


def with_store(
    config: Path | None,
    work: Callable[[Settings, str], Coroutine[Any, Any, Done]],
    *,
    tell: Callable[[str], None] | None = None,
) -> Done:
    """Return what the work does with the configuration and the store's address; end what was started for it.

    :param tell: mend the files of an embedded store if they are damaged, and say so
    """
    from tidemark.config import load

    settings = load(config, os.environ)
    with ExitStack() as stack:
        return asyncio.run(work(settings, store_url(settings, stack, tell=tell)))


def warn(warning: str) -> None:
    """Print a warning on standard error."""
    click.echo(f"warning: {warning}", err=True)


def sender() -> Caller:
    """Return a sender with the environment's key, for strategies that ask a model."""
    from tidemark.core.ports import Caller

    key = os.environ.get("OPENAI_API_KEY")
    return Caller(b"", ((b"authorization", b"Bearer " + key.encode()),) if key else ())
