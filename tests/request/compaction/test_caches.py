"""Cached chains and budgets are the ones that are made anew, and their number has a bound."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.pipeline.identify import MAX_BUDGETS, BudgetCache, ChainCache
from tidemark.pipeline.lossless import MOST_BYTES, LosslessResults
from tidemark.tokens import LocalTokenCounter

ASKED = st.tuples(st.integers(0, 3), st.none() | st.integers(1, 300), st.none() | st.integers(0, 300))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.booleans()), max_size=12), st.integers(20, 300))
def test_a_remembered_chain_is_the_one_that_is_made_anew(turns: list[tuple[int, int, bool]], links: int) -> None:
    """Turns go on, rewind, edit and fork in any order, for two tenants, in a cache that holds hardly anything."""
    chains = ChainCache(links)
    for edited, length, mine in turns:
        said = [message(role="user", content=f"{place}{'!' if place == edited else ''}") for place in range(length)]
        tenant = "a" if mine else "b"
        assert chains.of(tenant, said) == chain_of(tenant, said)
        assert chains.of(tenant, said, conversation="x") == chain_of(tenant, said, conversation="x")


@given(st.lists(ASKED, max_size=300))
def test_a_cached_budget_is_the_one_that_is_made_anew(asked: list[tuple[int, int | None, int | None]]) -> None:
    """Profiles that differ in nothing, and profiles that differ, are asked in any order."""
    profiles = [ModelProfile("m", ModelWindow(1000 + 500 * (number // 2)), CompactionPolicy()) for number in range(4)]
    cache = BudgetCache()
    for number, output, retention in asked:
        profile = profiles[number]
        assert cache.of(profile, output, retention) == budget_for(profile, output, retention)


def test_the_number_of_cached_budgets_has_a_bound() -> None:
    """Clients choose the length of a reply, and a profile that is gone must not be taken for its successor."""
    cache, profile = BudgetCache(), ModelProfile("m", ModelWindow(1000), CompactionPolicy())
    for output in range(1, 3 * MAX_BUDGETS):
        passing = replace(profile, window=ModelWindow(1000 + output))
        assert cache.of(passing, output, None) == budget_for(passing, output, None)
    assert len(cache._budgets) == MAX_BUDGETS  # noqa: SLF001 - the bound is on memory, which nothing else shows


def test_the_cached_forms_of_results_have_a_bound_with_their_calls() -> None:
    """A call may have a whole file in its arguments, and its result a few lines."""
    results = LosslessResults(LocalTokenCounter())
    arguments = json.dumps({"text": "x" * 1_000_000})
    for number in range(2 * MOST_BYTES // len(arguments)):
        function = {"name": "put", "arguments": arguments}
        said = [
            message(role="assistant", tool_calls=[{"id": f"c{number}", "type": "function", "function": function}]),
            message(role="tool", tool_call_id=f"c{number}", content="stored it \n" * 60),
        ]
        asyncio.run(results._forms_of(said, ChatDialect()))  # noqa: SLF001 - a request has no such size in a test
    assert 0 < len(results._forms) * len(arguments) <= MOST_BYTES  # noqa: SLF001 - nothing else shows the bound
