"""A long transcript is read in a thread: other streams are answered while it is counted and judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import CachedPrefix
from tidemark.core.errors import SummaryRejected
from tidemark.core.ports import Route, SummaryTask
from tidemark.summarizers import LlmSummarizer
from tidemark.summarizers.fitting import LARGE_CHARS
from tidemark.tokens import LocalTokenCounter

pytestmark = pytest.mark.anyio
MODEL = "gpt-4o"
ROUTE = Route("wire", MODEL, MODEL, "test", "http://upstream.invalid/v1")
SUMMARY = "Shops were named one after another, with what each of them sells and at which price it does."
SAID = [f"Fact {place} of this talk is that shop {place} sells item {place * 3}. " * 5 for place in range(400)]
Talk = Callable[..., tuple[Message, ...]]
Scripted = Callable[..., Any]


class Watched(LocalTokenCounter):
    """The product's counter, which notes how much it is given, and how much of that on the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.on_loop = [0]
        self.longest = 0

    def _note(self, text: str) -> None:
        self.longest = max(self.longest, len(text))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self.on_loop.append(len(text))

    def count_text(self, text: str, model: str) -> int:
        """Noted, and counted."""
        self._note(text)
        return super().count_text(text, model)

    def count_message(self, message: Message, model: str) -> int:
        """Noted, and counted."""
        self._note(message.text)
        return super().count_message(message, model)

    def cut_text(self, text: str, model: str, max_tokens: int) -> str:
        """Noted, and cut."""
        self._note(text)
        return super().cut_text(text, model, max_tokens)


@pytest.fixture
def watched() -> Watched:
    """One for each test."""
    return Watched()


async def test_a_piece_as_long_as_the_window_is_counted_once(watched: Watched, talk: Talk, scripted: Scripted) -> None:
    """Line by line, where the pieces are made; judging the answer takes their counts."""
    upstream = scripted(SUMMARY)
    summarizer = LlmSummarizer(upstream, watched, window_tokens=128_000)
    assert (await summarizer.summarize(SummaryTask(talk(*SAID), None, 300, MODEL, route=ROUTE))).text == SUMMARY
    (asked,) = upstream.asked
    assert len(asked.prompt) > 2 * LARGE_CHARS
    assert watched.longest < LARGE_CHARS
    assert sum(watched.on_loop) < LARGE_CHARS


async def test_a_live_conversation_is_counted_apart_from_the_loop(
    watched: Watched, talk: Talk, scripted: Scripted
) -> None:
    """Before it is asked as after."""
    said, upstream = talk(*SAID), scripted(SUMMARY)
    live = CachedPrefix(said, (), {}, 128_000)
    summarizer = LlmSummarizer(upstream, watched, cache_friendly=True)
    assert (await summarizer.summarize(SummaryTask(said, None, 300, MODEL, route=ROUTE, live=live))).text == SUMMARY
    assert upstream.asked[0].live is live
    assert sum(watched.on_loop) < LARGE_CHARS


async def test_a_long_piece_is_still_judged(watched: Watched, talk: Talk, scripted: Scripted) -> None:
    """An echo of it is refused, from the thread too."""
    said = talk(*SAID)
    upstream = scripted("\n".join(f"User: {one.text.strip()}" for one in said[:8:2]))
    with pytest.raises(SummaryRejected, match="echoed"):
        await LlmSummarizer(upstream, watched, window_tokens=128_000).summarize(
            SummaryTask(said, None, 2000, MODEL, route=ROUTE)
        )
