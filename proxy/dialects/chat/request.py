"""The first step on the road of a request: a body's bytes become a ``ChatRequest``.

Every member and every message keeps its own bytes, so that what is not changed is forwarded as it came. A
message that was seen before is not parsed again. A body with half a character in it (JavaScript cuts emoji in
two) is for the upstream to judge: msgspec refuses it, so it is read by the standard library, which does not.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec

from proxy.core.conversation.messages import ChatRequest, JsonValue, Message, printable
from proxy.core.errors import InvalidRequest
from proxy.dialects.chat.message import HALF, parse_message
from proxy.dialects.chat.message_bytes import held_bytes
from proxy.dialects.chat.reuse import Beginnings

COUNTED = ("tools", "tool_choice", "functions", "function_call", "response_format")
"""Members beside the messages that the provider bills as input."""
_COUNTED = frozenset(COUNTED)
CACHE_BYTES = 64 * 1024 * 1024
"""Memory for messages that were parsed, all of it counted; some hundred long conversations."""
BEGINNINGS_SHARE = 3
"""At most one part of so many is for beginnings of long requests, and the messages that they hold."""
MAX_OUTPUT_TOKENS = 100_000_000
"""Above this a reply length is a slip, not a wish."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_decode = msgspec.json.Decoder().decode
_MARK = re.compile(r"[ \t\n\r]*([{}\[\]:,])[ \t\n\r]*")


class BodyParser:
    """Parses chat requests. The mutable state is the cache of messages, oldest first, and that of beginnings."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self._messages: OrderedDict[bytes, Message] = OrderedDict()
        self._room = cache_bytes
        self._beginnings = Beginnings(cache_bytes // BEGINNINGS_SHARE)

    def chat(self, body: bytes, *, anonymous: bool = False) -> ChatRequest:
        """Parse the body of ``POST /v1/chat/completions``.

        :param anonymous: whether ``model`` may be left out, where nothing is forwarded
        :raises InvalidRequest: with ``param`` and a stable ``code``, as OpenAI words it
        """
        continued = self._beginnings.continued(body)
        fields = members(body) if continued is None else continued.fields
        model = "" if anonymous and "model" not in fields else _model(fields)
        if continued is None:
            messages = self._all_messages(fields)
            parsed = self._beginnings.begun(body, fields, messages)
        else:
            known = continued.beginning.lineage.messages
            messages = (*known, *self._parsed(continued.added, len(known)))
            parsed = self._beginnings.grown(body, continued, messages)
        if self._room < self._beginnings.held:
            self._make_room()
        stream, max_output_tokens = _flag(fields, "stream"), _max_output(fields)
        counted: dict[str, JsonValue] = {}
        if not _COUNTED.isdisjoint(fields):
            counted = {name: decoded(fields[name], name) for name in COUNTED if name in fields}
        return ChatRequest(body, fields, model, messages, stream, max_output_tokens, counted, parsed)

    def _all_messages(self, fields: dict[str, bytes]) -> tuple[Message, ...]:
        if "messages" not in fields:
            raise InvalidRequest(
                "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter"
            )
        try:
            raws = _elements(fields["messages"])
        except (ValueError, RecursionError) as error:
            raise InvalidRequest("'messages' must be an array.", param="messages", code="invalid_type") from error
        if not raws:
            raise InvalidRequest("'messages' must hold at least one message.", param="messages", code="empty_array")
        return tuple(self._parsed(raws, 0))

    def _parsed(self, raws: Sequence[bytes], first: int) -> list[Message]:
        """Messages from their bytes; ``first`` is the place of the first one in the request."""
        known, used = self._messages.get, self._messages.move_to_end
        messages: list[Message] = []
        for index, raw in enumerate(raws, first):
            message = known(raw)
            if message is None:
                message = self._message(raw, index)
            else:
                used(raw)
            messages.append(message)
        return messages

    def _message(self, raw: bytes, index: int) -> Message:
        message = _read(raw, index)
        self._messages[raw] = message
        self._room -= held_bytes(message)
        if self._room < self._beginnings.held:
            self._make_room()
        return message

    def _make_room(self) -> None:
        while self._room < self._beginnings.held and self._messages:
            _, oldest = self._messages.popitem(last=False)
            self._room += held_bytes(oldest)


def read_messages(raws: Sequence[bytes]) -> tuple[Message, ...]:
    """Messages from their bytes, without a cache: for what is read of the store, in any thread.

    :raises InvalidRequest: one is no message
    """
    return tuple([_read(raw, index) for index, raw in enumerate(raws)])


def _read(raw: bytes, index: int) -> Message:
    where = f"messages.[{index}]"
    value = decoded(raw, where)
    try:
        return parse_message(raw, value, index)
    except RecursionError as error:
        raise InvalidRequest(f"{where} is nested too deeply.", param=where, code="invalid_json") from error


def members(body: bytes) -> dict[str, bytes]:
    """The top-level members; of a name that stands twice the last one counts, as in every JSON parser."""
    try:
        return {name: bytes(raw) for name, raw in _members.decode(body).items()}
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply.", code="invalid_json") from error
    except msgspec.ValidationError as error:
        raise InvalidRequest("The body must be a JSON object.", code="invalid_type") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if HALF.search(body):
            with suppress(ValueError, RecursionError):  # it may be no JSON to that reader either
                return dict(_pieces(body, "{}"))
        raise InvalidRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from error


def decoded(raw: bytes, param: str) -> JsonValue:
    """A member's value; ``param`` is what it is called in an error."""
    try:
        return _decode(raw)
    except RecursionError as error:
        raise InvalidRequest(f"{param} is nested too deeply.", param=param, code="invalid_json") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if HALF.search(raw):
            with suppress(ValueError, RecursionError):
                return json.loads(raw.decode(), parse_constant=_refuse)
        raise InvalidRequest(f"{param} is not valid JSON: {error}.", param=param, code="invalid_json") from error


def _elements(raw: bytes) -> list[bytes]:
    """The elements of an array, each in its own bytes."""
    try:
        return [bytes(element) for element in _raws.decode(raw)]
    except msgspec.DecodeError:
        if not HALF.search(raw):
            raise
    return [element for _, element in _pieces(raw, "[]")]


def _pieces(raw: bytes, brackets: str) -> Iterator[tuple[str, bytes]]:
    """The members of an object or the elements of an array, by the standard library's scanner.

    :raises ValueError: it is not that, or no JSON
    """
    text, read = raw.decode(), json.JSONDecoder(parse_constant=_refuse).raw_decode
    mark, at = _mark(text, 0, brackets[0])
    if text.startswith(brackets[1], at):
        mark, at = _mark(text, at, brackets[1])
    while mark != brackets[1]:
        name = ""
        if brackets == "{}":
            name, at = read(text, at)
            if not isinstance(name, str):
                raise ValueError("a name must be a string")
            _, at = _mark(text, at, ":")
        _, end = read(text, at)
        yield name, text[at:end].encode()
        mark, at = _mark(text, end, "," + brackets[1])
    if at != len(text):
        raise ValueError("more than one value")


def _mark(text: str, at: int, allowed: str) -> tuple[str, int]:
    """The mark that stands there, and the place after it and the white space around it."""
    found = _MARK.match(text, at)
    if found is None or found[1] not in allowed:
        raise ValueError(f"expected {allowed} at {at}")
    return found[1], found.end()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _model(fields: dict[str, bytes]) -> str:
    if "model" not in fields:
        raise InvalidRequest("Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
    model = decoded(fields["model"], "model")
    if not isinstance(model, str) or not model or model != printable(model):
        raise InvalidRequest("'model' must be a non-empty string.", param="model", code="invalid_type")
    return model


def _flag(fields: dict[str, bytes], name: str) -> bool:
    if name not in fields:
        return False
    value = decoded(fields[name], name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"'{name}' must be true or false.", param=name, code="invalid_type")
    return bool(value)


def _max_output(fields: dict[str, bytes]) -> int | None:
    """The reply length that is asked for: ``max_completion_tokens`` goes before the older ``max_tokens``."""
    for name in ("max_completion_tokens", "max_tokens"):
        if name not in fields:
            continue
        value = decoded(fields[name], name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidRequest(f"'{name}' must be a whole number.", param=name, code="invalid_type")
        if name == "max_tokens" and value == -1:
            return None  # llama.cpp and its kin write -1 for "no bound"
        if not 0 <= value <= MAX_OUTPUT_TOKENS:
            raise InvalidRequest(f"'{name}' must be between 0 and the model's maximum, not {value}.", param=name)
        return value
    return None
