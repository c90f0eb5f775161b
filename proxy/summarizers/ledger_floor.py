"""Completes a model's summary, so that it keeps no less of the ledger than ``extractive`` does within the same bound.

``compaction/writer.py`` asks for it through its comparison port, after the narrative was checked. Entries that the
text lacks are put before the narrative, which gives way where the bound requires it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from proxy.core.conversation.messages import Message
from proxy.core.ports import TextBound
from proxy.core.reading import Reading
from proxy.summarizers.compared_text import ComparedText
from proxy.summarizers.deadline import UNBOUNDED, Deadline
from proxy.summarizers.details import IDENTIFIERS, NUMBERS
from proxy.summarizers.ledger import DECISION, ERROR, FACT, KINDS, RULE, Ledger, ledger_of, render_ledger
from proxy.summarizers.ledger_survival import ledger_details
from proxy.summarizers.request import REQUEST
from proxy.summarizers.transcript import NARRATIVE

Entry = tuple[str, str]
"""The kind of a ledger's entry, and its text."""
_SENTENCES = frozenset({RULE, REQUEST, FACT, DECISION, ERROR})
_STATED = frozenset({IDENTIFIERS, NUMBERS})
"""Kinds that are not listed where a sentence of the ledger has them; paths of files are always listed (S2-H2)."""
_CARRIED = frozenset({RULE, REQUEST, DECISION, IDENTIFIERS, NUMBERS})
"""Kinds of which a model's summary has all that ``floor`` has. The others share the rest of the bound."""
_SHARE = 0.5
"""The share of the bound up to which the ledger has further entries, before the narrative has any."""
_STATEMENT_END = re.compile(r"(?<=[.!?])[ ]+|(?<=[。！？])|\n")


def completed_summary(  # noqa: PLR0917 - a text, what it stands for, and what it is measured by
    messages: Sequence[Message],
    previous: str,
    text: str,
    floor: str,
    bound: TextBound,
    deadline: Deadline = UNBOUNDED,
    *,
    reading: Reading | None = None,
) -> str:
    """Return a summary that keeps all of the ledger that ``floor`` keeps.

    :param floor: what ``extractive`` wrote for the same messages and bound; it is the result where nothing else fits
    :param reading: what was read before of the same texts
    :raises SummaryOverdue: the deadline has passed
    """
    ledger = ledger_of(messages, previous, reading=reading, deadline=deadline)
    wanted = [entry for entry in _entries_in(ledger, floor, deadline) if entry[0] in _CARRIED]
    before, mark, prose = f"\n{text}\n".partition(f"\n{NARRATIVE}\n")
    before, prose = (before.strip(), prose.strip()) if mark else ("", text)
    own = _all_entries(ledger_of((), before)) + _entries_in(ledger, previous, deadline)
    wanted, own = _with_one_request(wanted, own, _entries_in(ledger, before, deadline))
    required = set(wanted)
    wanted = _without_stated(wanted, ledger, deadline)
    others = [entry for entry in dict.fromkeys(own) if entry not in required]
    others = [entry for entry in _without_stated([*wanted, *others], ledger, deadline) if entry not in required]
    if not (wanted or others):
        return text
    if not bound.has_room(_joined(wanted, "")):
        return floor
    count = _most(len(others), lambda number: bound.has_room(_joined([*wanted, *others[:number]], ""), _SHARE))
    entries = [*wanted, *others[:count]]
    if bound.has_room(whole := _joined(entries, prose)):
        return whole
    ends = [0, *(match.start() for match in _STATEMENT_END.finditer(prose))]
    last = _most(len(ends) - 1, lambda place: bound.has_room(_joined(entries, prose[: ends[place]])))
    return _joined(entries, prose[: ends[last]])


def _with_one_request(
    wanted: Sequence[Entry], own: Sequence[Entry], present: Sequence[Entry]
) -> tuple[list[Entry], list[Entry]]:
    """Return wanted and own entries with one open request: the strategy's own, where it has most of it."""
    requests = [entry for entry in own if entry[0] == REQUEST][:1]
    is_own = bool(requests) and any(kind == REQUEST for kind, _ in present)
    chosen = requests if is_own else [entry for entry in wanted if entry[0] == REQUEST]
    rest = [entry for entry in wanted if entry[0] != REQUEST]
    return [*chosen, *rest], [entry for entry in own if entry[0] != REQUEST]


def _without_stated(entries: Sequence[Entry], ledger: Ledger, deadline: Deadline) -> list[Entry]:
    """Return entries without numbers and identifiers that stand in a sentence of the others."""
    whole = [entry for entry in entries if entry[0] in _SENTENCES]
    stated = set(_entries_in(ledger, _joined(whole, ""), deadline))
    others = [entry for entry in entries if entry[0] not in _SENTENCES]
    return [*whole, *(entry for entry in others if entry[0] not in _STATED or entry not in stated)]


def _entries_in(ledger: Ledger, text: str, deadline: Deadline) -> list[Entry]:
    """Return the entries that a text still has, whole or shortened."""
    details = ledger_details(ledger, ComparedText(text), deadline)
    return [(kind, detail.text) for kind, detail in details if detail.survival != "dropped"]


def _all_entries(ledger: Ledger) -> list[Entry]:
    return [(kind, entry) for kind in KINDS for entry in ledger.entries[kind]]


def _joined(entries: Sequence[Entry], prose: str) -> str:
    standing = [entry for entry in entries if entry[0] in (RULE, FACT)]
    newest_first = [entry for entry in reversed(entries) if entry[0] not in (RULE, FACT)]
    lines = render_ledger([*standing, *newest_first])
    return f"{lines}\n{NARRATIVE}\n{prose.strip()}" if prose.strip() else lines


def _most(limit: int, is_possible: Callable[[int], bool]) -> int:
    """Return the largest number up to a limit that is possible, where each smaller one is."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_possible(middle) else (low, middle - 1)
    return low
