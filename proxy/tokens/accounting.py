"""What a request costs beside the tokens of its texts: the published rules, and nothing else.

Below ``counting``, which says what a text costs. Sources, and which rule which request was measured against:
docs/counting.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from proxy.core.conversation.messages import JsonValue, Message, ModelRequest
from proxy.core.conversation.summary import render_text
from proxy.dialects.chat.message import LEGACY_CALL
from proxy.tokens.families import Family, family_for
from proxy.tokens.images import ImagePricing, image_tokens, pricing_for
from proxy.tokens.media import IMAGES, kind_of, part_text
from proxy.tokens.tools import render_namespace, serialised, split_tools, words

RULES = 3
"""Raised with every change of the rules: counts in the store that older rules made are not taken over."""

PER_MESSAGE = 3
PER_ROLE = 1
"""Each role is one token in every encoding we have."""
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
"""Functions bring a system message; where the client has one, theirs joins it."""
CHOICES = {"tool_choice": 7, "function_call": 4}
"""What naming one function costs beside its name."""
_TAIL_CHARS = 400
_SUMMARY = render_text("", 0).text
_KNOWN = frozenset({"tools", "functions", "response_format", *CHOICES})

BARE = (PRIMING, 0)
"""What ``fixed_tokens`` gives for a request that has nothing billed beside its messages."""

Tally = Callable[[str], int]
"""The tokens of a text."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How one model counts."""

    key: str
    """The same for all models that count alike, and another one when a rule changes."""
    texts: str
    """The same for all models that count bare text alike."""
    mark: str
    """``key`` in 8 hex characters, as it is stored beside every count."""
    family: Family
    images: ImagePricing


@lru_cache(maxsize=1024)
def scheme_for(model: str) -> Scheme:
    """How a model's requests are counted."""
    family, images = family_for(model), pricing_for(model)
    texts = f"{family.encoding}*{family.percent}"
    key = f"{RULES}:{texts}:{family.openai:d}:{images.key}"
    return Scheme(key, texts, hashlib.blake2b(key.encode(), digest_size=4).hexdigest(), family, images)


def message_tokens(message: Message, text: Tally, scheme: Scheme) -> int:
    """Tokens of a message, its overhead included.

    OpenAI bills no ids of calls. Other providers' templates may render them, so an estimate holds them.
    """
    count = PER_MESSAGE + PER_ROLE + text(message.text)
    if message.answers is None and not (message.name or message.calls or message.media):
        return count  # nearly always
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
        count += image_tokens(part, scheme.images) if kind_of(part) in IMAGES else text(part_text(part))
    return count


def fixed_tokens(request: ModelRequest, text: Tally) -> tuple[int, int]:
    """All that is billed once a request: tools, choice of a tool, response_format, priming of the reply.

    :returns: the tokens, and by how many they change when a summary becomes the first system message
    """
    try:
        return _fixed_tokens(request, text)
    except RecursionError:
        # Nested deeper than the stack: every word of it, so rather too many than too few.
        return PRIMING + NAMESPACE + sum(text(words(value)) for value in request.counted.values()), 0


def _fixed_tokens(request: ModelRequest, text: Tally) -> tuple[int, int]:
    count, change = PRIMING, 0
    tools, others = split_tools(request.counted.get("tools") or [])
    functions, unknown = split_tools(request.counted.get("functions") or [])
    others += unknown
    if tools or functions:
        count += NAMESPACE + text(render_namespace(tools + functions, legacy=not tools))
        system = next((message.text for message in request.messages if message.is_system), None)
        shared = 0 if system is None else _shared_system(system, text)
        count += shared
        change = _shared_system(_SUMMARY, text) - shared
    for name, named in CHOICES.items():
        count += _choice(request.counted.get(name), named, text)
    schema = request.counted.get("response_format")
    if isinstance(schema, dict) and schema.get("json_schema"):
        others.append(schema["json_schema"])
    others += [value for name, value in request.counted.items() if name not in _KNOWN]
    return count + sum(text(serialised(other)) for other in others), change


def _shared_system(first: str, text: Tally) -> int:
    """The first system message takes the functions in: it saves an opening and gets a line end.

    That joins no token of an earlier line, so every summary, whatever it tells, changes as much by it.
    """
    tail = first[-_TAIL_CHARS:]
    line = tail[tail.rstrip().rfind("\n") + 1 :]
    return SHARED_SYSTEM + text(line + "\n") - text(line)


def _choice(choice: JsonValue, named: int, text: Tally) -> int:
    if choice == "none":
        return 1
    if not isinstance(choice, dict):
        return 0
    body = choice.get("function", choice)
    name = body.get("name") if isinstance(body, dict) else None
    return named + text(name if isinstance(name, str) else serialised(choice))
