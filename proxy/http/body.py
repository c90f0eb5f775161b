"""The first step on the road of a request: a body's bytes become a ``ChatRequest``.

Every member and every message keeps its own bytes, so that what is not changed is forwarded as it came. A
message that was seen before is not parsed again.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from proxy.core.chat import parse_message
from proxy.core.errors import InvalidRequest
from proxy.core.messages import ChatRequest, JsonValue, Message

COUNTED = ("tools", "tool_choice", "functions", "function_call", "response_format")
"""Members beside the messages that the provider bills as input."""
CACHE_BYTES = 32 * 1024 * 1024
"""Bytes of raw messages whose parsed form is kept; some hundred long conversations."""
MAX_OUTPUT_TOKENS = 100_000_000
"""Above this a reply length is a slip, not a wish."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder()


class BodyParser:
    """Parses chat requests. The mutable state is the cache of messages, oldest first."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self._messages: OrderedDict[bytes, Message] = OrderedDict()
        self._room = cache_bytes

    def chat(self, body: bytes, *, anonymous: bool = False) -> ChatRequest:
        """Parse the body of ``POST /v1/chat/completions``.

        :param anonymous: whether ``model`` may be left out, where nothing is forwarded
        :raises InvalidRequest: with ``param`` and a stable ``code``, as OpenAI words it
        """
        fields = members(body)
        model = "" if anonymous and "model" not in fields else _model(fields)
        messages = self._parse_messages(fields)
        return ChatRequest(
            body=body,
            fields=fields,
            model=model,
            messages=messages,
            stream=_flag(fields, "stream"),
            max_output_tokens=_max_output(fields),
            counted={name: decoded(fields[name], name) for name in COUNTED if name in fields},
        )

    def _parse_messages(self, fields: dict[str, bytes]) -> tuple[Message, ...]:
        if "messages" not in fields:
            raise InvalidRequest(
                "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter"
            )
        try:
            raws = _raws.decode(fields["messages"])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequest("'messages' must be an array.", param="messages", code="invalid_type") from error
        if not raws:
            raise InvalidRequest("'messages' must hold at least one message.", param="messages", code="empty_array")
        return tuple([self._message(bytes(raw), index) for index, raw in enumerate(raws)])

    def _message(self, raw: bytes, index: int) -> Message:
        cached = self._messages.get(raw)
        if cached is not None:
            self._messages.move_to_end(raw)
            return cached
        where = f"messages.[{index}]"
        try:
            message = parse_message(raw, decoded(raw, where), index)
        except RecursionError as error:
            raise InvalidRequest(f"{where} is nested too deeply.", param=where, code="invalid_json") from error
        self._messages[raw] = message
        self._room -= len(raw)
        while self._room < 0:
            oldest, _ = self._messages.popitem(last=False)
            self._room += len(oldest)
        return message


def members(body: bytes) -> dict[str, bytes]:
    """The top-level members; of a name that stands twice the last one counts, as in every JSON parser."""
    try:
        members = _members.decode(body)
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply.", code="invalid_json") from error
    except msgspec.ValidationError as error:
        raise InvalidRequest("The body must be a JSON object.", code="invalid_type") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from error
    return {name: bytes(raw) for name, raw in members.items()}


def decoded(raw: bytes, param: str) -> JsonValue:
    """A member's value; ``param`` is what it is called in an error."""
    try:
        return _value.decode(raw)
    except RecursionError as error:
        raise InvalidRequest(f"{param} is nested too deeply.", param=param, code="invalid_json") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{param} is not valid JSON: {error}.", param=param, code="invalid_json") from error


def _model(fields: dict[str, bytes]) -> str:
    if "model" not in fields:
        raise InvalidRequest("Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
    model = decoded(fields["model"], "model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("'model' must be a non-empty string.", param="model", code="invalid_type")
    return model


def _flag(fields: dict[str, bytes], name: str) -> bool:
    value = decoded(fields[name], name) if name in fields else None
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"'{name}' must be true or false.", param=name, code="invalid_type")
    return bool(value)


def _max_output(fields: dict[str, bytes]) -> int | None:
    """The reply length that is asked for: ``max_completion_tokens`` goes before the older ``max_tokens``."""
    for name in ("max_completion_tokens", "max_tokens"):
        value = decoded(fields[name], name) if name in fields else None
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
