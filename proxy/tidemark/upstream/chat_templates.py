"""Knows which servers' chat templates take one system message only, or want a user's turn first.

Templates of Qwen 3.5, Gemma and Mistral refuse a second system message, or an answer before the first question; the
template of gpt-oss drops all system messages but the first without a word. So a summary would be refused, or lost.
llama.cpp shows its template, which is tried here; of other servers the refusals tell.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamError
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Caller, Clock, Route
from tidemark.upstream.providers import endpoint
from tidemark.upstream.wire import is_openai

GetJson = Callable[..., Awaitable[JsonValue]]
ANSWER_SECONDS = 2.0
"""The longest that a first compacted request waits for a server's template."""
FRESH_SECONDS = 600.0
REMEMBERED = 256
"""The most servers whose templates are known."""
MOST_TEMPLATE_CHARS = 200_000
"""Published templates have up to 30,000."""
_DROPS = re.compile(r"gpt-oss", re.IGNORECASE)
"""In the names of models whose templates drop what they do not take."""
_NAMED = re.compile(
    rb"system (?:message|role|prompt)|\brole|alternat|chat.?template|jinja|user (?:message|turn)|first message",
    re.IGNORECASE,
)
"""What a refusal names that may be about the order of messages."""


class TemplateRefusal(Exception):
    """The template called ``raise_exception``."""


class ChatTemplates:
    """Tells which servers are strict. Its state is what they showed and refused.

    :param get_json: ``WireLane.get_json``
    :param clock: seconds, of any origin
    """

    def __init__(self, get_json: GetJson, clock: Clock) -> None:
        self._get_json = get_json
        self._clock = clock
        self._lessons: Lessons[tuple[str, str]] = Lessons(clock)
        self._shown: BoundedCache[tuple[bytes, str], tuple[float, bool]] = BoundedCache(REMEMBERED)

    async def is_strict(self, route: Route, caller: Caller, *, may_ask: bool) -> bool:
        """Return whether a route's server needs the summary in the user's turn, as far as anybody knows.

        :param may_ask: whether the server may be asked for its template, which happens once in some minutes
        """
        if _DROPS.search(route.upstream_model) or self._lessons.refuses(caller.fingerprint, _subject(route)):
            return True
        if is_openai(route.base_url):
            return False
        key = (caller.fingerprint, route.base_url)
        until, is_strict = self._shown.get(key, (0.0, False))
        if until <= self._clock() and may_ask:
            is_strict = await self._ask(route, caller)
            self._shown.put(key, (self._clock() + FRESH_SECONDS, is_strict))
        return is_strict

    def note_strict(self, route: Route, caller: Caller) -> None:
        """Note that a server took the summary in the user's turn, after it had refused it as a system message."""
        self._lessons.note_refused(caller.fingerprint, _subject(route))

    async def _ask(self, route: Route, caller: Caller) -> bool:
        url = endpoint(route.base_url, "/props", without="/v1")
        try:
            props = await self._get_json(route, url, caller, timeout_seconds=ANSWER_SECONDS)
        except UpstreamError:
            return False
        template = props.get("chat_template") if isinstance(props, dict) else None
        return isinstance(template, str) and await asyncio.to_thread(is_strict_template, template)


def _subject(route: Route) -> tuple[str, str]:
    return route.base_url, route.upstream_model


def is_about_roles(body: bytes) -> bool:
    """Return whether a refusal may be about the roles of messages and their order."""
    return _NAMED.search(body) is not None


def is_strict_template(template: str) -> bool:
    """Return whether a chat template refuses or drops a second system message, or refuses an answer before questions.

    :param template: in Jinja, as model cards and llama.cpp have it; one that cannot be tried counts as lenient
    """
    if len(template) > MOST_TEMPLATE_CHARS:
        return False
    from jinja2 import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda _: ""}
    second = [_message("system", "first"), _message("system", "second"), _message("user", "question")]
    answer_first = [_message("system", "first"), _message("assistant", "answer"), _message("user", "question")]
    variables: dict[str, Any] = {"add_generation_prompt": True, "bos_token": "", "eos_token": "", "tools": None}
    try:
        compiled = environment.from_string(template)
        compiled.render(messages=answer_first, **variables)
        return "second" not in compiled.render(messages=second, **variables)
    except TemplateRefusal:
        return True
    except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return False


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _refuse(message: str = "") -> NoReturn:
    raise TemplateRefusal(message)
