"""What ``tidemark wrap`` knows of a client: its program, its switches, and the file that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from tidemark.cli.agents.settings_file import JsonFile, TextFile
from tidemark.core.frozen import frozen

Spoken = Literal["anthropic", "messages", "other"]
"""What is behind Tidemark: Anthropic's own address for every model, something that speaks Anthropic's format, or
anything else."""


@frozen
class Place:
    """Where a client finds Tidemark."""

    url: str
    """Without a path: ``http://127.0.0.1:8787``."""
    spoken: Spoken
    environ: Mapping[str, str]
    """The user's own."""

    @property
    def openai(self) -> str:
        """The base URL for clients of OpenAI's formats."""
        return f"{self.url}/v1"


def _no_arguments(_: Place) -> Sequence[str]:
    return ()


@frozen(kw_only=True)
class Agent:
    """A client with a program that ``tidemark wrap`` starts by its name."""

    program: str
    """Its name on the path, and after ``tidemark wrap``."""
    install: str
    """The command that installs it."""
    variables: Callable[[Place], Mapping[str, str]]
    """The environment variables that lead it to Tidemark."""
    arguments: Callable[[Place], Sequence[str]] = _no_arguments
    """The words that stand before the user's own."""
    file: JsonFile | TextFile | None = None
    """The user's settings, for ``--install``; None if the program reads its environment only."""
    values: Callable[[Place], Mapping[str, str]] | None = None
    """What ``--install`` sets, by the key; a key of JSON names its path with dots."""
