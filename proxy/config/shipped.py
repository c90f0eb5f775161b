"""The files of ``config/`` that ship with Tidemark, found in a checkout and in an installed wheel alike."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from proxy.config.models import ModelDefaults, read_model_defaults
from proxy.config.reading import Reader
from proxy.config.tree import YamlError, parse
from proxy.core.errors import ConfigError


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
    try:
        root, problems = parse(shipped_file("models.yaml").read_text(encoding="utf-8"))
    except YamlError as error:
        raise ConfigError(f"config/models.yaml:{error.line}: {error.message}") from error
    reader = Reader({})
    defaults = read_model_defaults(reader, root)
    found = [*problems, *((remark.line, remark.message) for remark in reader.problems)]
    if found:
        raise ConfigError("\n".join(f"config/models.yaml:{line}: {message}" for line, message in found))
    return defaults
