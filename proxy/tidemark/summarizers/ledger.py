"""Collects the ledger: what must outlive every summary, recognized by rules and carried in the user's words.

``hybrid`` puts it before a model's narrative, because only entries outside the prose survive many rounds. It is
deterministic: the same messages give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.core.conversation.messages import Message
from tidemark.core.phrases import Phrase, Reading
from tidemark.core.receipt import Detail, DetailKind, Survival
from tidemark.summarizers.compared_text import ComparedText
from tidemark.summarizers.deadline import UNBOUNDED, Deadline
from tidemark.summarizers.details import COMMANDS, FILES, IDENTIFIERS, LINKS, DetailFinder, commands_in, named_by_call
from tidemark.summarizers.passages import Passage, passages
from tidemark.summarizers.request import REQUEST, Request, open_request
from tidemark.summarizers.revoking import Revocation, related_rules, revocation_of
from tidemark.summarizers.rules import MOST_DEMANDS, rule_kind
from tidemark.summarizers.sentences import words_of
from tidemark.summarizers.signals import reports_error
from tidemark.summarizers.superseding import answer_language
from tidemark.summarizers.transcript import CALLED, EARLIER, USER_SAID, arguments_of, read_back, shortened, utterances

RULE, ERROR = USER_SAID, "Error"
KINDS = (RULE, REQUEST, ERROR, FILES, COMMANDS, IDENTIFIERS, LINKS)
"""The kinds in the order of a summary. If tokens lack, the last kind is dropped first and the request last."""
_ONE_A_LINE = frozenset({RULE, ERROR, REQUEST})
_STANDING = frozenset({RULE})
"""If there are too many entries of these kinds, the oldest stay; of all other kinds the newest stay."""
_MAX_ENTRIES = {RULE: 60, ERROR: 8, FILES: 30, COMMANDS: 12, IDENTIFIERS: 24, LINKS: 12}
SHARES = {REQUEST: 0.30, RULE: 0.38, ERROR: 0.07, FILES: 0.08, COMMANDS: 0.07, IDENTIFIERS: 0.06, LINKS: 0.04}
"""Each kind's own share of the ledger's tokens (S2-H2: files, commands and errors always get some)."""
_ERROR_CHARS = 200
_SEPARATOR = "; "
_FENCE = "```"

_MARK = re.compile(r"(?:[-*•–#]+|\(?\d{1,3}[.)]|\(?[a-z]\))\s+|rules?:\s+", re.IGNORECASE)
"""The mark of an item of a list, or the label that the line of a rule has already. A section's number is neither."""
_SENTENCE_KINDS: Mapping[str, DetailKind] = {
    RULE: "rules",
    REQUEST: "requests",
    ERROR: "errors",
}
EXACT_KINDS: Mapping[str, DetailKind] = {
    FILES: "files",
    COMMANDS: "commands",
    IDENTIFIERS: "identifiers",
    LINKS: "links",
}
"""Kinds of the ledger that a text has exactly or not at all."""


@dataclass(slots=True)
class Ledger:
    """Entries by kind, in the order in which they appeared, without duplicates."""

    entries: dict[str, dict[str, None]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    demands: set[str] = field(default_factory=set)
    """The rules that say what a thing must be. Many of them are a pasted text, and come after the user's own rules."""
    _language_rule: str | None = None
    """The entry with the language of answers; a newer one replaces it."""

    def add(self, kind: str, entry: str) -> None:
        """Add an entry. A repeated entry counts as new for the kinds that keep the newest."""
        entry = " ".join(entry.split())
        entries = self.entries[kind]
        if not entry:
            return
        if kind == REQUEST:
            entries.clear()
        elif kind == RULE and answer_language(entry):
            if self._language_rule is not None:
                entries.pop(self._language_rule, None)
            self._language_rule = entry
        elif kind not in _STANDING:
            entries.pop(entry, None)
        entries[entry] = None

    def take_back(self, revocation: Revocation) -> bool:
        """Drop the rules that a statement takes back whole; return whether it is about any rule."""
        rules = list(self.entries[RULE])
        related = list(related_rules(rules, revocation))
        for place, is_whole in related:
            if is_whole:
                del self.entries[RULE][rules[place]]
        return bool(related)

    def add_all(self, entries: Iterable[tuple[str, str]]) -> None:
        """Add entries, each with its kind."""
        for kind, entry in entries:
            self.add(kind, entry)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield each kind and entry, most important first."""
        for kind in sorted(KINDS, key=lambda kind: kind != REQUEST):
            entries = list(self.entries[kind])
            if kind == RULE and len(self.demands) > MOST_DEMANDS:
                entries.sort(key=self.demands.__contains__)
            limit = _MAX_ENTRIES.get(kind, 1)
            shown = entries[:limit] if kind in _STANDING else entries[-limit:]
            for entry in shown if kind in _STANDING else reversed(shown):
                yield kind, entry


def ledger_of(
    messages: Sequence[Message],
    previous: str,
    *,
    request_chars: int = 600,
    reading: Reading | None = None,
    deadline: Deadline = UNBOUNDED,
) -> Ledger:
    """Return the ledger of an earlier summary, of any strategy, continued with new messages.

    :param reading: what was read before of the same texts
    :param request_chars: the most characters of the open request; a longer one keeps its beginning and its end
    :raises SummaryOverdue: the deadline has passed
    """
    reading = reading or Reading()
    earlier = passages(read_back(previous), reading, deadline)
    new = passages(utterances(messages), reading, deadline)
    return ledger_of_passages(messages, earlier, new, request_chars=request_chars, deadline=deadline)


def ledger_of_passages(
    messages: Sequence[Message],
    earlier: Iterable[Passage],
    new: Iterable[Passage],
    *,
    request_chars: int = 600,
    deadline: Deadline = UNBOUNDED,
) -> Ledger:
    """Return the ledger of what was split before: the lines of an earlier summary, and the utterances of messages.

    :raises SummaryOverdue: the deadline has passed
    """
    ledger, finder = Ledger(), DetailFinder()
    for line in earlier:
        _add_line(ledger, finder, line, deadline)
    for message in deadline.over(messages):
        for call in message.calls:
            ledger.add_all(named_by_call(call.name, arguments_of(call) or {}))
    for passage in new:
        _note(ledger, finder, passage, deadline)
    carried = next((Request(text, answered=False) for text in ledger.entries[REQUEST]), None)
    ledger.entries[REQUEST].clear()
    if request := open_request(messages, carried):
        ledger.add(REQUEST, request.within(request_chars, request_chars))
    return ledger


def entry_text(kind: str, entry: str) -> str:
    """Return what an entry adds to the rendered ledger, for counting."""
    return f"{kind}: {entry}" if kind in _ONE_A_LINE else f"{_SEPARATOR}{entry}"


def render_ledger(chosen: Iterable[tuple[str, str]]) -> str:
    """Return entries as text: a line for each rule, request and error, and a line for each other kind."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for kind, entry in chosen:
        by_kind[kind].append(entry)
    lines: list[str] = []
    for kind in KINDS:
        # Kinds that keep the newest entries come newest first; they are rendered in the order of appearance.
        entries = by_kind[kind] if kind in _STANDING else by_kind[kind][::-1]
        if kind in _ONE_A_LINE:
            lines += [f"{kind}: {entry}" for entry in entries]
        elif entries:
            lines.append(f"{kind}: {_SEPARATOR.join(entries)}")
    return "\n".join(lines)


def _add_line(ledger: Ledger, finder: DetailFinder, line: Passage, deadline: Deadline) -> None:
    """Add a line of an earlier summary. The ledger's own line as it is, any other like a text of its speaker."""
    if line.speaker in _ONE_A_LINE:
        ledger.add(line.speaker, line.text)
        if line.speaker == RULE and rule_kind(line.text, words_of(line.text)) == "demand":
            ledger.demands.add(line.text)
        # The line may be replaced, such as the open request, or dropped; what it names is then still known.
        ledger.add_all(finder.details(line.text))
    elif line.speaker in KINDS:
        for entry in line.text.split(_SEPARATOR):
            ledger.add(line.speaker, entry)
    elif line.speaker != EARLIER:
        _note(ledger, finder, line, deadline)


def _note(ledger: Ledger, finder: DetailFinder, passage: Passage, deadline: Deadline) -> None:
    by_user, by_tool = passage.speaker.startswith("User"), passage.speaker.startswith("Tool")
    if passage.text.startswith(CALLED):
        return  # its arguments may be shortened here
    if not by_tool:
        ledger.add_all((COMMANDS, command) for command in commands_in(passage.text))
    is_code = False
    has_fences = passage.text.count(_FENCE) % 2 == 0  # a single one fences nothing
    for phrase in deadline.over(passage.phrases):
        plain = phrase.plain
        if has_fences and _FENCE in plain:
            is_code ^= bool(plain.count(_FENCE) % 2)
        elif (by_tool or is_code or phrase.is_error) and reports_error(plain):
            ledger.add(ERROR, shortened(plain, _ERROR_CHARS))
        elif by_user and not (is_code or plain.startswith(">")):
            _note_of_user(ledger, phrase)
        if details := finder.details(phrase.sentence):
            ledger.add_all(details)


def _note_of_user(ledger: Ledger, phrase: Phrase) -> None:
    """Add a sentence of the user if it looks like a rule, or takes one back."""
    revocation = revocation_of(phrase.plain, phrase.words)
    takes_back = revocation is not None and ledger.take_back(revocation)
    if takes_back or phrase.rule is not None:
        entry = _without_mark(phrase.sentence)
        ledger.add(RULE, entry)
        if phrase.rule == "demand":
            ledger.demands.add(entry)


def _without_mark(sentence: str) -> str:
    """Return a sentence without the mark of a list before it."""
    while match := _MARK.match(sentence):
        sentence = sentence[match.end() :]
    return sentence


def ledger_details(ledger: Ledger, text: ComparedText, deadline: Deadline = UNBOUNDED) -> list[tuple[str, Detail]]:
    """Return each entry's kind in the ledger, and what became of it in a text.

    :raises SummaryOverdue: the deadline has passed
    """
    details: list[tuple[str, Detail]] = []
    for kind, entries in ledger.entries.items():
        for entry in deadline.over(entries):
            words = words_of(entry)
            if not words:
                continue  # nothing but punctuation
            if sentence_kind := _SENTENCE_KINDS.get(kind):
                details.append((kind, Detail(sentence_kind, entry, text.sentence_survival(words))))
            elif exact_kind := EXACT_KINDS.get(kind):
                survival: Survival = "kept" if text.has_wording(entry, words) else "dropped"
                details.append((kind, Detail(exact_kind, entry, survival)))
    return details
