"""A queue in which tenants get equal shares, however much one of them has waiting."""

from __future__ import annotations

import pytest

from tidemark.server.waiting import FairQueue


def popped(queue: FairQueue[str]) -> list[str]:
    """Everything that waits, in the order in which it is served."""
    order = []
    while (item := queue.pop()) is not None:
        order.append(item)
    return order


def test_tenants_are_served_alternately() -> None:
    """Who comes after another one's many is served after one of them."""
    queue: FairQueue[str] = FairQueue()
    for number in range(4):
        queue.put(b"a", f"a{number}")
    queue.put(b"b", "b0")
    queue.put(b"c", "c0")
    assert popped(queue) == ["a0", "b0", "c0", "a1", "a2", "a3"]


def test_costly_items_wait_for_cheap_ones_of_others() -> None:
    """A share is an amount of work, not a number of items."""
    queue: FairQueue[str] = FairQueue()
    for number in range(2):
        queue.put(b"a", f"a{number}", cost=10)
    for number in range(12):
        queue.put(b"b", f"b{number}")
    assert popped(queue).index("a1") == 11


def test_who_has_waited_for_nothing_has_no_credit() -> None:
    """A tenant that comes late does not push out the others until it has caught up."""
    queue: FairQueue[str] = FairQueue()
    for number in range(10):
        queue.put(b"a", f"a{number}")
    for _ in range(5):
        queue.pop()
    for number in range(3):
        queue.put(b"b", f"b{number}")
    assert popped(queue) == ["b0", "a5", "b1", "a6", "b2", "a7", "a8", "a9"]


def test_a_discarded_item_is_never_served() -> None:
    """And an item that waits no more cannot be discarded."""
    queue: FairQueue[str] = FairQueue()
    queue.put(b"a", "a0")
    queue.put(b"a", "a1")
    assert queue.discard(b"a", "a0")
    assert not queue.discard(b"a", "a0")
    assert len(queue) == 1
    assert popped(queue) == ["a1"]
    assert not queue.discard(b"a", "a1")


def test_the_longest_line_is_known() -> None:
    """With its newest item, which gives way first."""
    queue: FairQueue[str] = FairQueue()
    with pytest.raises(ValueError, match="empty"):
        queue.longest()
    for number in range(3):
        queue.put(b"a", f"a{number}")
    queue.put(b"b", "b0")
    assert queue.longest() == (b"a", 3)
    assert (queue.count(b"b"), queue.count(b"c")) == (1, 0)
    assert queue.newest(b"a") == "a2"
