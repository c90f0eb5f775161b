"""A summary's text is read in linear time, and no longer than its time limit: what takes longer gets a plainer one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tests.summarizers.test_hybrid import Narrator
from tidemark.core.conversation.messages import Message
from tidemark.core.errors import SummaryOverdue
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.summarizers import ExtractiveSummarizer, HybridSummarizer, PlainSummarizer
from tidemark.summarizers.deadline import Deadline, in_thread
from tidemark.summarizers.ledger import ledger_of
from tidemark.summarizers.salience import candidates_of

MODEL = "gpt-4o"
Talk = Callable[..., tuple[Message, ...]]
LANGUAGES = "Never touch the file number {n} there.\nAnswer in French just every onwards but only.\n"


def ticking(seconds: float) -> Callable[[], float]:
    """A clock that goes on by so much each time it is looked at."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += seconds
        return now

    return clock


def calls_of(work: Callable[[], Any]) -> int:
    """How many calls of Python functions some work takes: a figure that no other load of the machine changes."""
    count = 0

    def counted(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("work", ["ledger", "candidates"])
def test_rules_that_replace_each_other_are_read_in_linear_time(talk: Talk, work: str) -> None:
    """Each names the language of answers anew; none is held against all before it."""

    def calls(rules: int) -> int:
        said = talk("".join(LANGUAGES.format(n=number) for number in range(rules)))
        if work == "ledger":
            return calls_of(lambda: ledger_of(said, ""))
        return calls_of(lambda: candidates_of(said, None, 1000))

    assert calls(800) <= 4.4 * calls(200)


@pytest.mark.anyio
@pytest.mark.parametrize("strategy", ["extractive", "hybrid"])
async def test_a_large_text_is_read_no_longer_than_the_limit(counter: TokenCounter, talk: Talk, strategy: str) -> None:
    """By the clock that is passed in; the work itself says that its time is over."""
    task = SummaryTask(talk(*["Never use port 80 on this machine. " * 40] * 40), None, 500, MODEL)
    slow, quick = {"clock": ticking(1.0), "reading_seconds": 3.0}, {"clock": ticking(0.0)}
    made: dict[str, Callable[..., ExtractiveSummarizer | HybridSummarizer]] = {
        "extractive": lambda **given: ExtractiveSummarizer(counter, **given),
        "hybrid": lambda **given: HybridSummarizer(counter, Narrator(), **given),
    }
    with pytest.raises(SummaryOverdue):
        await made[strategy](**slow).summarize(task)
    assert "Never use port 80" in (await made[strategy](**quick).summarize(task)).text


@pytest.mark.anyio
async def test_work_that_nobody_waits_for_any_more_ends() -> None:
    """A thread cannot be ended from outside, so it asks; a cancelled task says that it need not go on."""
    deadline, begun, ended = Deadline(1e9), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        try:
            for _ in deadline.over(iter(int, 1)):  # without an end
                pass
        finally:
            loop.call_soon_threadsafe(ended.set)

    task = asyncio.create_task(in_thread(deadline, work))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(30):
        await ended.wait()


def test_the_clock_is_looked_at_now_and_then_and_not_for_each_item() -> None:
    """Sentences are short; the look must not cost more than what is done with one."""
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return 0.0

    assert sum(1 for _ in Deadline(1.0, clock).over(range(6400))) == 6400
    assert looks == 100


@pytest.mark.anyio
async def test_the_plain_summary_keeps_what_was_carried_the_request_and_the_newest(
    counter: TokenCounter, talk: Talk
) -> None:
    """What the user asks for first, then rules of the earlier summary, then the newest messages."""
    said = talk(*[f"Message {number} says little." for number in range(400)], "Please fix src/app.py now.")
    previous = "User said: Never touch prod.\nFiles: src/app.py\nOpen request: Look around."
    text = (await PlainSummarizer(counter).summarize(SummaryTask(said, previous, 300, MODEL))).text
    lines = text.splitlines()
    assert lines[0] == "Open request: Please fix src/app.py now."
    assert lines[1:3] == ["User said: Never touch prod.", "Files: src/app.py"]
    assert any("Message 399" in line for line in lines)
    assert counter.count_text(text, MODEL) <= 300


@pytest.mark.anyio
@pytest.mark.parametrize("bound", [1, 8, 40, 300, 4000])
@pytest.mark.parametrize("text", ["a" * 300_000, "word " * 60_000, "", "Never do it.\n" * 20_000, "漢" * 100_000])
async def test_the_plain_summary_keeps_its_bound(counter: TokenCounter, talk: Talk, text: str, bound: int) -> None:
    """Whatever there is to read, and however few tokens the summary may have."""
    made = (await PlainSummarizer(counter).summarize(SummaryTask(talk(text, text), None, bound, MODEL))).text
    assert counter.count_text(made, MODEL) <= bound


def test_the_plain_summary_looks_at_no_more_than_it_may_keep(counter: TokenCounter, talk: Talk) -> None:
    """Its time does not depend on how much was said before the newest messages."""

    def calls(messages: int) -> int:
        task = SummaryTask(talk(*["Never use port 80, it is taken. " * 8] * messages), None, 200, MODEL)
        return calls_of(lambda: _driven(PlainSummarizer(counter).summarize(task)))

    calls(1)  # the first count reads the vocabulary
    assert calls(60) <= calls(20) + 2 * 40  # each further message is measured, and not read


def _driven(work: Any) -> None:
    """Run what waits for nothing."""
    steps: Iterator[Any] = work.__await__()
    with pytest.raises(StopIteration):
        next(steps)
