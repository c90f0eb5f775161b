"""The chain of the audit log: whatever is changed, left out, repeated, exchanged or added is found."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.audit_chain import (
    HEAD_LOST,
    MAX_FIELD,
    TRIMMED,
    AuditEntry,
    ChainExamination,
    ChainHead,
    ChainKey,
    StoredEntry,
    Verdict,
    bounded,
    read_entry,
    read_head,
)
from tidemark.core.events import Audited

KEY, OTHER = ChainKey(b"the server's secret"), ChainKey(b"another secret")
CASES = 10_000
TEXTS = st.text(max_size=20)
FACTS = st.builds(
    Audited, action=TEXTS, role=st.sampled_from(["operator", "auditor", "tenant"]), actor=TEXTS, tenant=TEXTS
)


@dataclass
class Log:
    """A log as a store has it."""

    entries: list[StoredEntry] = field(default_factory=list)
    head: ChainHead = field(default_factory=ChainHead)
    packed: bytes = b""

    def add(self, fact: Audited, key: ChainKey = KEY) -> None:
        """Append an entry as the writer does."""
        number = self.head.number + 1
        plain = AuditEntry(number, 1_700_000_000_000 + number, "w1", key.id, fact).plain()
        self.head = ChainHead(number, key.sign(self.head.signature, plain))
        self.packed = key.pack_head(self.head)
        self.entries.append(StoredEntry(f"{number}-0", plain, self.head.signature))

    def verdict(self, keys: Sequence[ChainKey] = (KEY,), noted: ChainHead | None = None) -> Verdict:
        """Examine it."""
        examination = ChainExamination(keys)
        for entry in self.entries:
            examination.take(entry, noted=noted.number if noted else 0)
        return examination.end(self.packed, noted)


def log_of(count: int) -> Log:
    """A log of entries that are much alike."""
    log = Log()
    for number in range(count):
        log.add(Audited("conversation.read", "operator", "alice", "t" * 8, f"{number % 3:048x}", "127.0.0.1"))
    return log


def flipped(data: bytes, chance: random.Random) -> bytes:
    """The same bytes with one bit changed."""
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def tampered(log: Log, chance: random.Random) -> str:  # noqa: C901 - one case for each thing
    """Do one thing to a log that somebody without the secret can do, and name it."""
    entries, place = log.entries, chance.randrange(len(log.entries))
    other = chance.randrange(len(entries))
    match kind := chance.choice(
        ["text", "signature", "place", "head", "cut", "drop", "repeat", "swap", "forge", "copy"]
    ):
        case "text":
            entries[place] = replace(entries[place], plain=flipped(entries[place].plain, chance))
        case "signature":
            entries[place] = replace(entries[place], signature=flipped(entries[place].signature, chance))
        case "place":
            entries[place] = replace(entries[place], place=f"{place + 1}-1")
        case "head":
            log.packed = flipped(log.packed, chance)
        case "cut":
            del entries[place:]
            if entries and chance.random() < 0.5:  # with a head made of what the store shows
                log.packed = str(ChainHead(len(entries), entries[-1].signature)).encode() + log.packed[-65:]
        case "drop":
            del entries[place]
        case "repeat":
            entries.insert(other, entries[place])
        case "swap" if place != other:
            entries[place], entries[other] = entries[other], entries[place]
        case "copy" if place != other:
            entries[place] = replace(entries[other], place=entries[place].place)
        case _:
            number = len(entries) + 1
            plain = AuditEntry(number, 5, "w1", KEY.id, Audited("settings.change", "operator")).plain()
            entries.append(StoredEntry(f"{number}-0", plain, OTHER.sign(log.head.signature, plain)))
    return kind


@pytest.mark.random
def test_every_tampering_of_ten_thousand_is_found() -> None:
    """One byte or entry of a log of up to twelve, by somebody who has no secret."""
    chance, kinds = random.Random(8), dict[str, int]()
    for _ in range(CASES):
        log = log_of(chance.randrange(1, 13))
        assert log.verdict().is_whole
        kind = tampered(log, chance)
        kinds[kind] = kinds.get(kind, 0) + 1
        assert not log.verdict().is_whole, kind
    assert min(kinds.values()) > CASES / 20


@given(st.lists(FACTS, max_size=8))
def test_an_untouched_log_is_whole_whatever_it_says(facts: list[Audited]) -> None:
    """Any text may stand in an entry, and it is read as it was written."""
    log = Log()
    for fact in facts:
        log.add(bounded(fact))
    verdict = log.verdict()
    assert (verdict.is_whole, verdict.entries, verdict.head) == (True, len(facts), log.head)
    entries = [read_entry(entry.plain) for entry in log.entries]
    assert [entry.fact for entry in entries if entry] == list(map(bounded, facts))


@given(st.integers(1, 9), st.integers(0, 8))
def test_what_was_deleted_for_its_age_is_no_gap(count: int, removed: int) -> None:
    """The entry that says so has the signature by which the first one that stays is verified."""
    log = log_of(count)
    removed = min(removed, count - 1)
    if removed:
        log.add(Audited(TRIMMED, "operator", subject=str(ChainHead(removed, log.entries[removed - 1].signature))))
        before = log.entries[removed - 1]
        del log.entries[:removed]
        assert log.verdict(noted=ChainHead(removed, before.signature)).is_whole
        assert log.verdict().first == removed + 1
    assert log.verdict().is_whole
    if len(log.entries) > 1:
        del log.entries[0]
        assert not log.verdict().is_whole


def test_a_store_that_was_set_back_as_a_whole_is_found_by_a_noted_head_alone() -> None:
    """Its own head is set back with it."""
    old = log_of(4)
    new = log_of(4)
    new.add(Audited("settings.change", "operator"))
    assert old.verdict().is_whole
    assert not old.verdict(noted=new.head).is_whole
    assert new.verdict(noted=old.head).is_whole
    forged = replace(old.head, signature=bytes(32))
    assert not new.verdict(noted=forged).is_whole


def test_entries_of_another_secret_are_verified_by_that_secret() -> None:
    """A new secret goes on with the chain of the old one."""
    log = log_of(3)
    log.add(Audited("settings.change", "operator"), OTHER)
    assert {problem.kind for problem in log.verdict([OTHER]).problems} == {"other secret"}
    assert log.verdict([KEY, OTHER]).is_whole
    assert not log.verdict([KEY]).is_whole


def test_a_head_that_was_lost_stays_a_problem() -> None:
    """Nobody can say by the store alone what stood before the entry that notes it."""
    log = log_of(2)
    log.add(Audited(HEAD_LOST, "operator", subject=f"9:{'ab' * 32}"))
    assert [problem.kind for problem in log.verdict().problems] == ["head"]


def test_an_emptied_log_with_its_head_is_found() -> None:
    """The entries are gone and the head is not."""
    log = log_of(2)
    log.entries.clear()
    assert not log.verdict().is_whole
    assert Log().verdict().is_whole
    assert not Log().verdict(noted=log.head).is_whole


@pytest.mark.parametrize("plain", [b"", b"{}", b"[]", b"7", b'"abcdefghij"', b"[" * 100_000, b"\xff", b"[1,2,3,4]"])
def test_what_is_no_entry_is_read_as_none(plain: bytes) -> None:
    """Of any form; the log has a problem there."""
    assert read_entry(plain) is None
    log = log_of(2)
    log.entries[1] = replace(log.entries[1], plain=plain)
    assert "unreadable" in {problem.kind for problem in log.verdict().problems}


@given(st.binary(max_size=120))
def test_what_is_no_head_is_read_as_none_or_as_what_it_says(packed: bytes) -> None:
    """No bytes raise an error."""
    head = read_head(packed)
    assert head is None or len(head.signature) == 32


def test_long_texts_are_cut() -> None:
    """So that no entry can fill the store."""
    fact = bounded(Audited("x" * 1000, "tenant", subject="\ud83d" * 1000))
    assert (len(fact.action), len(fact.subject)) == (MAX_FIELD, MAX_FIELD)
