"""Collects the ledger: what must outlive every summary, recognized by rules and carried in the user's words.

``hybrid`` puts it before a model's narrative, because only entries outside the prose survive many rounds. It is
deterministic: the same messages give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.core.conversation.messages import Message, ToolCall
from proxy.core.reading import Reading
from proxy.summarizers.deadline import UNBOUNDED, Deadline
from proxy.summarizers.details import COMMANDS, FILES, IDENTIFIERS, LINKS, NUMBERS, DetailFinder
from proxy.summarizers.labels import is_labelled
from proxy.summarizers.passages import Passage, passages
from proxy.summarizers.request import REQUEST, Request, request_of
from proxy.summarizers.revoking import Revocation, related_rules, revocation_of
from proxy.summarizers.rules import is_document
from proxy.summarizers.sentences import words_of
from proxy.summarizers.superseding import answer_language
from proxy.summarizers.transcript import EARLIER, arguments_of, read_back, shortened, utterances

RULE, FACT, DECISION, ERROR = "Rule", "Fact", "Decision", "Error"
KINDS = (RULE, REQUEST, FACT, DECISION, ERROR, FILES, COMMANDS, IDENTIFIERS, LINKS, NUMBERS)
"""The kinds in the order of a summary. Where tokens lack, the last kind is dropped first and the request last."""
_ONE_A_LINE = frozenset({RULE, FACT, DECISION, ERROR, REQUEST})
_STANDING = frozenset({RULE, FACT})
"""Kinds of which the oldest entries stay when there are too many; for all others the newest stay."""
_MAX_ENTRIES = {RULE: 60, FACT: 60, DECISION: 24, ERROR: 8, FILES: 30, COMMANDS: 12, LINKS: 12}
_MAX_ENTRIES |= {IDENTIFIERS: 24, NUMBERS: 24}
SHARES = {REQUEST: 0.30, RULE: 0.30, FACT: 0.08, DECISION: 0.07, ERROR: 0.06, FILES: 0.06, COMMANDS: 0.05}
SHARES |= {IDENTIFIERS: 0.03, LINKS: 0.03, NUMBERS: 0.02}
"""Each kind's own share of the ledger's tokens (S2-H2: files, commands and errors always get some)."""
_ERROR_CHARS = 200
_SEPARATOR = "; "

_NAMED_ERROR = re.compile(r"(?:[\w.]*(?:Error|Exception)|fatal|error|panic)\b\s?:")
_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEYS = ("path", "file_path", "filepath", "filename", "file", "target_file")


@dataclass(slots=True)
class Ledger:
    """Entries by kind, in the order in which they appeared, without duplicates."""

    entries: dict[str, dict[str, None]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
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
            limit = _MAX_ENTRIES.get(kind, 1)
            shown = entries[:limit] if kind in _STANDING else entries[-limit:]
            for entry in shown if kind in _STANDING else reversed(shown):
                yield kind, entry


def ledger_of(
    messages: Sequence[Message],
    previous: str,
    *,
    request_chars: int = 600,
    open_chars: int | None = None,
    reading: Reading | None = None,
    deadline: Deadline = UNBOUNDED,
) -> Ledger:
    """Return the ledger of an earlier summary, of any strategy, continued with new messages.

    :param reading: what was read before of the same texts
    :param request_chars: the most characters of the last request; a longer one keeps its beginning and its end
    :param open_chars: the same while the request has no answer
    :raises SummaryOverdue: the deadline has passed
    """
    reading = reading or Reading()
    earlier = passages(read_back(previous), reading, deadline)
    new = passages(utterances(messages), reading, deadline)
    return ledger_of_passages(
        messages, earlier, new, request_chars=request_chars, open_chars=open_chars, deadline=deadline
    )


def ledger_of_passages(
    messages: Sequence[Message],
    earlier: Iterable[Passage],
    new: Iterable[Passage],
    *,
    request_chars: int = 600,
    open_chars: int | None = None,
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
            _note_call(ledger, call)
    for passage in new:
        _note(ledger, finder, passage, deadline)
    request = request_of(messages) or next((Request(text, answered=False) for text in ledger.entries[REQUEST]), None)
    if request:
        ledger.add(REQUEST, request.within(request_chars, open_chars or request_chars))
    return ledger


def entry_text(kind: str, entry: str) -> str:
    """Return what an entry adds to the rendered ledger, for counting."""
    return f"{kind}: {entry}" if kind in _ONE_A_LINE else f"{_SEPARATOR}{entry}"


def render_ledger(chosen: Iterable[tuple[str, str]]) -> str:
    """Return entries as text: a line for each rule, fact, decision and error, and a line for each other kind."""
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
        # The line may be replaced, such as the open request, or dropped; what it names is then still known.
        ledger.add_all(finder.details(line.text, words_of(line.text), with_numbers=line.speaker != ERROR))
    elif line.speaker in KINDS:
        for entry in line.text.split(_SEPARATOR):
            ledger.add(line.speaker, entry)
    elif line.speaker != EARLIER:
        _note(ledger, finder, line, deadline)


def _note(ledger: Ledger, finder: DetailFinder, passage: Passage, deadline: Deadline) -> None:
    by_user = passage.speaker.startswith("User")
    by_tool = passage.speaker.startswith("Tool")
    is_pasted = is_document(len(passage.text), sum(phrase.rule == "demand" for phrase in passage.phrases))
    for phrase in deadline.over(passage.phrases):
        plain, kind = phrase.plain, phrase.rule
        revocation = revocation_of(plain, phrase.words) if by_user else None
        takes_back = revocation is not None and ledger.take_back(revocation)
        if takes_back or (kind is not None and (kind == "directive" or not is_pasted)):
            ledger.add(RULE, plain)
        elif phrase.is_error and (by_tool or _NAMED_ERROR.match(plain)):
            ledger.add(ERROR, shortened(plain, _ERROR_CHARS))
        elif by_user and (phrase.is_fact or is_labelled(plain)):
            ledger.add(FACT, plain)
        elif phrase.is_decision and not by_tool and not plain.endswith("?"):
            ledger.add(DECISION, plain)
        if details := finder.details(phrase.sentence, phrase.words, with_numbers=not by_tool):
            ledger.add_all(details)


def _note_call(ledger: Ledger, call: ToolCall) -> None:
    arguments: Mapping[str, object] = arguments_of(call) or {}
    for keys, kind in ((_COMMAND_KEYS, COMMANDS), (_PATH_KEYS, FILES)):
        for key in keys:
            value = arguments.get(key)
            if isinstance(value, str):
                ledger.add(kind, shortened(" ".join(value.split()), 160))
