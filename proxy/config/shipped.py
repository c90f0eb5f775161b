"""The files of ``config/`` that ship with Tidemark, found in a checkout and in an installed wheel alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar

from proxy.config.models import ModelDefaults, read_model_defaults
from proxy.config.reading import Reader
from proxy.config.sections import CompactionSettings, Given, TokenizerSettings
from proxy.config.tree import Table, YamlError, parse
from proxy.core.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PresetValues:
    """The keys that a preset states; its file takes only these two sections."""

    compaction: Given = field(default_factory=dict)
    tokenizer: Given = field(default_factory=dict)


def shipped_file(name: str) -> Traversable:
    """A file of ``config/``: the folder is ``proxy/_config`` in a wheel, beside ``proxy`` in a checkout.

    :raises ConfigError: the installation is not complete
    """
    for folder in (files("proxy") / "_config", Path(__file__).parents[2] / "config"):
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
    """What the shipped ``config/presets/NAME.yaml`` states.

    :raises ConfigError: the file is missing or damaged
    """

    def read(reader: Reader, root: Table) -> PresetValues:
        top = reader.table(root, "", ("compaction", "tokenizer")).nodes
        compaction = reader.table(top.get("compaction"), "compaction", ("defaults",)).nodes
        return PresetValues(
            reader.section(CompactionSettings(), compaction.get("defaults"), "compaction.defaults", "compaction"),
            reader.section(TokenizerSettings(), top.get("tokenizer"), "tokenizer"),
        )

    return _read(f"presets/{name}.yaml", read)


def _read(name: str, read: Callable[[Reader, Table], T]) -> T:
    """A shipped file, read; it has no problems, or the installation is damaged."""
    try:
        root, problems = parse(shipped_file(name).read_text(encoding="utf-8"))
    except YamlError as error:
        raise ConfigError(f"config/{name}:{error.line}: {error.message}") from error
    reader = Reader({})
    values = read(reader, root)
    found = [*problems, *((remark.line, remark.message) for remark in reader.problems)]
    if found:
        raise ConfigError("\n".join(f"config/{name}:{line}: {message}" for line, message in found))
    return values
