"""The fake's prompt cache keeps what the documents say it keeps, as long as they say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.providers.prompt_cache import PromptCache

Json = dict[str, Any]
FIVE: Json = {"type": "ephemeral"}
HOUR: Json = {"type": "ephemeral", "ttl": "1h"}
LONG = "word " * 1200
"""About 1,500 tokens."""


class Hand:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


@pytest.fixture
def hand() -> Hand:
    """The clock of the cache."""
    return Hand()


@pytest.fixture
def cache(hand: Hand) -> PromptCache:
    """An empty cache."""
    return PromptCache(hand)


def block(text: str = LONG, mark: Json | None = None) -> Json:
    """A text, with a cache mark or without one."""
    return {"type": "text", "text": text, **({"cache_control": mark} if mark else {})}


def body(*content: Json, model: str = "claude-opus-5-5", **members: Any) -> Json:
    """A request whose only message has these blocks."""
    return {"model": model, "messages": [{"role": "user", "content": list(content)}], **members}


def read(cache: PromptCache, *content: Json, account: str = "", **members: Any) -> int:
    """Tokens that come from the cache."""
    return int(cache.usage(body(*content, **members), account)["cache_read_input_tokens"])


def test_a_marked_prefix_is_written_once_and_then_read(cache: PromptCache) -> None:
    """Input, written and read are the whole; what follows the last mark is plain input."""
    first = cache.usage(body(block(mark=FIVE), block("And now?")))
    second = cache.usage(body(block(mark=FIVE), block("And then?")))
    assert first["cache_read_input_tokens"] == 0
    assert first["cache_creation_input_tokens"] == second["cache_read_input_tokens"] > 1024
    assert first["cache_creation"]["ephemeral_5m_input_tokens"] == first["cache_creation_input_tokens"]
    assert second["cache_creation_input_tokens"] == 0
    assert 0 < second["input_tokens"] < 100
    assert cache.share == pytest.approx(0.5, abs=0.05)


def test_nothing_is_kept_without_a_mark(cache: PromptCache) -> None:
    """A mark in a later request finds nothing then."""
    cache.usage(body(block()))
    assert read(cache, block(mark=FIVE)) == 0


@pytest.mark.parametrize(
    ("model", "short", "enough"),
    [
        ("claude-opus-5-5", 700, 1000),
        ("claude-opus-5", 300, 500),
        ("claude-haiku-4-5", 3000, 3600),
        ("claude-opus-4-6", 3000, 3600),
        ("claude-opus-4-8", 700, 1000),
    ],
)
def test_a_short_prefix_is_not_kept(cache: PromptCache, model: str, short: int, enough: int) -> None:
    """How short depends on the model; nothing is refused."""
    for words, is_kept in ((short, False), (enough, True)):
        marked = block("word " * words, FIVE)
        cache.usage(body(marked, model=model))
        assert bool(read(cache, marked, model=model)) is is_kept


@pytest.mark.parametrize(("mark", "life"), [(FIVE, 300), ({**FIVE, "ttl": "5m"}, 300), (HOUR, 3600)])
def test_an_entry_lives_from_its_last_use(cache: PromptCache, hand: Hand, mark: Json, life: int) -> None:
    """A read makes it live on."""
    cache.usage(body(block(mark=mark)))
    hand.now += life - 1
    assert read(cache, block(mark=mark))
    hand.now += life - 1
    assert read(cache, block(mark=mark))
    hand.now += life
    assert not read(cache, block(mark=mark))


def test_accounts_and_models_share_nothing(cache: PromptCache) -> None:
    """Another key finds nothing, nor does another model."""
    cache.usage(body(block(mark=FIVE)), "one")
    assert not read(cache, block(mark=FIVE), account="two")
    assert not read(cache, block(mark=FIVE), account="one", model="claude-sonnet-5-5")
    assert read(cache, block(mark=FIVE), account="one")


@pytest.mark.parametrize(
    "change",
    [
        {"tools": [{"name": "read", "input_schema": {}}]},
        {"system": "Be brief!"},
        {"tool_choice": {"type": "any"}},
        {"thinking": {"type": "adaptive"}},
    ],
)
def test_what_stands_before_a_message_is_part_of_its_prefix(cache: PromptCache, change: Json) -> None:
    """Tools come first, then ``system``; how the model is asked ends the messages' part as well."""
    same: Json = {"tools": [{"name": "list", "input_schema": {}}], "system": "Be brief."}
    cache.usage(body(block(mark=FIVE), **same))
    assert not read(cache, block(mark=FIVE), **{**same, **change})
    assert read(cache, block(mark=FIVE), **same)


def test_tools_and_system_outlive_another_tool_choice(cache: PromptCache) -> None:
    """A mark on the last block of ``system`` is not behind the way in which the model is asked."""
    same: Json = {"system": [block(mark=FIVE)]}
    cache.usage(body(block("Hi."), **same))
    assert read(cache, block("Hi."), tool_choice={"type": "any"}, **same)


def test_a_mark_looks_back_over_twenty_blocks(cache: PromptCache) -> None:
    """Its own block is the first of them; a mark between finds what is further back."""
    cache.usage(body(block(mark=FIVE)))
    for between, is_found in ((18, True), (19, False)):
        more = [block(f"{between}-{at}") for at in range(between)]
        assert bool(read(cache, block(), *more, block("End.", FIVE))) is is_found
    more = [block(f"other {at}") for at in range(30)]
    more[10]["cache_control"] = FIVE
    assert read(cache, block(), *more, block("End.", FIVE))


def test_a_changed_block_leaves_what_is_before_it(cache: PromptCache) -> None:
    """Of two marks the first one still finds its prefix."""
    cache.usage(body(block(mark=FIVE), block("Second. " + LONG, FIVE)))
    usage = cache.usage(body(block(mark=FIVE), block("Changed. " + LONG, FIVE)))
    assert 1024 < usage["cache_read_input_tokens"] < 2 * 1024
    assert usage["cache_creation_input_tokens"] > 1024


def test_lives_are_counted_apart(cache: PromptCache) -> None:
    """The longer one first."""
    made = cache.usage(body(block(mark=HOUR), block("Second. " + LONG, FIVE)))["cache_creation"]
    assert min(made["ephemeral_1h_input_tokens"], made["ephemeral_5m_input_tokens"]) > 1024


def test_a_mark_of_the_whole_request_is_one_at_its_end(cache: PromptCache) -> None:
    """It moves on with the talk, and counts as one of the four."""
    cache.usage(body(block(), cache_control=FIVE))
    assert read(cache, block(), block("More."), cache_control=FIVE)
    with pytest.raises(ValueError, match=r"Found 5\."):
        cache.usage(body(*[block(str(at), FIVE) for at in range(4)], block("End."), cache_control=FIVE))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([block(str(at), FIVE) for at in range(5)], r"maximum of 4 blocks with cache_control .* Found 5\."),
        ([block("a", FIVE), block("b", HOUR)], r"messages\.0\.content\.1.* ttl='1h' .* must not come after"),
        ([block("a", {"type": "ephemeral", "ttl": "1d"})], "ttl"),
        ([block("a", {"type": "lasting"})], "ephemeral"),
        ([{"type": "thinking", "thinking": "Hm.", "cache_control": FIVE}], "Extra inputs are not permitted"),
    ],
    ids=["five marks", "a long life behind a short one", "an unknown life", "an unknown type", "on thinking"],
)
def test_wrong_marks_are_refused(cache: PromptCache, content: list[Json], words: str) -> None:
    """In the provider's words."""
    with pytest.raises(ValueError, match=words):
        cache.usage(body(*content))
