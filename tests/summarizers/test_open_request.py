"""The open request goes from summary to summary in the user's own words, outside what a model writes."""

from __future__ import annotations

import pytest

from tests.core.histories import message
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import SummaryRecipe, SummaryText
from tidemark.core.ports import Summarizer, SummaryTask
from tidemark.summarizers.extractive import ExtractiveSummarizer
from tidemark.summarizers.hybrid import HybridSummarizer
from tidemark.summarizers.request import Request, carried_request, request_of
from tidemark.tokens import LocalTokenCounter

pytestmark = pytest.mark.anyio

ASKED = (
    "Please port the billing service from Flask to Starlette; keep every route as it is, never touch the migrations, "
    "and write down in NOTES.md what you were not sure about."
)
RULES = " ".join(f"Never rename the table t{number} and always quote column c{number}." for number in range(80))


class Forgetful:
    """A narrator who tells nothing of what was asked."""

    recipe = SummaryRecipe("llm", "general", 1, "auto")

    async def summarize(self, task: SummaryTask) -> SummaryText:
        """A text of one sentence that never mentions the request."""
        return SummaryText(f"Some {len(task.messages)} things were done, one after another; all went well.", "llm")


def strategies(counter: LocalTokenCounter) -> dict[str, Summarizer]:
    """Those that write lines of their own, as ``app.py`` makes them; the text of ``llm`` is the model's alone."""
    return {
        "extractive": ExtractiveSummarizer(counter),
        "hybrid": HybridSummarizer(counter, Forgetful()),
    }


def rounds(first: int, count: int) -> list[Message]:
    """Tool rounds with results that are like no other."""
    said = []
    for number in range(first, first + count):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
        said.append(message(role="assistant", content=f"Reading part {number}.", tool_calls=[call]))
        text = f"Error: part {number} must never be empty. " * 4
        said.append(message(role="tool", tool_call_id=f"c{number}", content=text))
    return said


@pytest.mark.parametrize("bound", [216, 1000])
@pytest.mark.parametrize("strategy", ["extractive", "hybrid"])
async def test_the_open_request_outlives_many_cascades(counter: LocalTokenCounter, strategy: str, bound: int) -> None:
    """One message of the user, then tool rounds only: word for word in every summary, however many rules compete."""
    summarizer, previous = strategies(counter)[strategy], None
    asked = ASKED if bound > 216 else ASKED[:160]
    for number in range(8):
        new = rounds(10 * number, 10)
        if not number:
            new = [message(role="user", content=RULES), message(role="assistant", content="Understood.")]
            new += [message(role="user", content=asked), *rounds(0, 10)]
        previous = (await summarizer.summarize(SummaryTask(new, previous, bound, "gpt-4o"))).source
        assert asked in previous, f"summary {number + 1}"
        assert previous.count(asked) == 1
        assert counter.count_text(previous, "gpt-4o") <= bound


@pytest.mark.parametrize("strategy", ["extractive", "hybrid"])
async def test_a_new_request_takes_the_place_of_the_old_one(counter: LocalTokenCounter, strategy: str) -> None:
    """What was asked before is a thing that was said."""
    summarizer = strategies(counter)[strategy]
    first = (
        await summarizer.summarize(
            SummaryTask([message(role="user", content=ASKED), *rounds(0, 3)], None, 800, "gpt-4o")
        )
    ).source
    second = [message(role="assistant", content="Done."), message(role="user", content="Now port the tests as well.")]
    text = (await summarizer.summarize(SummaryTask([*second, *rounds(3, 3)], first, 800, "gpt-4o"))).source
    request = carried_request(text)
    assert request is not None
    assert request.text == "Now port the tests as well."


async def test_an_answered_message_that_repeats_another_is_no_open_request(counter: LocalTokenCounter) -> None:
    """A "Go on." costs nothing once it was answered; before that it is what the assistant is working on."""
    said = [message(role="user", content=ASKED), message(role="assistant", content="The invoices are ported.")]
    said += [message(role="user", content="Go on."), message(role="assistant", content="Now the 12 handlers.")]
    said += [message(role="user", content="Go on.")]
    answered = [*said, message(role="assistant", content="All 12 handlers are ported.")]
    summarizer = ExtractiveSummarizer(counter)
    assert "Open request: Go on." in (await summarizer.summarize(SummaryTask(said, None, 800, "gpt-4o"))).source
    text = (await summarizer.summarize(SummaryTask(answered, None, 800, "gpt-4o"))).source
    assert "Open request" not in text
    assert ASKED in text


async def test_what_the_open_request_says_stands_once(counter: LocalTokenCounter) -> None:
    """A sentence that was said before is left to the line of the request."""
    said = [message(role="user", content="Mend parser.py."), message(role="assistant", content="Which of the 3?")]
    said += [message(role="user", content="Mend parser.py. The second of them."), *rounds(0, 1)]
    text = (await ExtractiveSummarizer(counter).summarize(SummaryTask(said, None, 800, "gpt-4o"))).source
    assert text.count("Mend parser.py.") == 1
    assert "Open request: Mend parser.py. The second of them." in text


@pytest.mark.parametrize("strategy", ["extractive", "hybrid"])
async def test_a_smaller_bound_keeps_both_ends_of_a_long_request(counter: LocalTokenCounter, strategy: str) -> None:
    """A conversation that moves to a smaller window: shortened, but there."""
    summarizer = strategies(counter)[strategy]
    long = ASKED + " " + "And mind the details of every handler. " * 30 + "Begin with the invoices."
    said = [message(role="user", content=long), *rounds(0, 3)]
    first = (await summarizer.summarize(SummaryTask(said, None, 4000, "gpt-4o"))).source
    assert " ".join(long.split()) in first
    second = (await summarizer.summarize(SummaryTask(rounds(3, 3), first, 216, "gpt-4o"))).source
    request = carried_request(second)
    assert request is not None
    assert request.text.startswith(ASKED[:60])
    assert request.text.endswith("Begin with the invoices.")


PARAPHRASE = "Open request: port the billing service, which is DONE"


def test_the_first_line_is_the_request() -> None:
    """Ours stands first; what a summary of an earlier version holds behind it is the model's."""
    assert carried_request(f"Open request: {ASKED}\n## Context\n{PARAPHRASE}") == Request(ASKED, answered=False)


def test_a_request_is_open_until_an_assistant_answers_without_calling() -> None:
    """Text beside a call is no answer; an empty message of the user is no request."""
    asked, said = message(role="user", content="a\n b"), message(role="assistant", content="done")
    assert request_of([]) is None
    assert request_of([asked, *rounds(0, 2)]) == Request("a b", answered=False)
    assert request_of([asked, *rounds(0, 2), said]) == Request("a b", answered=True)
    assert request_of([asked, message(role="user", content=""), *rounds(0, 1)]) == Request("a b", answered=False)


@pytest.mark.parametrize(
    ("question", "answer", "line"),
    [
        (
            "Shall I book both rooms?",
            "Yes, both of them.",
            "Open request: [Shall I book both rooms?] Yes, both of them.",
        ),
        ("Shall I book [both]?", "Yes, both of them.", "Open request: Yes, both of them."),
        ("I booked both rooms.", "Yes, thanks.", "Open request: Yes, thanks."),
        (
            "Shall I book?",
            "Which harbour does the ferry to Vigo leave?",
            "Open request: Which harbour does the ferry to",
        ),
    ],
)
async def test_a_request_of_a_few_words_stands_with_the_question_that_it_answers(
    counter: LocalTokenCounter, question: str, answer: str, line: str
) -> None:
    """Without it nobody knows what is asked. It goes on with it, and one that explains itself needs none."""
    summarizer = ExtractiveSummarizer(counter)
    said = [message(role="user", content=ASKED), message(role="assistant", content=f"Two rooms are free. {question}")]
    said += [message(role="user", content=answer), *rounds(0, 2)]
    first = (await summarizer.summarize(SummaryTask(said, None, 400, "gpt-4o"))).source
    assert line in first
    second = (await summarizer.summarize(SummaryTask(rounds(2, 2), first, 400, "gpt-4o"))).source
    assert line in second
    small = (await summarizer.summarize(SummaryTask(said, None, 40, "gpt-4o"))).source
    assert answer in small
    assert f"[{question}]" not in small
