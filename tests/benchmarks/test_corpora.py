"""The written talks are what they say: each fact stands where its file says, and a provider would take the messages."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.fidelity.__main__ import main
from benchmarks.fidelity.corpora import KINDS, SHORT_KINDS, WrittenTalk, corpus_cases, measured_talks, written_talks
from benchmarks.fidelity.production import Sums, measure_talk, running_proxy
from benchmarks.fidelity.survival import surviving, text_of

TALKS = [*written_talks(), *measured_talks(SHORT_KINDS)]
ASKED = ("private", "meetings", "chinese", "arabic", "german")
"""The kinds whose facts are asked for in words; the others are used by later steps."""
MOST_PLACES = 3
"""In so many messages a fact may stand: one that everybody repeats says nothing about a compaction."""
NEWEST = 4
"""So many messages at the end of what is compacted have none of the facts for the first time."""

each_talk = pytest.mark.parametrize("talk", TALKS, ids=lambda talk: f"{talk.kind}-{talk.name}")


@each_talk
def test_each_fact_stands_literally_where_the_file_says(talk: WrittenTalk) -> None:
    """In that message for the first time, and in few others."""
    assert talk.facts
    for placed in talk.facts:
        for words in placed.fact.words:
            places = [place for place, message in enumerate(talk.messages) if words in message["content"]]
            compacted = [place for place in places if place < talk.compacted]
            assert placed.place == compacted[0], words
            assert len(compacted) <= MOST_PLACES, words
            assert placed.place < talk.compacted - NEWEST, words
            assert len(words.split()) <= 8, words


@each_talk
def test_each_fact_survives_where_nothing_is_compacted(talk: WrittenTalk) -> None:
    """The top of the measure is 100 %."""
    case = talk.case
    assert surviving(case, case.facts, [text_of(message) for message in case.messages]) == list(case.facts)


@each_talk
def test_facts_are_asked_for_or_used(talk: WrittenTalk) -> None:
    """By a question, or by a message of the assistant behind the compaction, most often in its call."""
    for placed in talk.facts:
        if talk.kind in ASKED:
            assert placed.fact.question.strip()
        else:
            assert placed.used >= talk.compacted
            using = talk.messages[placed.used]
            assert using["role"] == "assistant"
            assert placed.fact.words[0] in text_of(using)


@each_talk
def test_the_messages_are_a_valid_request(talk: WrittenTalk) -> None:
    """The roles are known, and the results of calls follow these at once."""
    open_calls: list[str] = []
    for message in talk.messages:
        assert message["role"] in {"system", "user", "assistant", "tool"}
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls
        calls = message.get("tool_calls", ())
        assert message["content"] or calls
        assert not calls or message["role"] == "assistant"
        open_calls = [call["id"] for call in calls]
        for call in calls:
            json.loads(call["function"]["arguments"])
    assert not open_calls
    assert talk.messages[0]["role"] in {"system", "user"}
    assert talk.messages[talk.compacted - 1]["role"] != "assistant" or not talk.messages[talk.compacted - 1].get(
        "tool_calls"
    )


def test_the_ids_of_calls_are_unique_in_a_talk() -> None:
    """A result belongs to one call."""
    for talk in TALKS:
        ids = [call["id"] for message in talk.messages for call in message.get("tool_calls", ())]
        assert len(ids) == len(set(ids)), talk.name


def test_every_kind_has_talks_and_stricter_facts_where_values_have_owners() -> None:
    """A value alone, such as a telephone number, answers nothing if its name is gone."""
    assert {talk.kind for talk in TALKS} == set(KINDS)
    assert {case.corpus for case in corpus_cases()} >= set(KINDS)


def test_the_command_measures_the_kinds_that_are_asked_for() -> None:
    """With a share for recall, talks with questions are measured without it and with it."""
    arguments = ["--corpora", "support,meetings", "--recall", "5", "--budgets", "25", "--json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    figures = [figure for figure in json.loads(done.output)["figures"] if figure["kind"] == "all"]
    assert {figure["corpus"] for figure in figures} == {
        "support",
        "meetings, 0 % recalled",
        "meetings, 5 % recalled",
    }


def test_an_unknown_kind_is_refused() -> None:
    """The message lists those that there are."""
    done = CliRunner().invoke(main, ["--corpora", "novels"])
    assert done.exit_code == 2
    assert "private" in done.output


async def test_a_whole_tidemark_forwards_what_the_figures_count() -> None:
    """Where nothing is compacted every fact is kept; in a small window some are lost."""
    talk, wide, narrow = written_talks(["meetings"])[1], Sums(), Sums()
    async with running_proxy(8192) as proxy:
        await measure_talk(proxy, talk, wide)
    assert (wide.survivors, wide.verbatim, wide.compactions) == (wide.facts, wide.facts, 0)
    async with running_proxy(2048) as proxy:
        await measure_talk(proxy, talk, narrow)
    assert narrow.compactions > 1
    assert 0 < narrow.survivors < narrow.facts
    assert narrow.means()[0] < wide.means()[0]
