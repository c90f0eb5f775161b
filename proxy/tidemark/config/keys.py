"""Lists every key with its default, for error messages and for the tests of the documentation.

``reading.py`` looks here for the section of a key that was put into another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemark.config.kinds import Kind
from tidemark.config.sections import ROOT_KINDS, SECTIONS


@dataclass(frozen=True, slots=True)
class KeyNote:
    """A key, as the documentation lists it."""

    name: str
    """The name with its sections: ``store.url``."""
    default: str
    """The default, as YAML writes it."""
    wanted: str


def key_notes() -> Iterator[KeyNote]:
    """Yield every key with a default, in the order of the file."""
    for name, section in SECTIONS.items():
        yield from _notes(name, section)
    for name, kind in ROOT_KINDS.items():
        yield KeyNote(name, kind.word(None), kind.wanted)


def _notes(name: str, section: Any) -> Iterator[KeyNote]:
    for key in dataclasses.fields(section):
        default = getattr(section, key.name)
        if dataclasses.is_dataclass(default):
            yield from _notes(f"{name}.{key.name}", default)
        else:
            kind: Kind[Any] = key.metadata["kind"]
            yield KeyNote(f"{name}.{key.name}", kind.word(default), kind.wanted)
