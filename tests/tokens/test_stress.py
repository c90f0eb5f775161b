"""Texts that tokenizers dislike: a megabyte of anything takes linear time, panics nowhere and leaves the loop alone.

Time is CPU time, the least of several runs, in ratios: a busy machine must not fail a test.
"""

from __future__ import annotations

import asyncio
import json
import time
from math import log

import pytest

from tests.support.growth import growth_of
from tests.tokens.asking import COUNTER, request
from tidemark.tokens import LocalTokenCounter

pytestmark = pytest.mark.speed
MEGABYTE = 1_000_000
LINE = json.dumps([{"id": number, "name": f"item {number}", "price": number / 7} for number in range(30_000)])
UNITS = {
    "one letter": "a",
    "spaces": " ",
    "line ends": "\n",
    "tabs and spaces": "\t ",
    "digits": "0123456789",
    "emoji": "😀",
    "joined emoji": "👩\u200d👩\u200d👧",
    "special tokens": "<|endoftext|>",
    "base64": "QUJD/+9zQkFTRTY0",
    "Chinese": "中",
    "slashes": "/\n",
    "one line of JSON": LINE,
}


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS.keys())
def test_a_megabyte_takes_linear_time(unit: str) -> None:
    """Four times the text takes four times as long, six at most for what the machine adds."""
    text = unit * (MEGABYTE // len(unit) + 1)
    COUNTER.count_text("load", "gpt-4o")
    most = log(6, 4)
    growth = growth_of(
        lambda size: LocalTokenCounter().count_text(text[:size], "gpt-4o"), [MEGABYTE // 4, MEGABYTE], most=most
    )
    assert growth < most


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS.keys())
def test_pieces_add_few_tokens(unit: str) -> None:
    """The cuts of a long text cost at most a few tokens each, and never save more than they cost."""
    short = (unit * (9_000 // len(unit) + 1))[:9_000]
    long = short * 10
    whole, part = COUNTER.count_text(long, "gpt-4o"), COUNTER.count_text(short, "gpt-4o")
    assert abs(whole - 10 * part) <= 10 * 12


@pytest.mark.anyio
@pytest.mark.parametrize("unit", ["a", " ", "some words "])
async def test_the_event_loop_turns_while_a_megabyte_is_counted(unit: str) -> None:
    """It stands still for some 5 ms on a quiet machine (``make bench-counting``); half a second fails here."""
    counter = LocalTokenCounter()
    counter.count_text("load", "gpt-4o")
    text = unit * (MEGABYTE // len(unit))
    task = asyncio.create_task(counter.count(request({"messages": [{"role": "user", "content": text}]}), "gpt-4o"))
    worst = 0.0
    while not task.done():
        start = time.perf_counter()
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - start)
    assert (await task).total > 7_000
    assert worst < 0.5


@pytest.mark.anyio
async def test_nobody_queues_behind_a_large_text() -> None:
    """Two large texts are counted side by side: the second has a thread of its own."""
    counter = LocalTokenCounter()
    counter.count_text("load", "gpt-4o")
    large, small = (
        request({"messages": [{"role": "user", "content": "some words " * size}]}) for size in (400_000, 4_000)
    )
    first = asyncio.create_task(counter.count(large, "gpt-4o"))
    await asyncio.sleep(0)
    assert (await counter.count(small, "gpt-4o")).total > 4_000
    assert not first.done()
    assert (await first).total > 400_000
