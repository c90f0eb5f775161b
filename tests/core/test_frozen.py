"""Values of a request: in all but the check at run time what a frozen dataclass is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidemark.core.frozen import frozen


@frozen
class Plain:
    """As a request carries it."""

    name: str
    words: tuple[str, ...] = ()
    seen: list[int] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True)
class Frozen:
    """The same, frozen at run time too."""

    name: str
    words: tuple[str, ...] = ()
    seen: list[int] = field(default_factory=list, compare=False)


def test_a_value_is_equal_copied_and_looked_up_as_a_frozen_one_is() -> None:
    """By its fields, but for those that are left out of the comparison; it has no attributes beside them."""
    one, other = Plain("a", ("b",)), Plain("a", words=("b",))
    one.seen.append(1)
    assert one == other
    assert {one: 1}[other] == 1
    assert hash(one) == hash(Frozen("a", ("b",)))
    assert replace(one, name="c") == Plain("c", ("b",)) != one
    assert repr(one) == repr(Frozen("a", ("b",), [1])).replace("Frozen", "Plain")
    assert not hasattr(one, "__dict__")
