"""Values that are made with every request: frozen for the type checker, plain at run time.

Below everything. A dataclass that is frozen at run time costs four times as much to make, for each of its attributes
goes past a check that mypy has made already; several of a dozen attributes are made on the road of each request.
Whatever is made less often is an ordinary frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(made: type[T]) -> type[T]:
    """A class of values, as ``dataclass(frozen=True, slots=True)`` makes it but for the check at run time."""
    return dataclass(slots=True, unsafe_hash=True)(made)
