"""The chain of the audit log: each entry is signed together with the signature before it.

``store/audit_log.py`` appends entries, and ``features/audit`` verifies them. Whoever can write to the store but has no
secret can forge no signature, so every change, gap, repetition and exchange of entries is found (ADR 0043). A cut tail
is found by the head, which is signed apart; a whole store that was set back, by a head that was noted elsewhere.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Literal

from .events import Audited, Role
from .frozen import frozen

SIGNATURE_BYTES = 32
NO_SIGNATURE = bytes(SIGNATURE_BYTES)
"""Stands before the first entry."""
TRIMMED = "audit.trimmed"
"""The action of an entry that names the last entry that was deleted for its age."""
HEAD_LOST = "audit.head_lost"
"""The action of an entry that names the head that a worker knew and the store had lost."""
MAX_FIELD = 300
"""Characters of a field of an entry; what is longer is cut."""
MAX_PROBLEMS = 100
"""Problems that are named; all are counted."""
_ROLES = frozenset({"operator", "auditor", "tenant"})
_KEY_ID_CHARACTERS = 16


@frozen
class ChainHead:
    """The newest entry, by its number and its signature."""

    number: int = 0
    signature: bytes = NO_SIGNATURE

    def __str__(self) -> str:
        return f"{self.number}:{self.signature.hex()}"


@frozen
class AuditEntry:
    """One entry."""

    number: int
    """Counted from 1, without gaps."""
    at: int
    """Unix time in milliseconds, by the clock of the worker."""
    worker: str
    key: str
    """Which secret signed it, as ``ChainKey.id``."""
    fact: Audited

    def plain(self) -> bytes:
        """Return the bytes that are signed."""
        values = [self.number, self.at, self.worker, self.key, *astuple(self.fact)]
        return json.dumps(values, separators=(",", ":")).encode()


@frozen
class StoredEntry:
    """An entry as the store has it."""

    place: str
    """Its id in the stream."""
    plain: bytes
    """Empty if it cannot be read."""
    signature: bytes


class ChainKey:
    """Signs entries and heads with a key that is derived from the server's secret.

    :param secret: the key of the process's HMACs, the same in all workers
    """

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"tidemark audit log\0", "sha256")
        self.id = hmac.digest(self._key, b"id\0", "sha256").hex()[:_KEY_ID_CHARACTERS]

    def __repr__(self) -> str:
        return f"ChainKey({self.id})"

    def sign(self, before: bytes, plain: bytes) -> bytes:
        """Return the signature of an entry that follows a signature."""
        return hmac.digest(self._key, b"entry\0" + before + plain, "sha256")

    def pack_head(self, head: ChainHead) -> bytes:
        """Return a head as the store has it, signed."""
        text = str(head).encode()
        return text + b":" + hmac.digest(self._key, b"head\0" + text, "sha256").hex().encode()

    def has_signed(self, packed: bytes) -> bool:
        """Return whether this key signed a head."""
        head = read_head(packed)
        return head is not None and hmac.compare_digest(self.pack_head(head), packed)


def read_head(packed: bytes) -> ChainHead | None:
    """Return a head of ``ChainKey.pack_head`` or of ``str``; None if it is none. Signatures are not looked at."""
    number, _, rest = packed.partition(b":")
    signature = rest.partition(b":")[0]
    if not number.isdigit() or len(number) > 15 or len(signature) != 2 * SIGNATURE_BYTES:
        return None
    try:
        return ChainHead(int(number), bytes.fromhex(signature.decode("ascii")))
    except ValueError:
        return None


def read_entry(plain: bytes) -> AuditEntry | None:
    """Return the entry that was signed as these bytes; None if they are no entry."""
    try:
        number, at, worker, key, *texts = json.loads(plain)
    except (ValueError, TypeError, RecursionError):
        return None
    if not (type(number) is int and type(at) is int and isinstance(worker, str) and isinstance(key, str)):
        return None
    if len(texts) != 6 or not all(isinstance(text, str) for text in texts) or texts[1] not in _ROLES:
        return None
    return AuditEntry(number, at, worker, key, Audited(*texts))


def bounded(fact: Audited) -> Audited:
    """Return a fact whose texts are no longer than an entry takes, and hold nothing that cannot be written."""
    role: Role = fact.role
    action, _, *others = (text.encode("utf-8", "replace").decode()[:MAX_FIELD] for text in astuple(fact))
    return Audited(action, role, *others)


ProblemKind = Literal["changed", "missing", "misplaced", "unreadable", "head", "other secret"]
"""``other secret``: entries that another secret signed, of which this one can say nothing."""


@frozen
class Problem:
    """What is wrong at one entry."""

    number: int
    kind: ProblemKind
    detail: str


@frozen
class Verdict:
    """What an examination of the whole log says."""

    entries: int
    first: int
    """The number of the first entry; 0 if there is none."""
    head: ChainHead
    """The newest entry, by the entries themselves."""
    problems: tuple[Problem, ...]
    problem_count: int

    @property
    def is_whole(self) -> bool:
        """Whether every entry is as it was written, and none is missing."""
        return not self.problem_count


class ChainExamination:
    """Examines the entries of a log one after another. Mutable: how far it is, and what it has noticed.

    :param keys: those of all secrets that may have signed entries
    """

    def __init__(self, keys: Sequence[ChainKey]) -> None:
        self._keys: Mapping[str, ChainKey] = {key.id: key for key in keys}
        self._count = 0
        self._first: StoredEntry | None = None
        self._first_number = 0
        self._last = ChainHead()
        self._anchors: dict[int, bytes] = {}
        self._noted: dict[int, bytes] = {}
        self._problems: list[Problem] = []
        self._problem_count = 0

    def take(self, stored: StoredEntry, *, noted: int = 0) -> None:
        """Examine the next entry.

        :param noted: the number of an entry whose signature is compared at the end
        """
        self._count += 1
        entry = read_entry(stored.plain)
        if entry is None or len(stored.signature) != SIGNATURE_BYTES:
            self._note(self._last.number + 1, "unreadable", f"the entry at {stored.place[:40]} cannot be read")
            self._last = ChainHead(self._last.number + 1, stored.signature)
            return
        self._examine(entry, stored)
        if entry.number == noted:
            self._noted[noted] = stored.signature
        self._last = ChainHead(entry.number, stored.signature)

    def _examine(self, entry: AuditEntry, stored: StoredEntry) -> None:
        number, expected = entry.number, self._last.number + 1
        if stored.place != f"{number}-0":
            self._note(number, "misplaced", f"it stands at {stored.place[:40]}")
        key = self._keys.get(entry.key)
        if key is None:
            self._note(number, "other secret", "another secret signed it: give that one to verify it")
        if self._count == 1 and number > 1:
            self._first = stored
        elif self._count > 1 and number != expected:
            kind: ProblemKind = "missing" if number > expected else "misplaced"
            self._note(number, kind, f"it follows entry {expected - 1}")
        elif key is not None and key.sign(self._last.signature, stored.plain) != stored.signature:
            self._note(number, "changed", "its signature is another one")
        if self._count == 1:
            self._first_number = number
        if key is not None and entry.fact.action == TRIMMED:
            anchor = read_head(entry.fact.subject.encode())
            if anchor is not None:
                self._anchors[anchor.number] = anchor.signature
        if key is not None and entry.fact.action == HEAD_LOST:
            self._note(number, "head", f"entries before it may be missing: the head was {entry.fact.subject[:90]}")

    def end(self, packed_head: bytes, noted: ChainHead | None = None) -> Verdict:
        """Compare the end with the head, and the beginning with the newest note of what was trimmed.

        :param packed_head: as the store has it; empty if it has none
        :param noted: a head that somebody noted before; ``take`` was given its number
        """
        if self._first is not None:
            self._examine_beginning(self._first)
        head = read_head(packed_head)
        if packed_head or self._count:
            if head is None or not any(key.has_signed(packed_head) for key in self._keys.values()):
                self._note(self._last.number, "head", "the head is missing or was not signed by this secret")
            elif head != self._last:
                self._note(self._last.number, "head", f"the head is entry {head.number}: the end was cut or exchanged")
        if noted is not None:
            self._compare(noted)
        problems = tuple(self._problems)
        return Verdict(self._count, self._first_number, self._last, problems, self._problem_count)

    def _examine_beginning(self, first: StoredEntry) -> None:
        """Verify the first entry by the note of what was deleted before it."""
        entry = read_entry(first.plain)
        before = None if entry is None else self._anchors.get(entry.number - 1)
        if entry is None or before is None:
            self._note(self._first_number, "missing", "no entry says that those before it were deleted for their age")
        elif (key := self._keys.get(entry.key)) and key.sign(before, first.plain) != first.signature:
            self._note(entry.number, "changed", "its signature is another one")

    def _compare(self, noted: ChainHead) -> None:
        signature = self._noted.get(noted.number, self._anchors.get(noted.number))
        if noted.number and signature is None:
            self._note(noted.number, "missing", "the noted head is no entry of this log")
        elif noted.number and signature != noted.signature:
            self._note(noted.number, "changed", "the noted head has another signature")

    def _note(self, number: int, kind: ProblemKind, detail: str) -> None:
        self._problem_count += 1
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(number, kind, detail))
