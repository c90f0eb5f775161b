"""Reads one item of a Responses request as a message of its own, and joins those of one assistant's turn.

The parser of requests calls it for each new item, and ``reply.py`` for each item of a reply. Ids and ``status`` of
items are not part of a message's digest, and neither is reasoning: clients echo items with and without them. Reasoning
stays with the call that it belongs to, because nothing cuts a message in two. Source: OpenAI API reference, "Create a
model response", ``input``; types of the official SDK, ``ResponseInputItemParam``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from tidemark.core.conversation.digest import Part, long_meaning, meaning, text_meaning
from tidemark.core.conversation.messages import (
    STEP_CHARS,
    JsonValue,
    Message,
    Role,
    ToolCall,
    printable,
)
from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.dialects.members import role_of
from tidemark.dialects.raw_json import has_surrogates
from tidemark.dialects.responses.parts import content_parts, printable_parts, without_nulls

ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_PLAIN = frozenset({"input_text", "output_text", "text"})
IMAGE_CHARS = 90_000
"""Characters of a generated image that are kept for its count: its size stands in its first bytes."""
_PROGRAM = frozenset({"program", "program_output"})
_TOOL_SEARCH = frozenset({"tool_search_call", "tool_search_output"})
_FRAME = frozenset({"type", "id", "call_id", "status", "caller", "created_by"})
"""Members of a call that say nothing about what is called."""


@frozen
class TurnPieces:
    """What one item adds to an assistant's turn, not yet printable."""

    texts: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    media: tuple[Mapping[str, JsonValue], ...] = ()
    """Reasoning and built-in tools' items, for their counts."""
    own: tuple[Mapping[str, JsonValue], ...] = ()
    """What a built-in tool's item means. It is in the digest of a turn that has neither texts nor calls."""
    hosted: tuple[str, ...] = ()
    """The ids of calls that the provider itself answers within the turn."""


@frozen
class InputItem:
    """One item."""

    message: Message
    """The message that the item is if it stands alone."""
    pieces: TurnPieces | None = None
    """Present for an item of an assistant's turn."""


def read_item(raw: bytes, decoded: JsonValue, where: str) -> InputItem:
    """Read an item.

    :param raw: the item's own JSON, which stays as it is
    :param decoded: the same, decoded
    :param where: its place, for the error's ``param``
    :raises InvalidRequest: the item is no object, has neither a role nor a type, or a known member of another type
    """
    plain = _read_plain(raw, decoded) if isinstance(decoded, dict) and len(raw) <= STEP_CHARS else None
    return plain or _read(raw, decoded, where)


def _read(raw: bytes, value: JsonValue, where: str) -> InputItem:
    if not isinstance(value, dict):
        raise InvalidRequest(f"Each item must be an object; {where} is not.", param=where, code="invalid_type")
    kind = _text_of(value, "type", where)
    if "role" in value and kind in ("", "message"):
        return _read_message(raw, value, where)
    if value.get("role") in ("developer", "system"):
        return InputItem(_message(raw, "system", [_significant(value)]))
    if kind in ("", "message") and not isinstance(value.get("id"), str):
        raise InvalidRequest(
            f"{where} must have a 'role' or a 'type'.", param=f"{where}.role", code="missing_required_parameter"
        )
    if kind == "mcp_approval_response":
        answers = _text_of(value, "approval_request_id", where)
        return InputItem(_message(raw, "tool", [_significant(value)], answers=answers))
    if kind == "compaction_trigger":
        return InputItem(_message(raw, "user", [_significant(value)]))
    if kind.endswith("_output") and not _is_by_server(value, kind):
        answers = _text_of(value, "call_id", where) or _text_of(value, "id", where)
        return InputItem(_message(raw, "tool", _output_parts(value, where), answers=answers))
    return turn_of(raw, _pieces(value, kind, where))


def _read_plain(raw: bytes, value: Mapping[str, JsonValue]) -> InputItem | None:
    """Read a message that is one text, as nearly every message is; None for any other item.

    The result is that of ``_read_message``, in a third of the time.
    """
    name, text = value.get("role"), value.get("content")
    role = ROLES.get(name) if isinstance(name, str) else None
    if role is None or value.get("type", "message") != "message":
        return None
    if isinstance(text, list) and len(text) == 1 and isinstance(text[0], dict):
        kind = text[0].get("type")
        text = text[0].get("text") if isinstance(kind, str) and kind in _PLAIN else None
    if not isinstance(text, str) or not text:
        return None
    digest = text_meaning(role, text)
    if digest is None:
        return None
    return InputItem(Message(raw, role, text, digest), TurnPieces((text,)) if role == "assistant" else None)


def as_piece(item: InputItem) -> InputItem:
    """Return the result of a call that the provider answered itself as a piece of the assistant's turn."""
    message = item.message
    text = ({"type": "output", "text": message.text},) if message.text else ()
    return turn_of(message.raw, TurnPieces(media=(*message.media, *text)))


def turn_of(raw: bytes, pieces: TurnPieces) -> InputItem:
    """Return an assistant's turn of these pieces."""
    parts: list[Part] = list(pieces.texts)
    if not parts and not pieces.calls:
        parts += pieces.own
    message = _message(raw, "assistant", parts, calls=pieces.calls, media=pieces.media, texts=pieces.texts)
    return InputItem(message, pieces)


def _read_message(raw: bytes, value: Mapping[str, JsonValue], where: str) -> InputItem:
    """Read an item that is a message: an easy one, an input message or an output message."""
    role = role_of(value, ROLES, where)
    parts = content_parts(value.get("content"), f"{where}.content")
    if role != "assistant":
        return InputItem(_message(raw, role, parts))
    texts = tuple([part for part in parts if isinstance(part, str)])
    others = tuple([part for part in parts if not isinstance(part, str)])
    return turn_of(raw, TurnPieces(texts, media=others, own=others))


def _pieces(value: Mapping[str, JsonValue], kind: str, where: str) -> TurnPieces:
    """Return what an item without a role adds to the assistant's turn."""
    if kind in ("reasoning", "compaction", "compaction_summary"):
        sealed = value.get("encrypted_content")
        part: Mapping[str, JsonValue] = {"type": kind, "encrypted_content": sealed}
        media = (part,) if isinstance(sealed, str) and sealed else ()
        if kind == "reasoning":
            return TurnPieces(media=media or _readable(value))
        return TurnPieces(media=media, own=media)
    call_id = _text_of(value, "call_id", where)
    if kind == "local_shell_call":
        call_id = call_id or _text_of(value, "id", where)
    if kind == "mcp_approval_request":
        call_id = _text_of(value, "id", where)
    if call_id and not _is_by_server(value, kind):
        return TurnPieces(calls=(_call(value, kind, call_id),))
    own = (_significant(value),)
    hosted = (call_id,) if call_id else ()
    result = value.get("result")
    if kind == "image_generation_call" and isinstance(result, str):
        return TurnPieces(media=({"type": "input_image", "image_url": _data_url(result)},), own=own)
    return TurnPieces(media=own, own=own, hosted=hosted)


def _readable(value: Mapping[str, JsonValue]) -> tuple[Mapping[str, JsonValue], ...]:
    """Return what is counted of reasoning that nobody has sealed, as open models write it: its text."""
    content = value.get("content")
    parts = content if isinstance(content, list) else ()
    texts = [text for part in parts if isinstance(part, dict) and isinstance(text := part.get("text"), str)]
    return ({"type": "reasoning", "thinking": "".join(texts)},) if texts else ()


def _call(value: Mapping[str, JsonValue], kind: str, call_id: str) -> ToolCall:
    """Return a call that the client answers. A call of a built-in tool has the tool's name, and its action as JSON."""
    name = value.get("name")
    arguments = value.get("arguments", value.get("input"))
    if arguments is None:
        arguments = {key: item for key, item in value.items() if key not in _FRAME and item is not None}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, sort_keys=True)
    return ToolCall(call_id, name if isinstance(name, str) else kind.removesuffix("_call"), text)


def _output_parts(value: Mapping[str, JsonValue], where: str) -> list[Part]:
    """Return a result: a string, a list of parts, a screenshot, or the streams of a shell."""
    output = value.get("output")
    if isinstance(output, dict):
        return content_parts([output], f"{where}.output")
    if value.get("type") == "shell_call_output" and isinstance(output, list):
        return [text for chunk in output if isinstance(chunk, dict) for text in _streams(chunk)]
    return content_parts(output, f"{where}.output")


def _streams(chunk: Mapping[str, JsonValue]) -> list[str]:
    streams = (chunk.get("stdout"), chunk.get("stderr"))
    return [stream for stream in streams if isinstance(stream, str) and stream]


def _message(
    raw: bytes,
    role: Role,
    parts: list[Part],
    *,
    calls: tuple[ToolCall, ...] = (),
    answers: str | None = None,
    media: tuple[Mapping[str, JsonValue], ...] | None = None,
    texts: tuple[str, ...] | None = None,
) -> Message:
    """Return a message.

    :param media: the parts that are counted, if they are not those of the digest
    """
    others = [part for part in parts if not isinstance(part, str)] if media is None else list(media)
    words = [part for part in parts if isinstance(part, str)] if texts is None else texts
    digest = (meaning if len(raw) <= STEP_CHARS else long_meaning)(
        role, parts, calls, answers=answers or "", name="", audio=""
    )
    return Message(
        raw,
        role,
        printable("\n".join(words)),
        digest,
        calls=tuple([ToolCall(printable(call.id), printable(call.name), printable(call.arguments)) for call in calls]),
        answers=answers and printable(answers),
        media=tuple(printable_parts(others) if others and has_surrogates(raw) else others),
    )


def _significant(value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the members that every echo of an item has."""
    members = {
        name: without_nulls(item) for name, item in value.items() if name not in ("id", "status") and item is not None
    }
    return value if value.get("type") in (None, "item_reference") else members


def _is_by_server(value: Mapping[str, JsonValue], kind: str) -> bool:
    """Return whether the provider itself makes the call and gives its result, both within the assistant's turn."""
    if kind == "shell_call":
        place = value.get("environment")
        return isinstance(place, dict) and str(place.get("type")).startswith("container")
    return kind in _PROGRAM or (kind in _TOOL_SEARCH and value.get("execution") != "client")


def _data_url(result: str) -> str:
    return "data:image/png;base64," + result[:IMAGE_CHARS]


def _text_of(value: Mapping[str, JsonValue], name: str, where: str) -> str:
    """Return a member that is a string or missing.

    :raises InvalidRequest: the member has another type
    """
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise InvalidRequest(f"{where}.{name} must be a string.", param=f"{where}.{name}", code="invalid_type")
    return text or ""


def messages_of(items: Iterable[InputItem]) -> list[Message]:
    """Return the messages: consecutive items of the assistant are one, and each other item is one of its own."""
    messages: list[Message] = []
    turn: list[InputItem] = []
    hosted: set[str | None] = set()
    for item in items:
        if item.pieces is not None:
            turn.append(item)
            hosted.update(item.pieces.hosted)
            continue
        if turn and item.message.answers in hosted:
            turn.append(as_piece(item))
            continue
        if turn:
            messages.append(join_turn(turn))
            turn = []
        messages.append(item.message)
    if turn:
        messages.append(join_turn(turn))
    return messages


def join_turn(items: Sequence[InputItem]) -> Message:
    """Return the message of an assistant's turn; its bytes are those of the items, with a comma between them."""
    if len(items) == 1:
        return items[0].message
    pieces = [item.pieces for item in items if item.pieces is not None]
    joined = TurnPieces(
        texts=tuple([text for piece in pieces for text in piece.texts]),
        calls=tuple([call for piece in pieces for call in piece.calls]),
        media=tuple([part for piece in pieces for part in piece.media]),
        own=tuple([part for piece in pieces for part in piece.own]),
        hosted=tuple([name for piece in pieces for name in piece.hosted]),
    )
    return turn_of(b",".join([item.message.raw for item in items]), joined).message
