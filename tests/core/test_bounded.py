"""Caches with a bound: by their entries, or by the size of all their values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.bounded import BoundedCache, SizedCache


def test_the_oldest_entry_goes() -> None:
    """What is put once more is the newest."""
    cache: BoundedCache[str, int] = BoundedCache(2)
    for value, key in enumerate("abac"):
        cache.put(key, value)
    assert list(cache.items()) == [("a", 2), ("c", 3)]


def test_a_bound_of_sizes_holds() -> None:
    """Whatever needs the place; what is larger than the bound is not stored at all."""
    cache: SizedCache[str, bytes] = SizedCache(10, len)
    cache.put("a", b"x" * 4)
    cache.put("b", b"x" * 4)
    cache.put("c", b"x" * 4)
    assert list(cache) == ["b", "c"]
    cache.put("d", b"x" * 11)
    assert not cache
    assert cache.free == 10
    cache.drop_oldest()
    assert cache.take("a") is None


@given(st.lists(st.tuples(st.sampled_from(["put", "take", "drop"]), st.integers(0, 5), st.integers(0, 12))))
def test_the_sum_of_sizes_is_that_of_what_is_there(steps: list[tuple[str, int, int]]) -> None:
    """After any steps, and never above the bound."""
    cache: SizedCache[int, bytes] = SizedCache(20, len)
    for step, key, size in steps:
        if step == "put":
            cache.put(key, bytes(size))
        elif step == "take":
            cache.take(key)
        else:
            cache.drop_oldest()
        assert cache.free == 20 - sum(map(len, cache.values())) >= 0
