"""Reads and writes what belongs to stored responses: ids of earlier ones, references to items, sealed summaries.

The pipeline and the endpoints of stored responses reach it through ``Dialect.responses``. Source: OpenAI API reference,
"Create a model response" (``previous_response_id``, ``item_reference``, ``compaction``) and "The response object".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.responses import (
    CONVERSATION,
    EARLIER_RESPONSE,
    OUTPUT,
    InputReference,
    OutputItem,
    SealedAnswer,
)
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.bodies import array_of, body_of, encode_json
from tidemark.dialects.raw_json import decode_value, read_elements, read_members
from tidemark.dialects.responses.compaction import compaction_triggers, sealed_answer
from tidemark.dialects.responses.encrypted_items import has_encrypted, refused_items, without_items
from tidemark.dialects.responses.partial_items import StreamEvent
from tidemark.dialects.responses.reply import ResponseObject, read_struct
from tidemark.dialects.responses.request import InputItems
from tidemark.dialects.responses.writing import as_sent, system_item

_SEALED = ("compaction", "compaction_summary")
_BEFORE = (EARLIER_RESPONSE, CONVERSATION)
"""Members that say what came before."""
_INPUT = InputItems()
_ESCAPED = re.compile(rb"\\u00[2-7]")
"""A character of ASCII that is written as an escape; no encoder writes letters so."""
_NO_TYPE = re.compile(rb'"type"\s*:\s*null')
_PRELUDE = frozenset({"response.created", "response.queued", "response.in_progress"})
_EVENT_END = re.compile(rb"\r?\n\r?\n|\r\r")
_LINE_END = re.compile(rb"\r?\n|\r")


class _ItemName(msgspec.Struct):
    """An item, of which only its name is decoded."""

    type: Any = None
    id: Any = None


_decode_name = msgspec.json.Decoder(_ItemName).decode


class ResponsesApiFormat:
    """``ResponseFormat`` of the Responses API; it has no state."""

    def is_kept(self, fields: Mapping[str, bytes]) -> bool:
        """Return whether the client lets the response be stored, as it does without ``store: false``."""
        return fields.get("store") != b"false"

    def conversation_at_upstream(self, fields: Mapping[str, bytes]) -> str:
        """Return the id in ``conversation``, which the provider keeps itself; empty without one."""
        value = decode_value(fields.get(CONVERSATION, b"null"), CONVERSATION)
        name = value.get("id") if isinstance(value, dict) else value
        return name if isinstance(name, str) else ""

    def references(self, fields: Mapping[str, bytes]) -> Sequence[InputReference]:
        """Return the items of the type ``item_reference``, which may go without its name."""
        if not _may_refer(fields.get("input", b"")):
            return ()
        return [
            InputReference(place, item["id"])
            for place, item in _elements(fields, _may_refer)
            if item.get("type") in ("item_reference", None) and isinstance(item.get("id"), str) and "role" not in item
        ]

    def input_items(self, fields: Mapping[str, bytes]) -> Sequence[bytes]:
        return _INPUT.raws_of(fields["input"]) if "input" in fields else []

    def sendable_items(self, raws: Sequence[bytes]) -> Sequence[bytes]:
        """Return stored items as a client would send them. Those of one turn are rewritten together."""
        sendable: list[bytes] = []
        for is_answer, group in groupby(raws, _may_be_answer):
            run = list(group)
            sendable += read_elements(b"[" + as_sent(b",".join(run)) + b"]") if is_answer else run
        return sendable

    def sealed_summaries(self, fields: Mapping[str, bytes]) -> Sequence[InputReference]:
        """Return the items of the type ``compaction`` with their ``encrypted_content``."""
        if b'"compaction' not in fields.get("input", b""):
            return ()
        elements = _elements(fields, lambda raw: b'"compaction' in raw)
        return [
            InputReference(place, item["encrypted_content"])
            for place, item in elements
            if item.get("type") in _SEALED and isinstance(item.get("encrypted_content"), str)
        ]

    def sealed_texts(self, raw: bytes) -> Sequence[str]:
        """Return the sealed summaries among the items of a stored message."""
        return [reference.text for reference in self.sealed_summaries({"input": b"[" + raw + b"]"})]

    def asks_to_compact(self, raw: bytes) -> bool:
        return bool(compaction_triggers({"input": b"[" + raw + b"]"}))

    def summary_element(self, text: str) -> bytes:
        """Write an opened summary as a system item."""
        return system_item(text)

    def sealed_answer(self, fields: Mapping[str, bytes], answer: SealedAnswer, *, stream: bool) -> bytes:
        return sealed_answer(fields, answer, is_stored=self.is_kept(fields), stream=stream)

    def rewritten(
        self, fields: Mapping[str, bytes], replaced: Mapping[int, Sequence[bytes]], earlier: Sequence[bytes] | None
    ) -> bytes:
        """Write a body with other items at some places, and with earlier ones before them."""
        items = list(earlier or ())
        for place, raw in enumerate(self.input_items(fields)):
            items += replaced.get(place, (raw,))
        members = {name: raw for name, raw in fields.items() if name not in _BEFORE or earlier is None}
        return body_of(members, {"input": array_of(items)})

    def response_of(self, original: bytes) -> tuple[str, Mapping[str, bytes]] | None:
        try:
            members = read_members(original, bounded=False)
            identifier = decode_value(members.get("id", b"null"), "id")
        except InvalidRequest:
            return None
        if not isinstance(identifier, str) or not identifier or OUTPUT not in members:
            return None
        members[OUTPUT] = b""
        return identifier, members

    def items_of(self, raw: bytes) -> Sequence[tuple[OutputItem, bytes]]:
        """Return the items of an assistant's turn, or the one item of any other message."""
        try:
            return [(_output_item(_decode_name(raw)), raw)]  # nearly every turn is one item
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return [(_output_item(_name_of(item)), item) for item in read_elements(b"[" + raw + b"]")]

    def output_of(self, raw: bytes, items: Sequence[OutputItem]) -> bytes:
        waiting: dict[str, list[str]] = {}
        for item in items:
            waiting.setdefault(item.type, []).append(item.id)
        elements: list[bytes] = []
        for item, stored in self.items_of(raw):
            names = waiting.get(item.type)
            name = (names.pop(0) if names else "") or item.id
            elements.append(stored if item.id == name and _is_answer(stored) else _answered(stored, item.type, name))
        return b",".join(elements)

    def has_encrypted(self, body: bytes) -> bool:
        return has_encrypted(body)

    def refused_items(self, refusal: bytes, body: bytes, *, all_of_them: bool) -> Sequence[str]:
        return refused_items(refusal, body, all_of_them=all_of_them)

    def without_items(self, body: bytes, left_out: Container[str]) -> bytes | None:
        return without_items(body, left_out)

    def refuses_continuation(self, body: bytes) -> bool:
        """Return whether an error is about the earlier response, by whatever words a server has for it."""
        return b"previous_response" in body or b"Previous response" in body

    def repeats_continuation(self, head: Mapping[str, bytes], earlier: str) -> bool:
        """Return whether a response repeats the id that it goes on from."""
        return _value(head.get(EARLIER_RESPONSE, b"null")) == earlier


def _may_be_answer(raw: bytes) -> bool:
    """Return whether an item may be of the assistant; a look at its bytes spares parsing most others."""
    return b'"assistant"' in raw or (b'"role"' not in raw and not str(_name_of(raw).type).endswith("_output"))


def _name_of(item: bytes) -> _ItemName:
    """Decode the name of an item, which may have unpaired surrogates."""
    try:
        return _decode_name(item)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        value = json.loads(item)
        return _ItemName(value.get("type"), value.get("id"))


def _output_item(name: _ItemName) -> OutputItem:
    return OutputItem(str(name.type or "message"), name.id if isinstance(name.id, str) else "")


def _is_answer(raw: bytes) -> bool:
    """Return whether an item has the form that answers have; a client may have echoed it in a shorter one."""
    value = json.loads(raw)
    return "type" in value and not isinstance(value.get("content"), str)


def _answered(raw: bytes, kind: str, name: str) -> bytes:
    """Write an item as an answer has it.

    :param name: its id
    """
    value = {"id": name, **json.loads(raw), "type": kind}
    value["id"] = name
    if kind == "message":
        value.setdefault("status", "completed")
        if isinstance(value.get("content"), str):
            value["content"] = [{"type": "output_text", "text": value["content"], "annotations": [], "logprobs": []}]
    return encode_json(value)


def _may_refer(raw: bytes) -> bool:
    """Return whether an item, or the array of all, may be or hold a reference; escapes could hide its name."""
    if b'"item_reference"' in raw or (b"\\u00" in raw and _ESCAPED.search(raw)):
        return True
    return b'"id"' in raw and (raw.startswith(b"[") or b'"type"' not in raw or _NO_TYPE.search(raw) is not None)


def _elements(fields: Mapping[str, bytes], may_count: Callable[[bytes], bool]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the items that may count, decoded, with their places."""
    try:
        raws = _INPUT.raws_of(fields["input"])
    except (ValueError, RecursionError):  # the parser of the request raises the right error
        return
    for place, raw in enumerate(raws):
        if may_count(raw):
            value = decode_value(raw, f"input[{place}]")
            if isinstance(value, dict):
                yield place, value


def _value(raw: bytes) -> JsonValue:
    try:
        value: JsonValue = json.loads(raw)
    except ValueError:
        return None
    return value


def opening_error(data: bytes) -> bytes | None:
    """Return the error's envelope if a stream begins with one.

    OpenAI sends ``response.created`` and ``response.in_progress`` before it finds that the input is too long, and then
    an event ``error`` and ``response.failed``.

    :param data: all that came of the stream
    :returns: empty if the reply has begun, None if the events do not tell yet
    """
    for event in _EVENT_END.split(data)[:-1]:
        payload = b"\n".join([line[5:].strip() for line in _LINE_END.split(event) if line.startswith(b"data:")])
        read = read_struct(payload, StreamEvent) if payload else None
        if read is None or read.type in _PRELUDE:
            continue
        error = _error_of(read)
        return encode_json({"error": error}) if error else b""
    return None


def _error_of(event: StreamEvent) -> Mapping[str, JsonValue]:
    """Return the members of an error event or of a failed response; none for any other event."""
    error: JsonValue = None
    if event.type == "response.failed":
        failed = read_struct(bytes(event.response), ResponseObject)
        error = failed.error if failed is not None else None
    elif event.type == "error" or event.error:
        error = event.error or {"message": event.message, "code": event.code, "param": event.param}
    return {"type": "invalid_request_error", "param": None, **error} if isinstance(error, dict) else {}
