"""Adds up the tokens of messages and requests by the published rules.

``counting`` calls these functions and counts the texts for them. docs/counting.md names the source of each rule and
the requests it was measured against.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.summary import render_text
from tidemark.core.frozen import frozen
from tidemark.dialects.chat.message import LEGACY_CALL
from tidemark.tokens.families import Family, family_for
from tidemark.tokens.images import ImagePricing, image_tokens, pricing_for
from tidemark.tokens.media import IMAGES, kind_of, part_text, sealed_tokens
from tidemark.tokens.tools import render_namespace, serialised, split_tools, words

RULES = 4
"""The version of the rules, raised with every change. Stored counts of another version are ignored."""

PER_MESSAGE = 3
PER_ROLE = 1
"""Each role is one token in all our encodings."""
PER_NAME = 1
PER_CALL = 3
PRIMING = 3
"""Every reply is primed with ``<|start|>assistant<|message|>``."""
LEGACY_RESULT = -2
"""A message of role ``function`` costs two tokens less than its parts."""
TOOL_RESULT = 2
"""A message of role ``tool`` costs two more than its content; its name and the call's id are not billed."""
NAMESPACE = 9
SHARED_SYSTEM = -4
"""Functions add a system message. If the client sends one, the two are joined."""
CHOICES = {"tool_choice": 7, "function_call": 4}
"""The tokens for choosing one function, beside those of its name."""
_SYSTEM = ("instructions", "system")
"""Members that are a system message beside the messages: of the Responses API and of the Messages API."""
_TAIL_CHARS = 400
_SUMMARY = render_text("", 0).text
_KNOWN = frozenset({"tools", "functions", "response_format", "text", "instructions", "system", *CHOICES})

BARE = (PRIMING, 0)
"""The result of ``fixed_tokens`` for a request that consists of messages only."""

Tally = Callable[[str], int]
"""Returns the tokens of a text."""


@frozen
class Scheme:
    """The rules that count one model's requests."""

    key: str
    """A key that models share if all their counts are equal; it changes with the rules."""
    texts: str
    """A key that models share if their counts of bare text are equal."""
    mark: str
    """The digest of ``key`` in 8 hex characters, which is stored beside every count."""
    family: Family
    images: ImagePricing


@lru_cache(maxsize=1024)
def scheme_for(model: str) -> Scheme:
    """Return the rules for a model's requests."""
    family, images = family_for(model), pricing_for(model)
    texts = f"{family.encoding}*{family.percent}"
    key = f"{RULES}:{texts}:{family.openai:d}:{images.key}"
    return Scheme(key, texts, hashlib.blake2b(key.encode(), digest_size=4).hexdigest(), family, images)


def message_tokens(message: Message, text: Tally, scheme: Scheme) -> int:
    """Return the tokens of a message with its overhead.

    OpenAI bills no ids of calls. Other providers' templates may render them, so an estimate includes them.
    """
    count = PER_MESSAGE + PER_ROLE + text(message.text)
    if message.answers is None and not (message.name or message.calls or message.media):
        return count  # most messages
    openai = scheme.family.openai
    result = message.answers is not None and not message.answers.startswith(LEGACY_CALL)
    if message.name and not (result and openai):
        count += PER_NAME + text(message.name)
    for call in message.calls:
        count += PER_CALL + text(call.name) + text(call.arguments)
        if not openai and not call.id.startswith(LEGACY_CALL):
            count += text(call.id)
    if result:
        count += TOOL_RESULT if openai else TOOL_RESULT + text(message.answers or "")
    elif message.answers:
        count += LEGACY_RESULT
    for part in message.media:
        if kind_of(part) in IMAGES:
            count += image_tokens(part, scheme.images)
        else:
            sealed = sealed_tokens(part)
            count += text(part_text(part)) if sealed is None else sealed
    return count


def fixed_tokens(request: ModelRequest, text: Tally) -> tuple[int, int]:
    """Return the tokens of all parts that are billed once: tools, tool choice, response_format, reply priming.

    :returns: the tokens, and their change when a summary becomes the first system message
    """
    try:
        return _fixed_tokens(request, text)
    except RecursionError:
        # The value is nested deeper than the stack. Counting every word gives too many tokens, never too few.
        return PRIMING + NAMESPACE + sum(text(words(value)) for value in request.billed_members.values()), 0


def _fixed_tokens(request: ModelRequest, text: Tally) -> tuple[int, int]:
    count, change = PRIMING, 0
    beside = next((request.billed_members[name] for name in _SYSTEM if name in request.billed_members), None)
    first = _first_system(request)
    if beside is not None:
        first = _system_text(beside)
        count += PER_MESSAGE + PER_ROLE + text(first)
    tools, others = split_tools(request.billed_members.get("tools") or [])
    functions, unknown = split_tools(request.billed_members.get("functions") or [])
    others += unknown
    if tools or functions:
        count += NAMESPACE + text(render_namespace(tools + functions, legacy=not tools))
        shared = 0 if first is None else _shared_system(first, text)
        count += shared
        change = _shared_system(_SUMMARY, text) - shared
    for name, function_tokens in CHOICES.items():
        count += _choice(request.billed_members.get(name), function_tokens, text)
    others += _schemas(request.billed_members)
    others += [value for name, value in request.billed_members.items() if name not in _KNOWN]
    return count + sum(text(serialised(other)) for other in others), change


def _system_text(value: JsonValue) -> str:
    """Return the text of a system message that is a member.

    :param value: a string, text blocks, or any other value, which counts as JSON
    """
    if isinstance(value, str):
        return value
    blocks = value if isinstance(value, list) else [None]
    texts = [block.get("text") if isinstance(block, dict) else None for block in blocks]
    strings = [part for part in texts if isinstance(part, str)]
    return "\n".join(strings) if len(strings) == len(texts) else serialised(value)


def _first_system(request: ModelRequest) -> str | None:
    return next((message.text for message in request.messages if message.is_system), None)


def _schemas(members: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the schema of ``response_format``, or of ``text.format`` in the Responses API."""
    chat, text = members.get("response_format"), members.get("text")
    schemas: list[JsonValue] = []
    if isinstance(chat, dict) and chat.get("json_schema"):
        schemas.append(chat["json_schema"])
    output = text.get("format") if isinstance(text, dict) else None
    if isinstance(output, dict) and output.get("schema"):
        schemas.append(output)
    return schemas


def _shared_system(first: str, text: Tally) -> int:
    """Return the change when the functions join the first system message.

    The joined message saves its opening and gets a line end. The line end joins no token of an earlier line, so the
    change is the same for every summary.
    """
    tail = first[-_TAIL_CHARS:]
    line = tail[tail.rstrip().rfind("\n") + 1 :]
    return SHARED_SYSTEM + text(line + "\n") - text(line)


def _choice(choice: JsonValue, function_tokens: int, text: Tally) -> int:
    if choice == "none":
        return 1
    if not isinstance(choice, dict):
        return 0
    body = choice.get("function", choice)
    name = body.get("name") if isinstance(body, dict) else None
    return function_tokens + text(name if isinstance(name, str) else serialised(choice))
