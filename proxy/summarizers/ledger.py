"""Collects the ledger: what must outlive every summary, recognized by rules and carried in the user's words.

``hybrid`` puts it before a model's narrative, because only entries outside the prose survive many rounds. It is
deterministic: the same messages give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from proxy.core.conversation.messages import Message, ToolCall
from proxy.summarizers.deadline import UNBOUNDED, Deadline
from proxy.summarizers.request import REQUEST, Request, request_of
from proxy.summarizers.signals import (
    is_decision,
    is_document,
    is_error,
    is_fact,
    is_labelled,
    rule_kind,
    sentences,
    without_lead,
    words_of,
)
from proxy.summarizers.superseding import answer_language
from proxy.summarizers.transcript import EARLIER, Utterance, arguments_of, read_back, shortened, utterances

RULE, FACT, DECISION, ERROR = "Rule", "Fact", "Decision", "Error"
FILES, COMMANDS, LINKS, IDENTIFIERS, NUMBERS = "Files", "Commands", "Links", "Identifiers", "Numbers"
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

_PATH = re.compile(
    r"(?<![\w/.:@-])(?:~/|/|\.{1,2}/)?(?:[\w.@+-]+/)+[\w.@+-]*\w"
    r"|\b[\w-]+\.(?:py|pyi|js|jsx|ts|tsx|rs|go|java|kt|c|h|cc|cpp|cs|rb|php|sh|sql|md|txt|json|ya?ml|toml|ini|cfg"
    r"|env|html|css|csv|lock|ipynb|pdf|docx?|xlsx?|log|tf|proto)\b"
)
_LINK = re.compile(r"\bhttps?://[^\s<>\"'`)\]]+[^\s<>\"'`)\].,;:!?]")
# Repetitions are bounded: without a bound, a text that matches halfway everywhere would take quadratic time.
_IDENTIFIER = re.compile(
    r"\b[A-Z][A-Z0-9]+-\d+\b|(?<!\w)#\d{1,9}\b|\b[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{0,64}\w"
    r"|\bv\d+(?:\.\d+)+\b|\b\d{1,9}(?:\.\d{1,9}){2,5}\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
_DIGIT = re.compile(r"\d")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_UNITS = "ms|s|h|min|kb|mb|gb|tb|kib|mib|gib|hz|khz|mhz|ghz|kg|km|cm|mm|px|eur|usd"
_NUMBERED = "port|page|line|section|chapter|step|phase|room|floor|gate|row|level|build|release|version|order|invoice"
_NUMBER = re.compile(
    r"[$€£]\s?\d[\d.,]{0,20}\d?(?:\s?(?:k|m|bn|million|billion)\b)?"
    r"|\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}:\d{2}\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s)?(?:{_MONTHS})(?:,?\s\d{{4}})?|\b(?:{_MONTHS})\s\d{{1,2}}(?:,?\s\d{{4}})?"
    rf"|\b(?:{_NUMBERED})\s\d[\w.-]{{0,20}}\b"
    rf"|\b\d[\d.,]{{0,20}}(?:[kx]\b|\s?%|\s?(?:{_UNITS})\b)(?:\s(?:of\s)?[a-z]{{3,20}}\b){{0,2}}"
    r"|\b\d[\d.,]{0,20}(?:\s[a-z]{3,20}\b){1,2}",
    re.IGNORECASE,
)
_NUMBER_START = re.compile(r"[$€£]|\b\d|\b[A-Za-z]{3,9}(?=\s\d)")
"""Where ``_NUMBER`` may begin. It is tried there only, since its many alternatives are slow at every other place."""
_PROGRAMS = (
    "git|pip3?|uv|npm|npx|pnpm|yarn|make|docker|kubectl|helm|terraform|python3?|pytest|cargo|go|curl|wget|ssh|scp"
    "|psql|redis-cli|systemctl|apt(?:-get)?|brew|ls|cd|rm|cp|mv|mkdir|grep|sed|cat|chmod|bash|sh|node|ruff|mypy|gh"
    "|aws|gcloud|az"
)
_COMMAND_LINE = re.compile(rf"(?:^\s*\$\s+|`)((?:sudo |\w+=\S+ )*(?:{_PROGRAMS})\b[^`\n]{{0,160}})")
_NAMED_ERROR = re.compile(r"(?:[\w.]*(?:Error|Exception)|fatal|error|panic)\b\s?:")
_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEYS = ("path", "file_path", "filepath", "filename", "file", "target_file")
_NO_NOUN_TEXT = """
and the for was were are but with from that then than not you has have had did does will would can could should
after before until into onto over under per which who when while where because once again also only just
within each every out left says said came went takes took needs closes fixes than both
"""
_NO_NOUN = frozenset(_NO_NOUN_TEXT.split())
_MAX_PART_CHARS = 64
"""The longest part of a path between two slashes; one of base64 is longer, or has a plus."""
_INFORMATIVE_CHARS = 3
"""A number with more characters is informative without a noun (a sum, a date, a time). So is one with its unit (2h)."""


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
    deadline: Deadline = UNBOUNDED,
) -> Ledger:
    """Return the ledger of an earlier summary, of any strategy, continued with new messages.

    :param request_chars: the most characters of the last request; a longer one keeps its beginning and its end
    :param open_chars: the same while the request has no answer
    :raises SummaryOverdue: the deadline has passed
    """
    ledger = Ledger()
    for utterance in read_back(previous):
        _add_line(ledger, utterance, deadline)
    for message in deadline.over(messages):
        for call in message.calls:
            _note_call(ledger, call)
    for utterance in utterances(messages):
        _note(ledger, utterance, deadline)
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


def _add_line(ledger: Ledger, utterance: Utterance, deadline: Deadline) -> None:
    """Add a line of an earlier summary. The ledger's own line as it is, any other like a text of its speaker."""
    if utterance.speaker in _ONE_A_LINE:
        ledger.add(utterance.speaker, utterance.text)
        # The line may be replaced, such as the open request, or dropped; what it names is then still known.
        _note_details(ledger, utterance.text, with_numbers=utterance.speaker != ERROR)
    elif utterance.speaker in KINDS:
        for entry in utterance.text.split(_SEPARATOR):
            ledger.add(utterance.speaker, entry)
    elif utterance.speaker != EARLIER:
        _note(ledger, utterance, deadline)


def _note(ledger: Ledger, utterance: Utterance, deadline: Deadline) -> None:
    by_user = utterance.speaker.startswith("User")
    by_tool = utterance.speaker.startswith("Tool")
    parts = deadline.over(sentences(utterance.text))
    phrases = [(sentence, plain := without_lead(sentence), words_of(plain)) for sentence in parts]
    kinds = [rule_kind(plain, words) if by_user else None for _, plain, words in phrases]
    is_pasted = is_document(len(utterance.text), kinds.count("demand"))
    for (sentence, plain, words), kind in deadline.over(zip(phrases, kinds, strict=True)):
        if kind == "directive" or (kind == "demand" and not is_pasted):
            ledger.add(RULE, plain)
        elif (by_tool or _NAMED_ERROR.match(plain)) and is_error(plain, words):
            ledger.add(ERROR, shortened(plain, _ERROR_CHARS))
        elif by_user and (is_fact(plain, words) or is_labelled(plain)):
            ledger.add(FACT, plain)
        elif not by_tool and not plain.endswith("?") and is_decision(plain, words):
            ledger.add(DECISION, plain)
        _note_details(ledger, sentence, with_numbers=not by_tool)


# Each pattern is matched only where the sentence has a character that it needs; most have none.
def _note_details(ledger: Ledger, sentence: str, *, with_numbers: bool) -> None:
    if "`" in sentence or "$" in sentence:
        for match in _COMMAND_LINE.finditer(sentence):
            ledger.add(COMMANDS, match[1].strip())
    rest = sentence
    if "http" in sentence:
        for match in _LINK.finditer(sentence):
            ledger.add(LINKS, match[0])
        rest = _LINK.sub(" ", sentence)
    for word in rest.split():
        if not word.isalpha():
            _note_word(ledger, word)
    if with_numbers and _DIGIT.search(rest):
        _note_numbers(ledger, rest)


def _note_word(ledger: Ledger, word: str) -> None:
    """Add the paths and identifiers of a word; neither has a space."""
    if "/" in word or "." in word[:-1]:
        for match in _PATH.finditer(word):
            if not _is_encoded(match[0]):
                ledger.add(FILES, match[0])
    if "@" in word or _DIGIT.search(word):
        for match in _IDENTIFIER.finditer(word):
            ledger.add(IDENTIFIERS, match[0])


def _is_encoded(path: str) -> bool:
    """Return whether a path is a piece of base64, whose alphabet has a slash."""
    return any(len(part) > _MAX_PART_CHARS or ("+" in part and "++" not in part) for part in path.split("/"))


def _numbers(sentence: str) -> Iterator[str]:
    """Yield what ``_NUMBER`` finds in a sentence."""
    place = 0
    while start := _NUMBER_START.search(sentence, place):
        match = _NUMBER.match(sentence, start.start())
        if match:
            yield match[0]
        place = match.end() if match else start.start() + 1


def _note_numbers(ledger: Ledger, sentence: str) -> None:
    for text in _numbers(sentence):
        number, *words = text.strip(".,").split()
        nouns = list(takewhile(lambda word: word.lower() not in _NO_NOUN, words))
        while nouns and nouns[-1].lower() == "of":
            nouns.pop()
        if nouns or len(number) > _INFORMATIVE_CHARS or not number[-1].isdigit():
            ledger.add(NUMBERS, " ".join([number, *nouns]))


def _note_call(ledger: Ledger, call: ToolCall) -> None:
    arguments: Mapping[str, object] = arguments_of(call) or {}
    for keys, kind in ((_COMMAND_KEYS, COMMANDS), (_PATH_KEYS, FILES)):
        for key in keys:
            value = arguments.get(key)
            if isinstance(value, str):
                ledger.add(kind, shortened(" ".join(value.split()), 160))
