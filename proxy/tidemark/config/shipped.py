"""Reads the files of ``config/`` that ship with Tidemark, in a checkout or an installed wheel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar

from tidemark.config.models import ModelDefaults, read_model_defaults
from tidemark.config.reading import Reader
from tidemark.config.sections import CompactionSettings, StatedKeys, TokenizerSettings
from tidemark.config.tree import Table, YamlError, parse
from tidemark.core.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PresetValues:
    """The keys that a preset states; its file takes only these two sections."""

    compaction: StatedKeys = field(default_factory=dict)
    tokenizer: StatedKeys = field(default_factory=dict)


def shipped_file(name: str) -> Traversable:
    """Return a file of ``config/``, which is ``tidemark/_config`` in a wheel and beside ``proxy/`` in a checkout.

    :raises ConfigError: the installation is not complete
    """
    for folder in (files("tidemark") / "_config", Path(__file__).parents[3] / "config"):
        file = folder / name
        if file.is_file():
            return file
    raise ConfigError(f"config/{name} is missing from this installation; install Tidemark again")


@cache
def load_model_defaults() -> ModelDefaults:
    """What the shipped ``config/models.yaml`` knows of models; read once, since it takes some 50 ms.

    :raises ConfigError: the file is missing or damaged
    """
    return _read("models.yaml", read_model_defaults)


@cache
def load_preset(name: str) -> PresetValues:
    """Read the shipped ``config/presets/NAME.yaml``.

    :raises ConfigError: the file is missing or damaged
    """

    def read(reader: Reader, root: Table) -> PresetValues:
        top = reader.table(root, "", ("compaction", "tokenizer")).nodes
        compaction = reader.table(top.get("compaction"), "compaction", ("defaults",)).nodes
        return PresetValues(
            reader.section(CompactionSettings, compaction.get("defaults"), "compaction.defaults"),
            reader.section(TokenizerSettings, top.get("tokenizer"), "tokenizer"),
        )

    return _read(f"presets/{name}.yaml", read)


def _read(name: str, read: Callable[[Reader, Table], T]) -> T:
    """Read a shipped file; any problem in it means that the installation is damaged."""
    try:
        root, problems = parse(shipped_file(name).read_text(encoding="utf-8"))
    except YamlError as error:
        raise ConfigError(f"config/{name}:{error.line}: {error.message}") from error
    reader = Reader({})
    values = read(reader, root)
    remarks = [*problems, *((remark.line, remark.message) for remark in reader.problems)]
    if remarks:
        raise ConfigError("\n".join(f"config/{name}:{line}: {message}" for line, message in remarks))
    return values
