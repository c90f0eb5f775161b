"""The decorator for values that every request makes: frozen for the type checker, plain at run time.

All packages use it. A dataclass that is frozen at run time costs four times as much to make, because each attribute
passes a check that mypy has done already, and each request makes several values of a dozen attributes. A value that is
made less often is an ordinary frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a class of values, as ``dataclass(frozen=True, slots=True)`` does, without the check at run time."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
