"""The ledger: what must outlive every summary, found by rules and carried in the user's words.

Below ``hybrid``, which puts it in front of a model's narrative: only what is carried outside the prose
survives many rounds (FIELD.md, "Quality anchors"). Deterministic; the same messages give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from proxy.core.conversation.messages import Message, ToolCall
from proxy.summarizers.request import REQUEST, Request, request_of
from proxy.summarizers.signals import (
    is_decision,
    is_error,
    is_fact,
    is_labelled,
    is_rule,
    sentences,
    without_lead,
    words_of,
)
from proxy.summarizers.superseding import answer_language
from proxy.summarizers.transcript import EARLIER, Utterance, arguments_of, read_back, shortened, utterances

RULE, FACT, DECISION, ERROR = "Rule", "Fact", "Decision", "Error"
FILES, COMMANDS, LINKS, IDENTIFIERS, NUMBERS = "Files", "Commands", "Links", "Identifiers", "Numbers"
KINDS = (RULE, REQUEST, FACT, DECISION, ERROR, FILES, COMMANDS, IDENTIFIERS, LINKS, NUMBERS)
"""In the order in which they stand, and in which they are given up, the last first; the request is given up last."""
_ONE_A_LINE = frozenset({RULE, FACT, DECISION, ERROR, REQUEST})
_STANDING = frozenset({RULE, FACT})
"""Of these the oldest entries stay when there are too many; of all others the newest."""
_MOST = {RULE: 60, FACT: 60, DECISION: 24, ERROR: 8, FILES: 30, COMMANDS: 12, LINKS: 12}
_MOST |= {IDENTIFIERS: 24, NUMBERS: 24}
_ERROR_CHARS = 200
_SEPARATOR = "; "

_PATH = re.compile(
    r"(?<![\w/.:@-])(?:~/|/|\.{1,2}/)?(?:[\w.@+-]+/)+[\w.@+-]*\w"
    r"|\b[\w-]+\.(?:py|pyi|js|jsx|ts|tsx|rs|go|java|kt|c|h|cc|cpp|cs|rb|php|sh|sql|md|txt|json|ya?ml|toml|ini|cfg"
    r"|env|html|css|csv|lock|ipynb|pdf|docx?|xlsx?|log|tf|proto)\b"
)
_LINK = re.compile(r"\bhttps?://[^\s<>\"'`)\]]+[^\s<>\"'`)\].,;:!?]")
# Repetitions are bounded: of a text that fits halfway everywhere, an open one would cost its square.
_IDENTIFIER = re.compile(
    r"\b[A-Z][A-Z0-9]+-\d+\b|(?<!\w)#\d{1,9}\b|\b[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{0,64}\w"
    r"|\bv\d+(?:\.\d+)+\b|\b\d{1,9}(?:\.\d{1,9}){2,5}\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
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
_TELLING_CHARS = 3
"""A longer number tells something without a noun (a sum, a date, a time), and so does one with its unit (2h)."""


@dataclass(slots=True)
class Ledger:
    """Entries by kind, each kind in the order its entries came up, none twice."""

    entries: dict[str, dict[str, None]] = field(default_factory=lambda: {kind: {} for kind in KINDS})

    def add(self, kind: str, entry: str) -> None:
        """Note an entry; one that comes up again counts as new for the kinds that keep the newest."""
        entry = " ".join(entry.split())
        kept = self.entries[kind]
        if not entry:
            return
        if kind == REQUEST:
            kept.clear()
        elif kind == RULE and answer_language(entry):
            for older in [one for one in kept if answer_language(one)]:
                del kept[older]
        elif kind not in _STANDING:
            kept.pop(entry, None)
        kept[entry] = None

    def lines(self) -> Iterator[tuple[str, str]]:
        """Kind and entry, most important first."""
        for kind in sorted(KINDS, key=lambda kind: kind != REQUEST):
            found = list(self.entries[kind])
            most = _MOST.get(kind, 1)
            kept = found[:most] if kind in _STANDING else found[-most:]
            for entry in kept if kind in _STANDING else reversed(kept):
                yield kind, entry


def ledger_of(
    messages: Sequence[Message], previous: str, *, request_chars: int = 600, open_chars: int | None = None
) -> Ledger:
    """The ledger of an earlier summary, whatever strategy wrote it, gone on with over new messages.

    :param request_chars: most characters of the last request; of a longer one beginning and end are kept
    :param open_chars: the same while it has not been answered
    """
    ledger = Ledger()
    for utterance in read_back(previous):
        _take_back(ledger, utterance)
    for message in messages:
        for call in message.calls:
            _note_call(ledger, call)
    for utterance in utterances(messages):
        _note(ledger, utterance)
    request = request_of(messages) or next((Request(one, answered=False) for one in ledger.entries[REQUEST]), None)
    if request:
        ledger.add(REQUEST, request.within(request_chars, open_chars or request_chars))
    return ledger


def entry_text(kind: str, entry: str) -> str:
    """An entry as it adds to the rendered ledger, for counting."""
    return f"{kind}: {entry}" if kind in _ONE_A_LINE else f"{_SEPARATOR}{entry}"


def render_ledger(chosen: Iterable[tuple[str, str]]) -> str:
    """The chosen entries as text: a line for each rule, fact, decision and error, one for each other kind."""
    gathered: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for kind, entry in chosen:
        gathered[kind].append(entry)
    lines: list[str] = []
    for kind in KINDS:
        # Entries are offered newest first where the newest count; they are read in the order they came up.
        entries = gathered[kind] if kind in _STANDING else gathered[kind][::-1]
        if kind in _ONE_A_LINE:
            lines += [f"{kind}: {entry}" for entry in entries]
        elif entries:
            lines.append(f"{kind}: {_SEPARATOR.join(entries)}")
    return "\n".join(lines)


def _take_back(ledger: Ledger, utterance: Utterance) -> None:
    """A line of an earlier summary: the ledger's own as it stands, any other like something that was said."""
    if utterance.speaker in _ONE_A_LINE:
        ledger.add(utterance.speaker, utterance.text)
    elif utterance.speaker in KINDS:
        for entry in utterance.text.split(_SEPARATOR):
            ledger.add(utterance.speaker, entry)
    elif utterance.speaker != EARLIER:
        _note(ledger, utterance)


def _note(ledger: Ledger, utterance: Utterance) -> None:
    by_user = utterance.speaker.startswith("User")
    by_tool = utterance.speaker.startswith("Tool")
    for sentence in sentences(utterance.text):
        plain = without_lead(sentence)
        words = words_of(plain)
        if by_user and is_rule(plain, words):
            ledger.add(RULE, plain)
        elif (by_tool or _NAMED_ERROR.match(plain)) and is_error(plain, words):
            ledger.add(ERROR, shortened(plain, _ERROR_CHARS))
        elif by_user and (is_fact(plain, words) or is_labelled(plain)):
            ledger.add(FACT, plain)
        elif not by_tool and not plain.endswith("?") and is_decision(plain, words):
            ledger.add(DECISION, plain)
        _note_details(ledger, sentence, with_numbers=not by_tool)


def _note_details(ledger: Ledger, sentence: str, *, with_numbers: bool) -> None:
    for found in _COMMAND_LINE.finditer(sentence):
        ledger.add(COMMANDS, found[1].strip())
    for found in _LINK.finditer(sentence):
        ledger.add(LINKS, found[0])
    rest = _LINK.sub(" ", sentence)
    for found in _PATH.finditer(rest):
        ledger.add(FILES, found[0])
    for found in _IDENTIFIER.finditer(rest):
        ledger.add(IDENTIFIERS, found[0])
    if with_numbers:
        for found in _NUMBER.finditer(rest):
            number, *nouns = found[0].strip(".,").split()
            named = list(takewhile(lambda noun: noun.lower() not in _NO_NOUN, nouns))
            while named and named[-1].lower() == "of":
                named.pop()
            if named or len(number) > _TELLING_CHARS or not number[-1].isdigit():
                ledger.add(NUMBERS, " ".join([number, *named]))


def _note_call(ledger: Ledger, call: ToolCall) -> None:
    arguments: Mapping[str, object] = arguments_of(call) or {}
    for keys, kind in ((_COMMAND_KEYS, COMMANDS), (_PATH_KEYS, FILES)):
        for key in keys:
            value = arguments.get(key)
            if isinstance(value, str):
                ledger.add(kind, shortened(" ".join(value.split()), 160))
