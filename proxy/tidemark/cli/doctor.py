"""The command ``tidemark doctor``: it examines whether a configuration works on this machine.

``cli/main.py`` adds it to its group; ``tidemark/doctor`` has the checks.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemark.terminal.examples import example
from tidemark.terminal.options import config_option, json_option
from tidemark.terminal.tables import print_json, printable

if TYPE_CHECKING:
    from tidemark.doctor.findings import Finding

_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}
_WIDTH = len("warning")


@click.command(
    epilog=example("tidemark doctor --config tidemark.yaml"),
    short_help="Examine what would not work, and say its mend.",
)
@config_option
@click.option("--offline", is_flag=True, help="Ask no upstream and no summarizer's model.")
@click.option("--model", "models", multiple=True, help="A further model to ask, which an entry with a pattern serves.")
@json_option
def doctor(config: Path | None, offline: bool, models: tuple[str, ...], as_json: bool) -> None:
    """Examine configuration, store, upstreams, clock, vocabularies and summarizer, and say how to mend what is wrong.

    Each model of the list gets one request for one token, and each summarizer one short conversation.
    """
    from tidemark.doctor.examination import examine
    from tidemark.doctor.findings import is_usable

    findings = asyncio.run(examine(config, os.environ, _show_progress, offline=offline, models=models))
    _clear_progress()
    if as_json:
        print_json({"ok": is_usable(findings), "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            _print(finding)
    sys.exit(0 if is_usable(findings) else 1)


def _print(finding: Finding) -> None:
    plain = bool(os.environ.get("NO_COLOR")) or _is_dumb()
    status = finding.status.ljust(_WIDTH)
    click.echo(
        f"{status if plain else click.style(status, fg=_STYLES[finding.status])}  "
        f"{printable(finding.check)}: {printable(finding.detail)}"
    )
    if finding.mend:
        click.echo(f"{' ' * _WIDTH}  {printable(finding.mend)}")


def _show_progress(text: str) -> None:
    """Say on a terminal what is examined now."""
    if sys.stderr.isatty() and not _is_dumb():
        click.echo(f"\r\x1b[2Kexamining {printable(text)} ...", nl=False, err=True)


def _clear_progress() -> None:
    if sys.stderr.isatty() and not _is_dumb():
        click.echo("\r\x1b[2K", nl=False, err=True)


def _is_dumb() -> bool:
    """Return whether the terminal knows no sequences, as the shell window of an editor."""
    return os.environ.get("TERM", "dumb") == "dumb"
