"""Counting requests and messages, each text once: the figures that budget and plan work with.

Second step on the road of a request, between identity and budget. Implements ``TokenCounter``.
Sources: OpenAI cookbook, "How to count tokens with tiktoken" (overheads of messages), and openai-chat-tokens
(functions, calls and results), whose figures are those of the API.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from proxy.core.chat import LEGACY_CALL
from proxy.core.errors import TokenizerFailed
from proxy.core.messages import ChatRequest, JsonValue, Message, digest_of
from proxy.core.ports import RequestCount
from proxy.tokens.images import ImagePricing, image_tokens, pricing_for
from proxy.tokens.media import IMAGES, part_text
from proxy.tokens.tools import render_namespace, split_tools
from proxy.tokens.vocabulary import Vocabulary, encoding_for, vocabulary

PER_MESSAGE = 3
PER_ROLE = 1
"""Each role is one token in every encoding we have."""
PER_NAME = 1
PER_CALL = 3
PRIMING = 3
"""Every reply is primed with ``<|start|>assistant<|message|>``."""
LEGACY_RESULT = -2
"""A message of role ``function`` costs two tokens less than its parts."""
NAMESPACE = 9
SHARED_SYSTEM = -4
"""Functions bring a system message; where the client has one, theirs joins it."""

ESTIMATED_CHARS = 4
"""Characters a token where counting failed and ``on_failure`` is ``estimate`` (S0-5)."""
THREAD_CHARS = 20_000
"""New text beyond this is counted in a thread: as much takes about 3 ms."""
REMEMBERED_MESSAGES = 50_000
REMEMBERED_TEXTS = 5_000
_UNREMEMBERED_CHARS = 200
"""Below this, counting anew is as quick as looking it up."""
_TAIL_CHARS = 400
OnFailure = Literal["error", "estimate"]


@dataclass(frozen=True, slots=True)
class _Scheme:
    """How one model counts."""

    key: str
    encoding: str
    images: ImagePricing


@lru_cache(maxsize=1024)
def _scheme(model: str) -> _Scheme:
    encoding, images = encoding_for(model), pricing_for(model)
    return _Scheme(f"{encoding}:{images.base}:{images.tile}:{images.factor}", encoding, images)


class _Remembered:
    """A bounded memory of counts that forgets what was not asked for longest, in two generations.

    Each step is one dict operation, so threads share it without a lock.
    """

    def __init__(self, size: int) -> None:
        self._half = max(1, size // 2)
        self._young: dict[tuple[str, bytes, int], int] = {}
        self._old: dict[tuple[str, bytes, int], int] = {}

    def get(self, key: tuple[str, bytes, int]) -> int | None:
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: tuple[str, bytes, int], count: int) -> None:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = count


class LocalTokenCounter:
    """Exact local counts; the mutable state is two bounded memories of counts."""

    def __init__(
        self,
        *,
        on_failure: OnFailure = "error",
        on_warning: Callable[[str], None] = lambda _: None,
        folder: Path | None = None,
    ) -> None:
        """Nothing is loaded yet.

        :param on_failure: ``error`` raises (FR-5.2.1); ``estimate`` takes a token for four characters
        :param on_warning: told once, when the first estimate is made
        :param folder: of the vocabularies; None for the ones in litellm's wheel
        """
        self._on_failure = on_failure
        self._on_warning = on_warning
        self._folder = folder
        self._warned = False
        self._loaded: dict[str, Vocabulary] = {}
        self._messages = _Remembered(REMEMBERED_MESSAGES)
        self._texts = _Remembered(REMEMBERED_TEXTS)

    async def count(self, request: ChatRequest, model: str) -> RequestCount:
        """Count a request; new text beyond ``THREAD_CHARS`` in sum is counted in a thread.

        :raises TokenizerFailed: nothing is approximated unless that was chosen
        """
        scheme = _scheme(model)
        found: Sequence[int | None]
        found = [self._messages.get(_key(message, scheme)) for message in request.messages]
        pairs = zip(request.messages, found, strict=True)
        new = sum(_size(message) for message, count in pairs if count is None)
        fixed = self._texts.get(_fixed_key(request, scheme))
        if fixed is None:
            new += sum(len(request.fields.get(name, b"")) for name in request.counted)
        if None in found or fixed is None:
            if new > THREAD_CHARS or scheme.encoding not in self._loaded:
                found, fixed = await asyncio.to_thread(self._fill, request, scheme, found, fixed)
            else:
                found, fixed = self._fill(request, scheme, found, fixed)
        return RequestCount(tuple(count or 0 for count in found), fixed or 0, scheme.encoding)

    def count_message(self, message: Message, model: str) -> int:
        """Tokens of one message, its overhead included."""
        scheme = _scheme(model)
        found = self._messages.get(_key(message, scheme))
        return self._message(message, scheme) if found is None else found

    def count_text(self, text: str, model: str) -> int:
        """Tokens of a bare text."""
        return self._text(text, _scheme(model))

    def cut_text(self, text: str, model: str, max_tokens: int) -> str:
        """The longest beginning of ``max_tokens`` tokens at most, in whole characters."""
        try:
            return self._vocabulary(_scheme(model)).cut(text, max_tokens)
        except TokenizerFailed as error:
            self._estimating(error)
            return text[: max(0, max_tokens) * ESTIMATED_CHARS]

    def _fill(
        self, request: ChatRequest, scheme: _Scheme, found: Sequence[int | None], fixed: int | None
    ) -> tuple[Sequence[int | None], int]:
        """Count what is not known yet; safe in any thread."""
        pairs = zip(request.messages, found, strict=True)
        counts = [self._message(message, scheme) if count is None else count for message, count in pairs]
        if fixed is None:
            fixed = self._fixed(request, scheme)
            self._texts.put(_fixed_key(request, scheme), fixed)
        return counts, fixed

    def _message(self, message: Message, scheme: _Scheme) -> int:
        count = PER_MESSAGE + PER_ROLE + self._text(message.text, scheme)
        if message.name:
            count += PER_NAME + self._text(message.name, scheme)
        for call in message.calls:
            count += PER_CALL + self._text(call.name, scheme) + self._text(call.arguments, scheme)
            # The API does not bill ids, but other providers' templates render them.
            count += 0 if call.id.startswith(LEGACY_CALL) else self._text(call.id, scheme)
        if message.answers:
            legacy = message.answers.startswith(LEGACY_CALL)
            count += LEGACY_RESULT if legacy else self._text(message.answers, scheme)
        for part in message.media:
            if part.get("type") in IMAGES:
                count += image_tokens(part, scheme.images)
            else:
                count += self._text(part_text(part), scheme)
        self._messages.put(_key(message, scheme), count)
        return count

    def _fixed(self, request: ChatRequest, scheme: _Scheme) -> int:
        """All that is billed once a request."""
        count = PRIMING
        functions, others = split_tools(request.counted.get("tools") or [])
        legacy, unknown = split_tools(request.counted.get("functions") or [])
        functions, others = functions + legacy, others + unknown
        if functions:
            count += NAMESPACE + self._text(render_namespace(functions), scheme)
            count += self._shared_system(request, scheme)
        for name in ("tool_choice", "function_call"):
            count += self._choice(request.counted.get(name), scheme)
        schema = request.counted.get("response_format")
        if isinstance(schema, dict) and schema.get("json_schema"):
            others.append(schema["json_schema"])
        known = ("tools", "functions", "tool_choice", "function_call", "response_format")
        others += [value for name, value in request.counted.items() if name not in known]
        return count + sum(self._text(_serialised(other), scheme) for other in others)

    def _shared_system(self, request: ChatRequest, scheme: _Scheme) -> int:
        """The first system message takes the functions in: it saves an opening and gets a line end."""
        first = next((message.text for message in request.messages if message.is_system), None)
        if first is None:
            return 0
        tail = first[-_TAIL_CHARS:]
        return SHARED_SYSTEM + self._text(tail + "\n", scheme) - self._text(tail, scheme)

    def _choice(self, choice: JsonValue, scheme: _Scheme) -> int:
        if choice == "none":
            return 1
        if not isinstance(choice, dict):
            return 0
        body = choice.get("function", choice)
        name = body.get("name") if isinstance(body, dict) else None
        return 4 + self._text(name, scheme) if isinstance(name, str) else 0

    def _text(self, text: str, scheme: _Scheme) -> int:
        if not text:
            return 0
        if len(text) < _UNREMEMBERED_CHARS:
            return self._encoded(text, scheme)
        digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        key = (scheme.encoding, digest, len(text))
        count = self._texts.get(key)
        if count is None:
            count = self._encoded(text, scheme)
            self._texts.put(key, count)
        return count

    def _encoded(self, text: str, scheme: _Scheme) -> int:
        try:
            return self._vocabulary(scheme).count(text)
        except TokenizerFailed as error:
            self._estimating(error)
            return -(-len(text) // ESTIMATED_CHARS)

    def _vocabulary(self, scheme: _Scheme) -> Vocabulary:
        found = self._loaded.get(scheme.encoding)
        if found is None:
            found = self._loaded[scheme.encoding] = vocabulary(scheme.encoding, self._folder)
        return found

    def _estimating(self, error: TokenizerFailed) -> None:
        """Go on with an estimate, or not."""
        if self._on_failure == "error":
            raise error
        if not self._warned:
            self._warned = True
            self._on_warning(f"Tokens are estimated at {ESTIMATED_CHARS} characters each: {error.message}")


def _key(message: Message, scheme: _Scheme) -> tuple[str, bytes, int]:
    # An assistant's digest passes over white space around the text, which costs tokens all the same.
    return scheme.key, message.digest, len(message.text)


def _fixed_key(request: ChatRequest, scheme: _Scheme) -> tuple[str, bytes, int]:
    """By the raw bytes where the request has them: hashing them is quicker than writing them anew."""
    system = next((message.digest for message in request.messages if message.is_system), b"")
    members = request.counted.items()
    parts = [request.fields.get(name) or _serialised(value).encode() for name, value in members]
    return scheme.key, digest_of(system, *[name.encode() for name in request.counted], *parts), -1


def _size(message: Message) -> int:
    """Characters to count in a message, about."""
    return len(message.text) + sum(len(call.arguments) for call in message.calls)


def _serialised(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
