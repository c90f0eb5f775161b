"""Writes loss receipts: compares a summary's text with what it stands for, by rules and without a model.

The compactor asks for one after every strategy. The details are those of the ledger (``ledger.py``), and names. A text
is compared in lower case by its words, so that a summary's labels and line ends make no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import PrefixSummary, SummaryText
from tidemark.core.errors import SummaryOverdue
from tidemark.core.phrases import Reading
from tidemark.core.receipt import Detail, Receipt, receipt_of, with_statements
from tidemark.summarizers.compared_text import ComparedText
from tidemark.summarizers.deadline import READING_SECONDS, UNBOUNDED, Deadline, in_thread
from tidemark.summarizers.ledger import ledger_details, ledger_of_passages
from tidemark.summarizers.passages import Passage, passages
from tidemark.summarizers.sentences import words_of
from tidemark.summarizers.transcript import read_back, utterances
from tidemark.summarizers.unsupported import unsupported_details

_NAME_WORD = "[A-Z][a-zà-öø-ÿ]{2,20}"
_NAME = re.compile(
    # It starts with a simple class, so that the search skips from capital to capital.
    r"[A-Z](?<!^.)(?<=\b.)(?<![.!?:\"'(].)(?<![.!?:*•\"'(-]\s.)"
    rf"[a-zà-öø-ÿ]{{2,20}}(?:[ -]{_NAME_WORD}){{0,2}}\b"
)
"""Capitalized words that do not begin a sentence."""
_NO_NAMES_TEXT = """
monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
october november december english the and but user assistant tool system
"""
_NO_NAMES = frozenset(_NO_NAMES_TEXT.split())
_SMALL_CHARACTERS = 8_000
"""So much text is compared at once; more of it in a thread."""
_MAX_NAMES = 2_000


class ReceiptWriter:
    """Compares summaries with what they stand for. Holds no state.

    :param reading_seconds: the most CPU time for one
    """

    def __init__(self, reading_seconds: float = READING_SECONDS) -> None:
        self._reading_seconds = reading_seconds

    async def receipt(
        self,
        messages: Sequence[Message],
        previous: PrefixSummary | None,
        draft: SummaryText,
        reading: Reading | None = None,
    ) -> Receipt:
        """Return the receipt of a text that stands for ``previous`` and ``messages``; empty if that takes too long.

        A receipt is information only, so its failure must not cost a summary.

        :param reading: what the strategy has read of the same messages
        """
        earlier, source = (previous.receipt, previous.source) if previous else ((), "")
        by_model = draft.made_by != "extractive"
        try:
            details = await self.details(messages, source, draft.text, by_model=by_model, reading=reading)
        except SummaryOverdue:
            return ()
        return with_statements(receipt_of(details, earlier), draft.statements, draft.statements_left_out)

    async def details(
        self,
        messages: Sequence[Message],
        previous: str,
        text: str,
        *,
        by_model: bool = False,
        reading: Reading | None = None,
    ) -> Sequence[Detail]:
        """Return what was said in ``previous`` and ``messages``, and what became of it in ``text``.

        Much text is compared in a thread.

        :param previous: an earlier summary's source
        :param by_model: whether a model wrote of it, so that what nobody said is a detail, too
        :raises SummaryOverdue: the comparison took too long
        """
        reading = reading or Reading()
        if len(previous) + sum(len(message.text) for message in messages) < _SMALL_CHARACTERS:
            return _all_details(messages, previous, text, reading, UNBOUNDED, by_model=by_model)
        deadline = Deadline(self._reading_seconds)
        compare = partial(_all_details, by_model=by_model)
        return await in_thread(deadline, compare, messages, previous, text, reading, deadline)


def _all_details(
    messages: Sequence[Message], previous: str, text: str, reading: Reading, deadline: Deadline, *, by_model: bool
) -> Sequence[Detail]:
    details = details_of(messages, previous, text, reading, deadline)
    return [*details, *unsupported_details(text, messages, previous, deadline)] if by_model else details


def details_of(
    messages: Sequence[Message],
    previous: str,
    text: str,
    reading: Reading | None = None,
    deadline: Deadline = UNBOUNDED,
) -> Sequence[Detail]:
    """Return the details of an earlier summary and of new messages, each with its survival in ``text``.

    :param reading: what the strategy has read of the same texts
    :raises SummaryOverdue: the deadline has passed
    """
    reading = reading or Reading()
    earlier = passages(read_back(previous), reading, deadline)
    new = passages(utterances(messages), reading, deadline)
    ledger = ledger_of_passages(messages, earlier, new, deadline=deadline)
    summary = ComparedText(text)
    details = [detail for _, detail in ledger_details(ledger, summary, deadline)]
    names = _names([*earlier, *(each for each in new if not each.speaker.startswith(("Tool", "System")))], deadline)
    details += [Detail("names", name, "kept" if summary.has_phrase(words_of(name)) else "dropped") for name in names]
    return details


def _names(spoken: Iterable[Passage], deadline: Deadline) -> Iterator[str]:
    """Yield names of persons, places and things, each once: capitalized words inside sentences."""
    names: set[str] = set()
    for passage in spoken:
        for phrase in deadline.over(passage.phrases):
            sentence = phrase.sentence
            if sentence[1:].islower():
                continue  # no capital but the first
            for match in _NAME.finditer(sentence):
                name = match[0]
                if name.lower() not in _NO_NAMES and name not in names and len(names) < _MAX_NAMES:
                    names.add(name)
                    yield name
