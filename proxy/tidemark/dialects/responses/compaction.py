"""Reads requests that ask for a compaction, and writes the answer to them.

A ``compaction_trigger`` as the last item of ``input`` asks for a response with exactly one item ``compaction``. Codex
compacts so behind a provider that is named OpenAI, and stops if another item comes. Source: OpenAI API guide,
"Compaction"; requests of Codex 0.169.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.responses import SealedAnswer
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.raw_json import decode_value, read_elements
from tidemark.dialects.responses.answer import ID, event, response_object, usage_of

TRIGGER = "compaction_trigger"
ITEM_ID = "cmp_tidemark_"
_NAME = b'"compaction_trigger"'


def compaction_triggers(fields: Mapping[str, bytes]) -> tuple[int, ...]:
    """Return for each item that asks for a compaction how many items stand behind it; nearly always none.

    :raises InvalidRequest: such an item is no JSON
    """
    array = fields.get("input", b"")
    if _NAME not in array or not array.startswith(b"["):
        return ()
    raws = read_elements(array)
    return tuple([len(raws) - 1 - place for place, raw in enumerate(raws) if _is_trigger(raw, place)])


def _is_trigger(raw: bytes, place: int) -> bool:
    if _NAME not in raw:
        return False
    value = decode_value(raw, f"input[{place}]")
    return isinstance(value, dict) and value.get("type") == TRIGGER


def sealed_answer(fields: Mapping[str, bytes], answer: SealedAnswer, *, is_stored: bool, stream: bool) -> bytes:
    """Write the answer as a response or as a whole event stream.

    :param is_stored: whether the client may ask for it again
    """
    item: dict[str, JsonValue] = {
        "id": ITEM_ID + answer.id,
        "type": "compaction",
        "encrypted_content": answer.sealed,
    }
    own: dict[str, JsonValue] = {
        "id": ID + answer.id,
        "created_at": int(answer.created_at),
        "store": is_stored,
        **answer.members,
    }
    usage = usage_of(answer.input_tokens, answer.output_tokens)
    done = {**response_object(fields, "completed", [item], usage), **own}
    if not stream:
        return encode_json(done)
    created = {**response_object(fields, "in_progress", [], None), **own}
    events: list[tuple[str, Mapping[str, JsonValue]]] = [
        ("response.created", {"response": created}),
        ("response.output_item.added", {"output_index": 0, "item": item}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": done}),
    ]
    return b"".join([event(kind, number, members) for number, (kind, members) in enumerate(events)])
