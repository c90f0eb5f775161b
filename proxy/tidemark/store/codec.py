"""Packs what the store holds into bytes, and unpacks it again.

All adapters of this package share the one ``Codec`` of the process (``worker/stored.py``): a cipher seals all stored
text or none. It seals for an owner, whose key it takes, and for a place, so that no value opens elsewhere.

A record is one version byte and msgpack in array form. A field may be added at the end, with a default: old records are
still read, and old programs ignore it. Anything else is a new version.

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
* the last model's name in the sums of a conversation's bill
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from tidemark.codings.compression import compress, decompress
from tidemark.core.conversation.messages import DIGEST_BYTES, Message, digest_of
from tidemark.core.conversation.records import MessageRecord, TurnRecord
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.errors import RecordUnreadable
from tidemark.store.encryption.keyring import MARK
from tidemark.store.summary_fields import SummaryFields, fields_of, summary_of
from tidemark.store.turn_parts import PlacedSystem

if TYPE_CHECKING:
    from tidemark.store.encryption.cipher import Place

T = TypeVar("T")

VERSION, MASKED_VERSION = b"\x01", b"\x02"
MOVED = b"\x00moved aside"
"""Stands in the place of a message or a turn that was moved aside. No version reads it as a record."""


class Cipher(Protocol):
    """Changes bytes so that only its own ``open`` can read them; called in threads too (``encryption/cipher.py``)."""

    def seal(self, plain: bytes, owner: str, place: Place) -> bytes:
        """Return the bytes to store; equal input may give different output.

        :raises EncryptionKeyLost: the owner's key cannot be had
        """
        ...

    def open(self, stored: bytes, place: Place) -> bytes:
        """Return the bytes that were sealed for the place.

        :raises RecordUnreadable: they were changed since, or sealed by another cipher or for another place
        """
        ...

    def is_sealed(self, stored: bytes) -> bool:
        """Tell whether bytes are sealed, or of a store from before."""
        ...

    def holds(self, owner: str) -> bool:
        """Tell whether sealing for an owner takes no time."""
        ...

    def prepare(self, owner: str) -> object:
        """Get an owner's key, or make it. It may take a while, so it is called in a thread.

        :raises EncryptionKeyLost: it cannot be had
        """
        ...


class _Message(msgspec.Struct, array_like=True, frozen=True):
    tokens: int
    created_at: float
    raw: bytes
    scheme: str = ""
    position: int = 0
    chain_hash: bytes = b""
    """A sealed message names its own place, so that it is read in no other."""


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
_SUMMARY = msgspec.msgpack.Decoder(SummaryFields)
_TURN = msgspec.msgpack.Decoder(TurnEntry)


def is_object(raw: bytes) -> bool:
    """Return whether bytes are a JSON object, which a message is in every dialect."""
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


class Codec:
    """Packs and unpacks every stored value; its state is its cipher, and whether it compresses.

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
        self.cipher = cipher
        self._is_message = is_message
        self.compress_messages(enabled=compress_messages)

    def compress_messages(self, *, enabled: bool) -> None:
        """Compress long messages from now on, or leave them as they are; compressed ones are read in any case."""
        self._compress: Callable[[bytes], bytes] = compress if enabled else bytes

    async def prepare(self, owner: str) -> None:
        """Have an owner's key before something is sealed for it, so that the event loop waits for no disk.

        :raises EncryptionKeyLost: it cannot be had
        """
        if self.cipher is not None and not self.cipher.holds(owner):
            await asyncio.to_thread(self.cipher.prepare, owner)

    def seal(self, plain: bytes, owner: str, *place: str | bytes) -> bytes:
        """Return the bytes to store.

        :param owner: whose they are; empty for what belongs to no tenant
        :param place: what they are, then what identifies their record
        :raises EncryptionKeyLost: the owner's key cannot be had
        """
        return plain if self.cipher is None else self.cipher.seal(plain, owner, place)

    def open(self, stored: bytes, *place: str | bytes) -> bytes:
        return stored if self.cipher is None else self.cipher.open(stored, place)

    def seal_text(self, text: str, owner: str, *place: str | bytes) -> str:
        """Return the text to store, for scripts that take no bytes; an empty text stays empty, which they ask for."""
        if self.cipher is None or not text:
            return text
        return base64.b64encode(self.cipher.seal(text.encode(), owner, place)).decode()

    def open_text(self, text: str, *place: str | bytes) -> str:
        """Return the text that was sealed; raises ``RecordUnreadable``."""
        if self.cipher is None or not text:
            return text
        try:
            stored = base64.b64decode(text, validate=True)
        except ValueError:
            stored = b""
        if not self.cipher.is_sealed(stored):
            stored = text.encode()
        try:
            return self.cipher.open(stored, place).decode()
        except ValueError as error:
            raise unreadable(str(error)) from error

    def pack_message(self, message: Message, tokens: int, created_at: float, scheme: str = "") -> bytes:
        """Pack one entry of a conversation's list of messages; its chain hash stands in the list of hashes."""
        return VERSION + _pack((tokens, created_at, self._compress(message.raw), scheme))  # _Message's fields

    def seal_message(
        self,
        turn: TurnRecord,
        message: Message,
        tokens: int,
        position: int,
        chain_hash: bytes = b"",
        *,
        scheme: str = "",
    ) -> bytes:
        """Pack and seal one entry, which says what its own place is."""
        fields = (tokens, turn.created_at, self._compress(message.raw), scheme, position, chain_hash)
        return self.seal(VERSION + _pack(fields), turn.owner or turn.tenant, "m", turn.chain.family)

    def unpack_message(self, packed: bytes, position: int, chain_hash: bytes, family: str) -> MessageRecord:
        """Return the message at ``position``.

        :param position: 0 if it is not known
        :param chain_hash: empty if it is not known
        :raises RecordUnreadable: another version wrote it, its bytes have changed since, or it is another one
        """
        record = self._read(_MESSAGE, packed, "m", family)
        is_other = record.chain_hash and chain_hash and record.chain_hash != chain_hash
        if is_other or (record.position and position and record.position != position):
            raise unreadable("it is a message of another place")
        try:
            raw = decompress(record.raw)
        except ValueError as error:
            raise unreadable(str(error)) from error
        if not self._is_message(raw):
            raise unreadable("its bytes are no message")
        return MessageRecord(position, chain_hash.hex(), raw, record.tokens, record.created_at, record.scheme)

    def readable_message(self, packed: bytes, position: int, chain_hash: bytes, family: str) -> MessageRecord:
        """Return the message; an unreadable one has no bytes, and its ``unreadable`` says why."""
        try:
            return self.unpack_message(packed, position, chain_hash, family)
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
        digest = digest_of(turn.chain.tip, _pack(identity))
        if self.cipher is None:
            return digest + record
        return digest + self.cipher.seal(record, turn.owner or turn.tenant, ("t", turn.chain.family, digest))

    def unpack_turn(self, packed: bytes, family: str) -> TurnEntry:
        """Return the turn of an entry.

        :raises RecordUnreadable: another version wrote it, or its bytes have changed since
        """
        return self._read(_TURN, packed[DIGEST_BYTES:], "t", family, packed[:DIGEST_BYTES])

    def readable_turn(self, packed: bytes, family: str) -> TurnEntry | None:
        """Return the turn of an entry, or None for an unreadable one."""
        try:
            return self.unpack_turn(packed, family)
        except RecordUnreadable:
            return None

    def pack_summary(self, summary: PrefixSummary, owner: str, family: str) -> bytes:
        # An earlier program would read masked results as a summary without a text, so it must not read them.
        version = VERSION if summary.masked is None else MASKED_VERSION
        return self.seal(version + _pack(fields_of(summary)), owner, "s", family)

    def unpack_summary(self, packed: bytes, family: str) -> PrefixSummary:
        """Return the summary of a record, which says itself for which prefix it stands.

        :raises RecordUnreadable: another version wrote it, or its bytes have changed since
        """
        return summary_of(self._read(_SUMMARY, packed, "s", family, versions=(VERSION, MASKED_VERSION)))

    def readable_summary(self, packed: bytes, family: str) -> PrefixSummary | None:
        """Return the summary of a record, or None for an unreadable one: a summary can be made again."""
        try:
            return self.unpack_summary(packed, family)
        except RecordUnreadable:
            return None

    def pack_json(self, content: object, owner: str, *place: str | bytes) -> bytes:
        """Pack a record that is read by name, such as a model's settings."""
        return self.seal(json.dumps(content).encode(), owner, *place)

    def unpack_json(self, packed: bytes, *place: str | bytes) -> Any:
        """Return the content of a record that ``pack_json`` wrote.

        :raises RecordUnreadable: it is no JSON, or its bytes have changed since
        """
        try:
            return json.loads(self.open(packed, *place))
        except ValueError as error:
            raise unreadable(str(error)) from error

    def _read(
        self,
        decoder: msgspec.msgpack.Decoder[T],
        packed: bytes,
        *place: str | bytes,
        versions: Sequence[bytes] = (VERSION,),
    ) -> T:
        plain = packed if self.cipher is None else self.cipher.open(packed, place)
        if plain[:1] not in versions:
            if plain.startswith(MARK):
                raise unreadable("it is sealed, and there is no master key: set TIDEMARK_ENCRYPTION_KEY")
            raise unreadable(f"record version {plain[:1].hex()}, this program reads {VERSION.hex()}")
        try:
            return decoder.decode(memoryview(plain)[1:])
        except msgspec.MsgspecError as error:
            raise unreadable(str(error)) from error


def clipped(turn: TurnEntry, last: int) -> TurnEntry:
    """Return a turn of a fork's parent, as far as the fork has its messages."""
    return turn if turn.last <= last else msgspec.structs.replace(turn, last=last, beyond=turn.last - last)


def unreadable(cause: str) -> RecordUnreadable:
    """Return the error of a record that cannot be read.

    :param cause: for the log
    """
    return RecordUnreadable("A stored record is broken, or another version of Tidemark wrote it.", internal=cause)
