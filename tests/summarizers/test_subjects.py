"""A bare value in Chinese stands with what it belongs to, in the words of the talk: "[推荐您去松鹤园] 电话是...".

What is carried was said, and by the same speaker; ``test_most_values_stand_with_their_own_subject`` counts the cases.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.core.conversation.messages import Message
from tidemark.core.phrases import Reading
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.dialects.chat.message import parse_message
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.summarizers.deadline import UNBOUNDED
from tidemark.summarizers.pieces import pieces_of
from tidemark.summarizers.subjects import with_subjects
from tidemark.summarizers.transcript import read_back, utterances

MODEL = "gpt-4o"
Talk = Callable[..., tuple[Message, ...]]
CORPUS = Path(__file__).parents[2] / "benchmarks" / "fidelity" / "corpora" / "chinese"
TALKS = Path(__file__).parent
GARDEN = (
    "您好，帮我找一个适合散步的公园。",
    "您好，推荐您去松鹤园，环境很安静。",
    "电话是多少？",
    "电话是010-66230917。",
    "门票呢？",
    "门票是每人15元。",
)
"""A service says a name once, and answers with bare values."""
THANKS = ("谢谢，我先去看看，回来再说。", "祝您玩得开心，一路顺风。", "再见，下次再聊这个问题。")


async def summary_of(
    counter: TokenCounter, messages: tuple[Message, ...], bound: int = 400, previous: str | None = None
) -> str:
    """One summary."""
    return (await ExtractiveSummarizer(counter).summarize(SummaryTask(messages, previous, bound, MODEL))).text


@pytest.mark.anyio
async def test_a_bare_value_stands_with_what_it_belongs_to(counter: TokenCounter, talk: Talk) -> None:
    """The name is there once for all values of a line, however few of them fit."""
    messages = talk(*GARDEN, *THANKS)
    for bound in range(40, 160, 5):
        for line in read_back(await summary_of(counter, messages, bound)):
            if "010-66230917" in line.text or "15元" in line.text:
                assert line.text.count("推荐您去松鹤园") == 1


@pytest.mark.anyio
async def test_the_next_summary_keeps_the_value_with_its_subject(counter: TokenCounter, talk: Talk) -> None:
    """Also where it keeps only some values of a line."""
    first = await summary_of(counter, talk(*GARDEN, *THANKS), 90)
    for bound in range(40, 120, 5):
        second = await summary_of(counter, talk("北京的天气怎么样？", "今天晴，很暖和。", *THANKS), bound, first)
        for line in read_back(second):
            if "010-66230917" in line.text or "15元" in line.text:
                assert "推荐您去松鹤园" in line.text


@pytest.mark.anyio
async def test_a_question_that_takes_up_a_name_stands_before_its_answer(counter: TokenCounter, talk: Talk) -> None:
    """It says what the value belongs to, whatever was introduced since."""
    said = ("附近还有一家聚福斋，菜很清淡。", "松鹤园的门票是多少？", "每人15元。")
    text = await summary_of(counter, talk(*GARDEN[:2], "还有别的吗？", *said, *THANKS), 300)
    line = next(line.text for line in read_back(text) if "15元" in line.text)
    assert "松鹤园的门票是多少" in line
    assert "聚福斋" not in line


@pytest.mark.anyio
@pytest.mark.parametrize("between", ["附近还有一家聚福斋，评分4.8分。", "最好提前一天预约，人均100元。"])
async def test_where_something_else_may_have_been_introduced_nothing_is_carried(
    counter: TokenCounter, talk: Talk, between: str
) -> None:
    """A wrong name is worse than none."""
    messages = talk(*GARDEN[:2], "还有呢？", between, "几点关门？", "晚上22:30关门。", *THANKS)
    line = next(line.text for line in read_back(await summary_of(counter, messages)) if "22:30" in line.text)
    assert "松鹤园" not in line.split("22:30")[0]


def test_most_values_stand_with_their_own_subject() -> None:
    """Of the subjects that values get in the written Chinese talks, five of six are those of the questions by name."""
    right = wrong = 0
    for file in sorted(CORPUS.glob("*.json")):
        talk = json.loads(file.read_text(encoding="utf-8"))
        messages = [parse_message(json.dumps(value).encode(), value, 0) for value in talk["messages"]]
        pieces = pieces_of([], list(utterances(messages)), with_bulk=False, reading=Reading(), deadline=UNBOUNDED)
        for piece in with_subjects(pieces):
            asked = [fact["question"] for fact in talk["facts"] if fact["words"][0] in piece.phrase.plain]
            if asked and piece.subject:
                name = [piece.subject[place : place + 3] for place in range(len(piece.subject) - 2)]
                is_right = any(part in question for part in name for question in asked)
                right, wrong = right + is_right, wrong + (not is_right)
    assert right >= 5 * wrong
    assert right >= 25


@pytest.mark.parametrize("file", sorted(TALKS.glob("*talks/*-zh.json")), ids=lambda file: file.stem)
def test_in_talks_that_explain_themselves_nothing_is_carried(file: Path) -> None:
    """Long messages name what they are about; the nearest clause would be any."""
    values = json.loads(file.read_text(encoding="utf-8"))["messages"]
    messages = [parse_message(json.dumps(value).encode(), value, 0) for value in values]
    pieces = pieces_of([], list(utterances(messages)), with_bulk=False, reading=Reading(), deadline=UNBOUNDED)
    assert not any(piece.subject for piece in with_subjects(pieces))
