"""Packs what the store holds into bytes, and unpacks it again.

All adapters of this package share the one ``Codec`` of the process (``worker/stored.py``): a cipher seals all stored
text or none. A record is one version byte and msgpack in array form. A field may be added at the end, with a
default: old records are still read, and old programs ignore it. Anything else is a new version.

Sealed, which means given to the cipher as a whole:

* messages, system messages, summaries, turns after their digest, and answers that are kept to be given again
* the client's name of a conversation, and the models' names in its record
* settings and observations of models, learned windows, calibrations
* bodies of flushes, the reasons of dead letters, and notes of flushes that are about to happen

Not sealed, because Lua scripts, Redis itself or another worker must read it:

* keys and fields of hashes: ids, hashes of prefixes, digests of system messages and names, ``provider:model``
* references to summaries, leases, and the digest by which a repeated turn is recognized: hashes and numbers
* numbers and times of a conversation's record, its tenant and its owner, which are HMACs of a credential
* of a flush its key, tenant, conversation, time and consumer; all counters, lists of ids and versions
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from tidemark.codings.compression import compress, decompress
from tidemark.core.conversation.messages import DIGEST_BYTES, Message, digest_of
from tidemark.core.conversation.native import NativeForm
from tidemark.core.conversation.records import MessageRecord, TurnRecord
from tidemark.core.conversation.summary import Cause, Maker, MaskedResults, PrefixSummary, Strategy, SummaryRecipe
from tidemark.core.errors import RecordUnreadable
from tidemark.core.receipt import DetailKind, KindCount, Receipt
from tidemark.store.turn_parts import PlacedSystem

T = TypeVar("T")

VERSION, MASKED_VERSION = b"\x01", b"\x02"
MOVED = b"\x00moved aside"
"""Stands in the place of a message or a turn that was moved aside. No version reads it as a record."""


class Cipher(Protocol):
    """Changes bytes so that only its own ``open`` can read them; called in threads too."""

    def seal(self, plain: bytes) -> bytes:
        """Return the bytes to store; equal input may give different output."""
        ...

    def open(self, sealed: bytes) -> bytes:
        """Return the bytes that were sealed.

        :raises RecordUnreadable: they were changed since, or sealed by another cipher
        """
        ...


class _Message(msgspec.Struct, array_like=True, frozen=True):
    tokens: int
    created_at: float
    raw: bytes
    scheme: str = ""


class _Summary(msgspec.Struct, array_like=True, frozen=True):
    prefix: bytes
    covered: int
    text: str
    strategy: Strategy
    template: str
    version: int
    model: str
    made_by: Maker
    cause: Cause
    created_at: float
    previous: bytes | None
    tokens: int
    absorbed: tuple[bytes, ...] = ()
    edited: bool = False
    written_with: str = ""
    receipt: tuple[tuple[DetailKind, int, int, int], ...] = ()
    """Each kind with its total, and how many are kept and shortened."""
    first_question: int = 0
    stated: str = ""
    model_text: tuple[tuple[DetailKind, int, int, int, tuple[str, ...]], ...] = ()
    """The counts of the receipt that earlier versions cannot read, whole: ``statements``, and what nobody said."""
    native: tuple[str, str, tuple[bytes, ...], int, bytes] | None = None
    """The fields of ``NativeForm``, in their order."""
    chosen: bool = False
    masked: _Masked | None = None
    results: tuple[str, ...] = ()


class _Masked(msgspec.Struct, array_like=True, frozen=True):
    base: _Summary | None
    lines: tuple[tuple[int, str], ...]


class TurnEntry(msgspec.Struct, array_like=True, frozen=True):
    """One turn as the store returns it: an entry of the conversation's audit trail."""

    created_at: float
    first: int
    """Position of the first message that the turn added; ``last + 1`` when it added none."""
    last: int
    """Position of the last message that the turn covered."""
    systems: list[tuple[int, bytes]]
    """The system messages at the beginning and those that were new. Each has the number of messages before it, and its
    digest, by which ``RedisStore.system_messages`` returns it."""
    model: str
    action: str
    tokens_before: int
    tokens_after: int
    summarized: int
    usage: dict[str, object]
    complete: bool
    beyond: int = 0
    """How many messages after ``last`` the turn covered that a fork does not have. Set for a fork's parents only, and
    never stored."""
    max_output_tokens: int = 0
    """The longest reply that the request asked for; 0 if it named none, and in records of before."""


MAX_NUMBER = 2**53
"""A larger number of tokens that a client names is stored as this one."""
_pack = msgspec.msgpack.Encoder().encode
_MESSAGE = msgspec.msgpack.Decoder(_Message)
_SUMMARY = msgspec.msgpack.Decoder(_Summary)
_TURN = msgspec.msgpack.Decoder(TurnEntry)


def is_object(raw: bytes) -> bool:
    """Return whether bytes are a JSON object, which a message is in every dialect."""
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


class Codec:
    """Packs and unpacks every stored value; its state is its cipher, and whether it compresses.

    Without a cipher, ``seal``, ``open`` and their forms for text are the built-in ``bytes`` and ``str``: these return
    their argument, in a tenth of the time of a method.

    :param cipher: seals all stored text; None stores it as it is
    :param is_message: whether stored bytes are a message of any dialect; an unreadable record is reported if not
    :param compress_messages: compress long messages; compressed ones are read in any case
    """

    def __init__(
        self,
        cipher: Cipher | None = None,
        *,
        is_message: Callable[[bytes], bool] = is_object,
        compress_messages: bool = True,
    ) -> None:
        self._cipher = cipher
        self._is_message = is_message
        self.compress_messages(enabled=compress_messages)
        self.seal: Callable[[bytes], bytes] = bytes if cipher is None else cipher.seal
        """Return the bytes to store."""
        self.open: Callable[[bytes], bytes] = bytes if cipher is None else cipher.open
        """Return the bytes that were sealed; raises ``RecordUnreadable``."""
        self.seal_text: Callable[[str], str] = str if cipher is None else self._seal_text
        """Return the text to store, for scripts that take no bytes; an empty text stays empty, which they ask for."""
        self.open_text: Callable[[str], str] = str if cipher is None else self._open_text
        """Return the text that was sealed; raises ``RecordUnreadable``."""

    def compress_messages(self, *, enabled: bool) -> None:
        """Compress long messages from now on, or leave them as they are; compressed ones are read in any case."""
        self._compress: Callable[[bytes], bytes] = compress if enabled else bytes

    def pack_message(self, message: Message, tokens: int, created_at: float, scheme: str = "") -> bytes:
        """Pack one entry of a conversation's list of messages; its chain hash stands in the list of hashes."""
        packed = VERSION + _pack((tokens, created_at, self._compress(message.raw), scheme))  # _Message's fields
        return packed if self._cipher is None else self.seal(packed)

    def unpack_message(self, packed: bytes, position: int, chain_hash: bytes) -> MessageRecord:
        """Return the message at ``position``.

        :raises RecordUnreadable: another version wrote it, or its bytes have changed since
        """
        record = self._read(_MESSAGE, packed)
        try:
            raw = decompress(record.raw)
        except ValueError as error:
            raise unreadable(str(error)) from error
        if not self._is_message(raw):
            raise unreadable("its bytes are no message")
        return MessageRecord(position, chain_hash.hex(), raw, record.tokens, record.created_at, record.scheme)

    def readable_message(self, packed: bytes, position: int, chain_hash: bytes) -> MessageRecord:
        """Return the message; an unreadable one has no bytes, and its ``unreadable`` says why."""
        try:
            return self.unpack_message(packed, position, chain_hash)
        except RecordUnreadable as error:
            return MessageRecord(position, chain_hash.hex(), b"", 0, 0.0, unreadable=error.internal)

    def pack_turn(self, turn: TurnRecord, skip: int, systems: Sequence[PlacedSystem]) -> bytes:
        """Pack one entry of a conversation's list of turns: a digest that shows a repetition, then the record.

        :param skip: how many leading messages were stored before
        """
        identity = (turn.created_at, turn.model, turn.action, turn.complete, turn.tokens_before, turn.tokens_after)
        record = VERSION + _pack(
            (  # the fields of TurnEntry, in their order
                turn.created_at,
                skip + 1,
                len(turn.chain.hashes),
                [(system.position, system.digest) for system in systems],
                turn.model,
                turn.action,
                turn.tokens_before,
                turn.tokens_after,
                turn.summarized,
                dict(turn.usage),
                turn.complete,
                0,
                min(turn.max_output_tokens, MAX_NUMBER),
            )
        )
        return digest_of(turn.chain.tip, _pack(identity)) + (record if self._cipher is None else self.seal(record))

    def unpack_turn(self, packed: bytes) -> TurnEntry:
        """Return the turn of an entry.

        :raises RecordUnreadable: another version wrote it, or its bytes have changed since
        """
        return self._read(_TURN, packed[DIGEST_BYTES:])

    def readable_turn(self, packed: bytes) -> TurnEntry | None:
        """Return the turn of an entry, or None for an unreadable one."""
        try:
            return self.unpack_turn(packed)
        except RecordUnreadable:
            return None

    def pack_summary(self, summary: PrefixSummary) -> bytes:
        # An earlier program would read masked results as a summary without a text, so it must not read them.
        version = VERSION if summary.masked is None else MASKED_VERSION
        return self.seal(version + _pack(_summary_record(summary)))

    def unpack_summary(self, packed: bytes) -> PrefixSummary:
        """Return the summary of a record.

        :raises RecordUnreadable: another version wrote it, or its bytes have changed since
        """
        return _summary_of(self._read(_SUMMARY, packed, (VERSION, MASKED_VERSION)))

    def readable_summary(self, packed: bytes) -> PrefixSummary | None:
        """Return the summary of a record, or None for an unreadable one: a summary can be made again."""
        try:
            return self.unpack_summary(packed)
        except RecordUnreadable:
            return None

    def pack_json(self, content: object) -> bytes:
        """Pack a record that is read by name, such as a model's settings."""
        return self.seal(json.dumps(content).encode())

    def unpack_json(self, packed: bytes) -> Any:
        """Return the content of a record that ``pack_json`` wrote.

        :raises RecordUnreadable: it is no JSON, or its bytes have changed since
        """
        try:
            return json.loads(self.open(packed))
        except ValueError as error:
            raise unreadable(str(error)) from error

    def _read(self, decoder: msgspec.msgpack.Decoder[T], packed: bytes, versions: Sequence[bytes] = (VERSION,)) -> T:
        plain = self.open(packed)
        if plain[:1] not in versions:
            raise unreadable(f"record version {plain[:1].hex()}, this program reads {VERSION.hex()}")
        try:
            return decoder.decode(memoryview(plain)[1:])
        except msgspec.MsgspecError as error:
            raise unreadable(str(error)) from error

    def _seal_text(self, text: str) -> str:
        return base64.b64encode(self.seal(text.encode())).decode() if text else ""

    def _open_text(self, text: str) -> str:
        try:
            return self.open(base64.b64decode(text, validate=True)).decode() if text else ""
        except ValueError as error:
            raise unreadable(str(error)) from error


def _summary_record(summary: PrefixSummary) -> _Summary:
    recipe, masked = summary.recipe, summary.masked
    return _Summary(
        summary.prefix,
        summary.covered,
        summary.text,
        recipe.strategy,
        recipe.template,
        recipe.version,
        recipe.model,
        summary.made_by,
        summary.cause,
        summary.created_at,
        summary.previous,
        summary.tokens,
        summary.absorbed,
        summary.edited,
        summary.written_with,
        tuple(
            (count.kind, count.total, count.verbatim_count, count.shortened_count)
            for count in summary.receipt
            if count.kind != "statements"
        ),
        summary.first_question,
        summary.stated,
        tuple(
            (count.kind, count.total, count.verbatim_count, count.shortened_count, count.unsupported)
            for count in summary.receipt
            if count.kind == "statements" or count.unsupported
        ),
        _fields_of(summary.native),
        summary.chosen,
        None if masked is None else _Masked(_summary_record(masked.base) if masked.base else None, masked.lines),
        summary.results,
    )


def _summary_of(record: _Summary) -> PrefixSummary:
    masked = record.masked
    return PrefixSummary(
        prefix=record.prefix,
        covered=record.covered,
        text=record.text,
        recipe=SummaryRecipe(record.strategy, record.template, record.version, record.model),
        made_by=record.made_by,
        cause=record.cause,
        created_at=record.created_at,
        previous=record.previous,
        tokens=record.tokens,
        absorbed=record.absorbed,
        edited=record.edited,
        written_with=record.written_with,
        receipt=_receipt_of(record),
        first_question=record.first_question,
        stated=record.stated,
        native=None if record.native is None else NativeForm(*record.native),
        chosen=record.chosen,
        results=record.results,
        masked=None
        if masked is None
        else MaskedResults(_summary_of(masked.base) if masked.base else None, masked.lines),
    )


def _fields_of(native: NativeForm | None) -> tuple[str, str, tuple[bytes, ...], int, bytes] | None:
    if native is None:
        return None
    return (native.dialect, native.model, native.raws, native.tokens, native.stands_for)


def _receipt_of(record: _Summary) -> Receipt:
    counts = {count[0]: KindCount(*count) for count in record.receipt}
    return tuple((counts | {count[0]: KindCount(*count) for count in record.model_text}).values())


def clipped(turn: TurnEntry, last: int) -> TurnEntry:
    """Return a turn of a fork's parent, as far as the fork has its messages."""
    return turn if turn.last <= last else msgspec.structs.replace(turn, last=last, beyond=turn.last - last)


def unreadable(cause: str) -> RecordUnreadable:
    """Return the error of a record that cannot be read.

    :param cause: for the log
    """
    return RecordUnreadable("A stored record is broken, or another version of Tidemark wrote it.", internal=cause)
