"""The decorator for every value: frozen for the type checker, plain at run time.

A dataclass that is frozen at run time costs four times as much to make, because each attribute passes a check that mypy
has done already, and each request makes several values of a dozen attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen(cls: type[T]) -> type[T]: ...


@overload
def frozen(*, kw_only: bool = False, order: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    cls: type[T] | None = None, *, kw_only: bool = False, order: bool = False, eq: bool = True
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class of values, as ``dataclass(frozen=True, slots=True)`` does, without the check at run time.

    :param eq: ``False`` compares by identity
    """
    decorator = dataclass(slots=True, unsafe_hash=eq, kw_only=kw_only, order=order, eq=eq)
    return decorator if cls is None else decorator(cls)
