"""Agents' sessions of several kinds keep the facts that were made up with them, in few tokens."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from tests.summarizers.agent_sessions import Session, gateway, pipeline, web_shop
from tidemark.cli.main import cli
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.dialects.chat.message import parse_message
from tidemark.summarizers import ExtractiveSummarizer

MODEL = "gpt-4o-mini"
ENOUGH = 700
"""Tokens in which all facts stand, of sessions of 8,000 to 23,000 tokens."""
SESSIONS = [web_shop, gateway, pipeline]


def lacking(session: Session, text: str) -> list[tuple[str, ...]]:
    """Facts that do not stand in a text."""
    return [fact for fact in session.facts if not all(fragment in text for fragment in fact)]


def standing_though_void(session: Session, text: str) -> list[str]:
    """Rules that the user replaced, and that stand nevertheless."""
    return [rule for rule in session.void if rule in text]


async def summary_of(session: Session, counter: TokenCounter, bound: int) -> str:
    """A summary of all but the newest message, which every compaction keeps."""
    values = session.values[:-1]
    messages = tuple(parse_message(json.dumps(value).encode(), value, place) for place, value in enumerate(values))
    return (await ExtractiveSummarizer(counter).summarize(SummaryTask(messages, None, bound, MODEL))).text


@pytest.mark.anyio
@pytest.mark.parametrize("make", SESSIONS)
async def test_all_facts_of_a_session_stand_in_a_short_summary(
    counter: TokenCounter, make: Callable[[], Session]
) -> None:
    """Causes, values, files, errors, counts and rules in force; what the user replaced is gone."""
    session = make()
    text = await summary_of(session, counter, ENOUGH)
    assert counter.count_text(text, MODEL) <= ENOUGH
    assert lacking(session, f"{text}\n{session.values[-1]['content']}") == []
    assert standing_though_void(session, text) == []


@pytest.mark.parametrize("make", SESSIONS)
@pytest.mark.parametrize("bound", [900, 1200, 1500, 2500])
def test_all_facts_of_a_session_stand_after_tidemark_compact(make: Callable[[], Session], bound: int) -> None:
    """In the summary and the messages that are kept beside it."""
    session = make()
    request = json.dumps({"model": MODEL, "messages": session.values})
    done = CliRunner().invoke(cli, ["compact", "--max-tokens", str(bound)], input=request)
    assert done.exit_code == 0, done.output
    text = json.dumps(json.loads(done.output)["request"]["messages"], ensure_ascii=False)
    assert lacking(session, text.replace("\\n", "\n")) == []
    assert standing_though_void(session, text) == []


@pytest.mark.anyio
async def test_a_replaced_rule_leaves_and_its_replacement_stands_whole(counter: TokenCounter) -> None:
    """With the few words after it that say what holds no more, and also in the next summary, without an older rule."""
    statement = (
        "Actually, let me change my mind about rounding: finance now says round half up, commercial rounding. "
        "Not half even."
    )
    session = web_shop()
    first = await summary_of(session, counter, 300)
    later = {"role": "user", "content": "Which of the harbour lamps are still to be paid? " * 40}
    messages = tuple(parse_message(json.dumps(later).encode(), later, 0) for _ in range(2))
    second = (await ExtractiveSummarizer(counter).summarize(SummaryTask(messages, first, 300, MODEL))).text
    for text in (first, second):
        assert statement in text
        assert "always round half even" not in text


@pytest.mark.anyio
async def test_rounds_that_are_nearly_equal_stand_once_with_their_range(counter: TokenCounter) -> None:
    """Twelve modules, their calls and the two remarks on each; and no line of their files tells them apart."""
    text = await summary_of(web_shop(), counter, 2500)
    assert text.count("only formats report rows") == 1
    assert text.count("multiplies by 17 without a comment") == 1
    assert text.count("called read(path=src/shop/mod") == 1
    assert "called read(path=src/shop/mod11.py) [12 times, 0 to 11; 708 lines]" in text
    assert text.count("line of code number") <= 1
    assert text.count("helper for reports and invoices") <= 1


@pytest.mark.anyio
async def test_a_file_that_nobody_took_up_is_told_by_its_path(counter: TokenCounter) -> None:
    """With its size; of the file beside it the one line stands that somebody took up."""
    text = await summary_of(pipeline(), counter, 900)
    assert "called open(file=config/legacy_mapping.yaml) [80 lines]" in text
    assert "from: old_" not in text
    assert "52: export = fetch(EXPORT_URL, timeout=30)" in text
