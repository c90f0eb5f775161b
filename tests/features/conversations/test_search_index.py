"""Full text: what is found, in which order, and that an index follows its conversation."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.features.conversations.search_index import MessageSearch, Searchable


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Indexes are asked in asyncio's threads."""
    return "asyncio"


def texts(*said: str, first: int = 1) -> list[Searchable]:
    """Messages of a conversation."""
    return [Searchable(place, f"id{place}", text) for place, text in enumerate(said, first)]


async def hits_of(search: MessageSearch, said: list[Searchable], query: str, **more: int) -> list[int]:
    """Where it is found."""
    hits = await search.find("c", said, query, limit=more.pop("limit", 50), **more)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return [hit.position for hit in hits]


async def test_all_words_must_stand_there() -> None:
    """In any order, by their beginnings, without accents and case; a phrase only as it is."""
    search = MessageSearch()
    said = texts("Der Hafen von Réunion", "Hafen", "REUNION hafenmeister", "von Hafen")
    assert sorted(await hits_of(search, said, "hafen reunion")) == [1, 3]
    assert await hits_of(search, [], '"hafen von"') == [1]


async def test_the_rarer_and_denser_comes_first() -> None:
    """A message that speaks of nothing else goes before a long one that mentions it."""
    said = texts("harbour " + "and much more " * 50, "harbour harbour", "nothing")
    assert await hits_of(MessageSearch(), said, "harbour") == [2, 1]


async def test_what_is_new_is_added_and_what_changed_is_indexed_anew() -> None:
    """Messages from the first on take the place of all."""
    search = MessageSearch()
    assert await hits_of(search, texts("one"), "two") == []
    assert search.indexed("c") == (1, "id1")
    assert await hits_of(search, texts("two", first=2), "two") == [2]
    assert await hits_of(search, texts("other"), "two") == []
    search.drop("c")
    assert search.indexed("c") == (0, "")


async def test_the_index_asked_longest_ago_goes_first() -> None:
    """Memory is bounded."""
    search = MessageSearch(max_indexes=2)
    for name in ("a", "b", "a", "c"):
        await search.find(name, texts("x"), "x", limit=1)
    assert [search.indexed(name)[0] for name in "abc"] == [1, 0, 1]


async def test_an_index_that_went_meanwhile_does_not_begin_in_the_middle() -> None:
    """What was read after its last message would stand alone, and the earlier ones would never be found."""
    search = MessageSearch(max_indexes=1)
    await search.find("a", texts("old", "old"), "old", limit=5)
    await search.find("b", texts("x"), "x", limit=5)
    await search.find("a", texts("new", first=3), "new", limit=5, after=2)
    assert search.indexed("a") == (0, "")
    assert len(await search.find("a", texts("old", "old", "new"), "old", limit=5)) == 2


async def test_pages_of_hits_in_running_text_go_on() -> None:
    """Also where only letters in a row are found."""
    search = MessageSearch()
    said = texts(*["今日は東京都庁に行きました。"] * 5)
    assert await hits_of(search, said, "東京都", limit=2) == [1, 2]
    assert await hits_of(search, [], "東京都", limit=2, offset=4) == [5]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60), deadline=None)
@given(st.text(max_size=40))
async def test_any_query_is_one(query: str) -> None:
    """Nothing that anybody types is an error."""
    await hits_of(MessageSearch(), texts("some words", "und mehr"), query)
