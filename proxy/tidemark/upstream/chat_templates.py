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
from urllib.parse import quote

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamError, UpstreamTimedOut, UpstreamUnreachable
from tidemark.core.lessons import REMEMBERED, Lessons
from tidemark.core.ports import Caller, Clock, Route
from tidemark.upstream.providers import endpoint, is_local

GetJson = Callable[..., Awaitable[JsonValue]]
ANSWER_SECONDS = 2.0
"""The longest that a first compacted request waits for a server's template."""
FRESH_SECONDS = 600.0
FAILED_SECONDS = 15.0
"""How long a server that did not answer is not asked again."""
MOST_TEMPLATE_CHARS = 200_000
"""Published templates have up to 30,000."""
_DROPS = re.compile(r"gpt-oss|r1-distill", re.IGNORECASE)
"""In the names of models whose templates drop all system messages but the first, or but the last."""
_NAMED = re.compile(
    rb"system (?:message|role|prompt)|roles? must|role ['\"]|alternat|chat.?template|jinja|user (?:message|turn)"
    rb"|invalid message role|incorrect role|invalid chat setting|messages parameter is illegal",  # MiniMax, GLM
    re.IGNORECASE,
)
"""What a refusal names that may be about the order of messages."""
_NEVER = (0.0, False)


_FIRST, _SECOND = "tidemark-first-of-two", "tidemark-second-of-two"
"""System messages that stand in no template."""


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
        self._shown: BoundedCache[tuple[bytes, tuple[str, str]], tuple[float, bool]] = BoundedCache(REMEMBERED)

    def is_taught(self, route: Route, caller: Caller) -> bool:
        """Return whether a route's server refused a summary as a system message."""
        return self._lessons.refuses(caller.fingerprint, _subject(route))

    def is_known(self, route: Route, caller: Caller) -> bool:
        """Return whether a route's server is known to be strict, without asking it."""
        shown = self._shown.get((caller.fingerprint, _subject(route)), _NEVER)
        return drops_systems(route) or self.is_taught(route, caller) or shown[1]

    async def is_strict(self, route: Route, caller: Caller) -> bool:
        """Return whether a route's server needs the summary in the user's turn, as far as anybody knows.

        A server of this machine or network is asked for its template, once in some minutes.
        """
        subject = (caller.fingerprint, _subject(route))
        if is_local(route.base_url) and self._shown.get(subject, _NEVER)[0] <= self._clock():
            is_strict, seconds = await self._ask(route, caller)
            self._shown.put(subject, (self._clock() + seconds, is_strict))
        return self.is_known(route, caller)

    def note_strict(self, route: Route, caller: Caller) -> None:
        """Note that a server took the summary in the user's turn, after it had refused it as a system message."""
        self._lessons.note_refused(caller.fingerprint, _subject(route))

    async def _ask(self, route: Route, caller: Caller) -> tuple[bool, float]:
        """Return whether a server shows a strict template, and for how many seconds that holds."""
        # The router of llama.cpp has a template for each model, and would load the model for the question.
        path = f"/props?model={quote(route.upstream_model, safe='')}&autoload=false"
        url = endpoint(route.base_url, path, without="/v1")
        try:
            props = await self._get_json(route, url, caller, timeout_seconds=ANSWER_SECONDS)
        except (UpstreamUnreachable, UpstreamTimedOut):
            return False, FAILED_SECONDS
        except UpstreamError:
            return False, FRESH_SECONDS
        template = props.get("chat_template") if isinstance(props, dict) else None
        return isinstance(template, str) and await asyncio.to_thread(is_strict_template, template), FRESH_SECONDS


def drops_systems(route: Route) -> bool:
    """Return whether a model is known by its name to get one system message only, whatever its server."""
    return _DROPS.search(route.upstream_model) is not None


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
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda _: ""}
    both = [_message("system", _FIRST), _message("system", _SECOND), _message("user", "question")]
    answer_first = [_message("system", _FIRST), _message("assistant", "answer"), _message("user", "question")]
    variables: dict[str, Any] = {"add_generation_prompt": True, "bos_token": "", "eos_token": "", "tools": None}
    try:
        compiled = environment.from_string(template)
        compiled.render(messages=answer_first, **variables)
        prompt = compiled.render(messages=both, **variables)
    except TemplateRefusal:
        return True
    except Exception:  # noqa: BLE001 - a template is a program of others, and may fail in any way
        return False
    return _FIRST not in prompt or _SECOND not in prompt


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _refuse(message: str = "") -> NoReturn:
    raise TemplateRefusal(message)
